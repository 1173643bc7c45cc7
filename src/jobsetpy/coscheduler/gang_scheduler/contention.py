"""Contention of gangs that are being placed: which of them gives way.

Of two gangs that cannot be complete for lack of capacity, the younger one gives up its reservations
if they help the older: so they do not wait for each other until they time out. A gang that lacks
nodes for long gives way to others that wait.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.fit import Fit
from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.holding import Holding
from jobsetpy.coscheduler.gang_scheduler.order.ranking import Ranking
from jobsetpy.coscheduler.gang_scheduler.order.timers import Timers
from jobsetpy.coscheduler.gang_scheduler.state import Cause, Limits, PodState, Progress
from jobsetpy.coscheduler.gang_scheduler.ungating import Ungating

_CLOSER: Final = 8
"""Maximum number of gangs for which the capacity of another gang is checked."""

_CHECKED: Final = 50
"""Maximum number of gangs that are compared with another one per pass."""


class Contention:
    """Gangs that are being placed.

    Args:
        fit: capacity check.
        limits: times and limits.
        ungating: queues of gangs that wait.
        holding: held binds.
    """

    def __init__(self, fit: Fit, limits: Limits, ungating: Ungating, holding: Holding) -> None:
        self._fit = fit
        self._limits = limits
        self._ungating = ungating
        self._holding = holding
        self._struggling: Ranking[TrackedGang] = Ranking()
        self._lacking: Ranking[TrackedGang] = Ranking()
        self._patience: Timers[TrackedGang] = Timers()
        self.is_new = False

    @property
    def is_quiet(self) -> bool:
        """Return whether each gang that is being placed may still succeed at once."""
        return not self._struggling

    def review(self, gang: TrackedGang, now: float, progress: Progress) -> None:
        """Update the state of a gang that has changed."""
        if not progress.in_flight:
            self.forget(gang)
            return
        lacks, key = gang.lacks_a_node, gang.queue_key
        struggles = gang.held.failures or gang.pods[PodState.UNSCHEDULABLE]
        self._struggling.put(gang, key if struggles else None)
        self._lacking.put(gang, key if lacks else None)
        if not lacks:
            self._patience.drop(gang)
        elif gang not in self._patience:
            patience_s = 0.0 if gang.held.failures else self._limits.patience_s
            self._patience.set(gang, max(now, gang.held.not_before) + patience_s)
            self.is_new = True

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang that is not being placed."""
        for ranking in (self._struggling, self._lacking):
            ranking.drop(gang)
        self._patience.drop(gang)

    def reject(self, gang: TrackedGang, cause: Cause, reason: str, now: float) -> None:
        """Refuse a gang's held binds, and delay its next attempt."""
        self._holding.reject(gang, cause, reason, now)

    def next_wake(self) -> float | None:
        """Return the time of the next timer; ``None`` without any."""
        return self._patience.next_at()

    # -- giving way ---------------------------------------------------------------------------

    def resolve(self, now: float) -> None:
        """Let gangs give way if one lacks a node since the last call, or has lacked it for long.

        A gang without reservations has failed, too: it gives up its place among those being tried.
        """
        due = list(self._patience.pop_due(now))
        if due or self.is_new:
            self.is_new = False
            self._resolve_deadlock(now)
        for gang in due:
            if not gang.lacks_a_node:
                continue
            # Giving up would help no other gang, and the scheduler would have to find the nodes
            # again.
            if gang.waiting and not self._is_in_the_way(gang):
                self._patience.set(gang, now + max(1.0, self._limits.patience_s))
                continue
            why = f"{gang.key} found no node for one of its pods"
            self.reject(gang, Cause.UNSCHEDULABLE, why, now)

    def _resolve_deadlock(self, now: float) -> None:
        """Let the youngest gang with missing nodes and with reservations give way, if it helps."""
        youngest = list(islice(reversed(self._lacking), _CHECKED))
        for first in islice(self._lacking, _CLOSER):
            # Its pods are refused for now: capacity for it would only be taken by others.
            if first.held.not_before > now:
                continue
            younger = [
                gang
                for gang in youngest
                if first.queue_key < gang.queue_key
                and gang.waiting
                and self._fit.may_share_nodes(first, gang)
            ]
            if younger and self._fit.needs_others(first):
                why = f"{first.key} found no node for one of its pods"
                self.reject(younger[0], Cause.YIELDED, why, now)
                return

    def _is_in_the_way(self, gang: TrackedGang) -> bool:
        """Return whether another gang waits for capacity and this one's reservations would help."""
        waiting = chain(
            (each for each in islice(self._struggling, _CHECKED) if self._needs_capacity(each)),
            self._ungating.first_in_queues(gang),
        )
        others = (
            other
            for other in waiting
            if other is not gang and not other.complete and self._fit.may_share_nodes(other, gang)
        )
        return any(self._fit.needs_others(other) for other in islice(others, _CLOSER))

    @staticmethod
    def _needs_capacity(gang: TrackedGang) -> bool:
        return gang.lacks_a_node or gang.held.failures > 0

    # -- time -------------------------------------------------------------------------------

    def time_out(self, late: list[TrackedGang], now: float) -> None:
        """Refuse gangs that were not complete in time."""
        for gang in late:
            have, want = gang.running + gang.waiting, gang.info().min_available
            self.reject(gang, Cause.TIMEOUT, f"{gang.key}: {have} of {want} pods in time", now)
