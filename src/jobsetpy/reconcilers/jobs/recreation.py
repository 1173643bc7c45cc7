"""Recreation of children that were deleted by another client, without a busy loop.

The garbage collector deletes the children of a JobSet that is gone, perhaps before the cache shows
its deletion. Recreating them would keep it busy forever. So the JobSet is read before such a child
is created, and if that happens repeatedly, the pauses grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from jobsetpy.reconcilers.rules.plan import JobsMemory
from jobsetpy.reconcilers.rules.times import Now

SOON_S: Final = 0.001
"""Longest wait in seconds that is ignored: timers are no more exact, and would be set again."""

_PAUSE_MAX_S: Final = 60.0
_IN_A_ROW_MAX: Final = 7  # 2 ** 6 s exceeds the longest pause
_CALM_S: Final = 600.0


class Recreation:
    """Decision for one plan about which missing children may be created.

    Args:
        memory: state kept from the previous plan.
        now: time of the plan.

    Attributes:
        wait_s: remaining pause before children that another client deleted are created, in seconds.
        held: names of the children that have to wait.
        confirm: some of them are created, so the JobSet has to be read first.
    """

    def __init__(self, memory: JobsMemory, now: Now) -> None:
        self._memory = memory
        self._now = now.monotonic
        self.wait_s = 0.0
        if memory.recreations:
            pause_s = min(_PAUSE_MAX_S, 2.0 ** (memory.recreations - 1))
            self.wait_s = memory.recreated_at + pause_s - self._now
        self.held: set[str] = set()
        self.confirm = False

    def may_create(self, name: str) -> bool:
        """Return whether a missing child may be created now."""
        if name not in self._memory.children:
            return True
        if self.wait_s > SOON_S:
            self.held.add(name)
            return False
        self.confirm = True
        return True

    def remember(
        self, jobs: frozenset[str], made: Iterable[str], others: Iterable[str]
    ) -> JobsMemory:
        """Return the memory with the children that are expected at the next plan.

        Args:
            jobs: names of the existing Jobs, without those that are being deleted.
            made: names of all children that are created.
            others: names of the other existing children.
        """
        memory = attrs.evolve(self._memory, children=jobs.union(made, self.held, others))
        if not self.confirm:
            return memory
        calm = self._now - memory.recreated_at > _CALM_S
        count = 1 if calm else min(memory.recreations + 1, _IN_A_ROW_MAX)
        return attrs.evolve(memory, recreations=count, recreated_at=self._now)
