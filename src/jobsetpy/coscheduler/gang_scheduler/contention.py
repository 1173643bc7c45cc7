"""Contention of gangs that are being placed: which of them gives way, and whose turn it is.

* **Giving way.** Of two gangs that cannot be complete for lack of capacity, the younger one gives
  up its reservations if they help the older: so they do not wait for each other until they time
  out. A gang that lacks nodes for long gives way to others that wait.
* **Turns.** Gangs that timed out take turns: during the turn of one of them, the others' binds are
  refused. So one that fits makes progress even if unschedulable pods are never reported.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.fit import Fit
from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.holding import Holding
from jobsetpy.coscheduler.gang_scheduler.order.ranking import Ranking
from jobsetpy.coscheduler.gang_scheduler.order.timers import Timers, earliest
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
        self._in_flight: Ranking[TrackedGang] = Ranking()
        self._struggling: Ranking[TrackedGang] = Ranking()
        self._lacking: Ranking[TrackedGang] = Ranking()
        self._patience: Timers[TrackedGang] = Timers()
        self._timed_out: dict[TrackedGang, None] = {}
        self.is_new = False
        self._late: list[TrackedGang] = []
        self.turn: TrackedGang | None = None
        self._turn_ends = 0.0

    @property
    def is_quiet(self) -> bool:
        """Return whether each gang that is being placed may still succeed at once."""
        return self.turn is None and not self._struggling

    def review(self, gang: TrackedGang, now: float, progress: Progress) -> None:
        """Update the state of a gang that has changed."""
        if not progress.in_flight:
            if gang.complete:
                gang.timeouts = 0
            if gang in self._in_flight:
                self.forget(gang)
            return
        lacks, key = gang.lacks_a_node, gang.queue_key
        struggles = gang.held.failures or gang.pods[PodState.UNSCHEDULABLE]
        self._in_flight.put(gang, (gang.timeouts, key))
        self._struggling.put(gang, key if struggles else None)
        self._lacking.put(gang, key if lacks else None)
        if gang.waiting and gang.timeouts:
            self._timed_out[gang] = None
        else:
            self._timed_out.pop(gang, None)
        if not lacks:
            self._patience.drop(gang)
        elif gang not in self._patience:
            patience_s = 0.0 if gang.held.failures else self._limits.patience_s
            self._patience.set(gang, max(now, gang.held.not_before) + patience_s)
            self.is_new = True

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang that is not being placed."""
        for ranking in (self._in_flight, self._struggling, self._lacking):
            ranking.drop(gang)
        self._patience.drop(gang)
        self._timed_out.pop(gang, None)
        self._end_turn(gang)

    def reject(self, gang: TrackedGang, cause: Cause, reason: str, now: float) -> None:
        """Refuse a gang's held binds, and delay its next attempt; this ends its turn."""
        self._holding.reject(gang, cause, reason, now)
        self._end_turn(gang)

    def _end_turn(self, gang: TrackedGang) -> None:
        if self.turn is gang:
            self.turn = None

    def next_wake(self) -> float | None:
        """Return the time of the next timer; ``None`` without any."""
        return earliest(self._patience.next_at(), None if self.turn is None else self._turn_ends)

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

    # -- turns --------------------------------------------------------------------------------

    def time_out(self, late: list[TrackedGang], now: float) -> None:
        """Refuse gangs that were not complete in time, and the one whose turn is over."""
        turn = self.turn
        if turn is not None and self._turn_ends <= now and turn not in late:
            late.append(turn)
        for gang in late:
            have, want = gang.running + gang.waiting, gang.info().min_available
            gang.timeouts += 1
            self.reject(gang, Cause.TIMEOUT, f"{gang.key}: {have} of {want} pods in time", now)
        self._late = late

    def give_turn(self, now: float) -> None:
        """Give one gang a turn to be tried alone, if others were late: one with few failures.

        The others that have failed in this way give up their reservations. A turn lasts until each
        of the gang's pods can have come back from the scheduler's back-off.
        """
        late, self._late = self._late, []
        # A gang that is alone needs no turn.
        if not late or self.turn is not None or len(self._in_flight) < 2:
            return
        waiting = (gang for gang in self._in_flight if gang not in late)
        turn = next(waiting, None) or next(iter(self._in_flight))
        self.turn = turn
        self._holding.end_backoff(turn, now)
        self._ungating.recheck(turn)
        self._turn_ends = now + self._limits.round_s(turn.size)
        for gang in [each for each in self._timed_out if self.has_to_wait(each)]:
            self.reject(gang, Cause.YIELDED, f"it is the turn of {turn.key}", now)

    def has_to_wait(self, gang: TrackedGang) -> bool:
        """Return whether binds of a gang are refused during another one's turn."""
        turn = self.turn
        if turn is None or turn is gang or not gang.timeouts or gang.complete:
            return False
        return self._fit.may_share_nodes(turn, gang)
