"""Reservations: the capacity that becomes free is reserved for a gang that has waited for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.fit import Fit
from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.order.ranking import Ranking
from jobsetpy.coscheduler.gang_scheduler.order.timers import Timers
from jobsetpy.coscheduler.gang_scheduler.state import Limits, Progress

_QUESTIONS: Final = 100
"""Maximum number of gangs checked for capacity per pass."""

_IN_VAIN: Final = 6
"""Maximum doublings of the time until the next reservation of a gang that cannot be placed."""


class Reservations:
    """The gang that has a reservation, and those that wait for one.

    Only a gang that others keep waiting gets a reservation: it fits the empty cluster, and capacity
    was missing when it was its turn, or when the scheduler found no node. It may be free by now;
    without a reservation others would take it again. A gang whose pods have no node in spite of
    capacity has another reason, and delays no other gang.

    Gangs are served in turns: the first in the queue, then the one that has been due for longest,
    so that neither many others nor one that waits for long-running pods keep a gang from its
    reservation. Gangs that were offered capacity in vain several times come last.

    A reservation ends when the gang was tried with capacity for as long as each of its pods needs
    to return from the scheduler's back-off, or after as long as the gang had waited; then other
    gangs proceed for the same time, and the next reservation lasts twice as long: a gang that can
    be placed is started, even if the pods that use the capacity run for long. One that was offered
    capacity in vain waits twice as long each time.

    Args:
        fit: capacity check.
        limits: times and limits.
        on_change: called when a reservation has begun or ended.
    """

    def __init__(self, fit: Fit, limits: Limits, on_change: Callable[[], None]) -> None:
        self._fit = fit
        self._limits = limits
        self._on_change = on_change
        self._starving: Timers[TrackedGang] = Timers()
        self._due: Ranking[TrackedGang] = Ranking()
        self._longest_due: Ranking[TrackedGang] = Ranking()
        self._first_was_served = False
        self._until = 0.0
        self._offered = False
        self.gang: TrackedGang | None = None

    def must_leave_capacity(self, gang: TrackedGang) -> bool:
        """Return whether a gang must leave its capacity to the reservation of an earlier one."""
        first = self.gang
        if first is None or gang.complete or not first.queue_key < gang.queue_key:
            return False
        return self._fit.may_share_nodes(first, gang)

    def review(self, gang: TrackedGang, now: float, progress: Progress) -> None:
        """Start or end the wait of a gang that has changed."""
        if not progress.waits:
            gang.served.reservations, gang.served.bypassed = 0, False
            if gang.complete:
                gang.served.failed = 0
            self.forget(gang)
        elif (
            self._limits.reserve_after_s
            and self._fit.is_counted
            and gang is not self.gang
            and gang not in self._starving
            and gang not in self._due
        ):
            self._wait(gang, now + self._limits.reserve_after_s)

    def bypass(self, gang: TrackedGang) -> None:
        """Note that capacity was missing when it was a gang's turn, or when a pod found no node."""
        gang.served.bypassed = True

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang that no longer waits."""
        self._starving.drop(gang)
        self._due.drop(gang)
        self._longest_due.drop(gang)
        if self.gang is gang:
            self.gang = None
            self._on_change()

    def update(self, now: float) -> None:
        """End the reservation if it is over, and reserve for the next gang that needs it."""
        self._end(now)
        self._collect_due(now)
        if self.gang is not None:
            return
        for _ in range(_QUESTIONS):
            gang = (self._longest_due if self._first_was_served else self._due).first()
            if gang is None:
                return
            self._due.drop(gang)
            self._longest_due.drop(gang)
            if self._needs_reservation(gang, now):
                self._first_was_served = not self._first_was_served
                gang.served.reservations += 1
                self.gang, self._offered = gang, False
                self._until = now + self._duration_s(gang)
                self._on_change()
                return

    def _collect_due(self, now: float) -> None:
        while (due_at := self._starving.next_at()) is not None and due_at <= now:
            gang = self._starving.pop(now)
            assert gang is not None, "a timer that is due has no gang; please report it"
            last = gang.served.failed >= self._limits.stuck_after
            self._due.put(gang, (last, gang.queue_key))
            self._longest_due.put(gang, (last, due_at, gang.queue_key))

    def next_wake(self) -> float | None:
        """Return when :meth:`update` is due; ``None`` if no gang waits."""
        return self._starving.next_at() if self.gang is None else self._until

    def _wait(self, gang: TrackedGang, at: float) -> None:
        self._starving.set(gang, at, gang.queue_key)

    def _needs_reservation(self, gang: TrackedGang, now: float) -> bool:
        """Return whether a gang waits for capacity that others take."""
        ever = self._fit.ever_fits(gang)
        needs = ever and (gang.served.bypassed or not self._fit.counted(gang))
        if not needs:
            limits = self._limits
            pause_s = limits.round_s(gang.size) if ever else limits.reserve_after_s
            self._wait(gang, now + pause_s)
        return needs

    def _end(self, now: float) -> None:
        """End the reservation when its time is over; shorten it when the gang has capacity."""
        gang = self.gang
        if gang is None:
            return
        due = self._until <= now
        if self._offered and not due:
            return
        offered = gang.in_flight and self._fit.counted(gang)
        if offered and not self._offered:
            self._offered = True
            self._until = min(self._until, now + self._limits.round_s(gang.size))
        if not due:
            return
        if offered:
            gang.served.failed, gang.served.reservations = gang.served.failed + 1, 0
        gang.served.bypassed = False
        patience_s = self._limits.reserve_after_s * 2 ** min(gang.served.failed, _IN_VAIN)
        self._wait(gang, now + max(patience_s, self._duration_s(gang)))
        self.gang = None
        self._on_change()

    def _duration_s(self, gang: TrackedGang) -> float:
        doubled = (
            0 if gang.served.failed >= self._limits.stuck_after else gang.served.reservations - 1
        )
        return float(self._limits.reserve_after_s * 2 ** min(max(doubled, 0), 20))
