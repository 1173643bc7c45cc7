"""Children that somebody else deleted: they are created anew, but never in a busy loop.

The garbage collector deletes the children of a JobSet that is gone, perhaps before the cache says
so. Whoever creates them anew then keeps it busy for ever. So the JobSet is read before such a child
is created, and if that happens again and again, the pauses in between grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import attrs

from jobsetpy.reconcilers.rules.plan import JobsMemory, Now

SOON_S: Final = 0.001
"""Waits shorter than this are over: timers are not that exact, and would only be set again."""

_PAUSE_MAX_S: Final = 60.0
_IN_A_ROW_MAX: Final = 7  # doubled so often, the first pause of a second exceeds the longest
_CALM_S: Final = 600.0


class Recreation:
    """Decides for one plan which children that are missing may be created.

    Args:
        memory: of the plan before.
        now: when it is planned.

    Attributes:
        wait_s: how long children that somebody else deleted are not created, in seconds.
        held: those that have to wait.
        confirm: whether some are created; the JobSet has to be read before.
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
        """Whether a child that is missing may be created now."""
        if name not in self._memory.children and name not in self._memory.surroundings:
            return True
        if self.wait_s > SOON_S:
            self.held.add(name)
            return False
        self.confirm = True
        return True

    def remember(
        self, jobs: frozenset[str], made: Iterable[str], surroundings: AbstractSet[str]
    ) -> JobsMemory:
        """What should be there at the next plan, unless somebody else deletes it.

        Args:
            jobs: names of the Jobs that are there, without those that are deleted.
            made: names of all that is created.
            surroundings: names of the other children that are there.
        """
        memory = attrs.evolve(
            self._memory, children=jobs.union(made, self.held), surroundings=surroundings
        )
        if not self.confirm:
            return memory
        calm = self._now - memory.recreated_at > _CALM_S
        count = 1 if calm else min(memory.recreations + 1, _IN_A_ROW_MAX)
        return attrs.evolve(memory, recreations=count, recreated_at=self._now)
