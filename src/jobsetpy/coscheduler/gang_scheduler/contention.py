"""Contention: gangs that lack capacity take turns.

A gang that has found no node for its pods, or was refused, has the turn, for a time in which
kube-scheduler tries each of its pods again. Meanwhile the others of these give up their
reservations, and their binds are refused. So they do not wait for each other, and each gang that
fits is bound at its turn at the latest. Gangs that make progress need no turn.
"""

from __future__ import annotations

from operator import attrgetter

from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.holding import Holding
from jobsetpy.coscheduler.gang_scheduler.state import Cause, Limits
from jobsetpy.reconcilers.coscheduling.plugin import QueueKey


class Contention:
    """Gangs that lack capacity, and their turns.

    Every second turn is that of the first gang in the order of the queue, the others are given in
    this order: neither many others nor one that never fits keep a gang from its turn.

    Args:
        limits: times and limits.
        holding: held binds.

    Attributes:
        is_new: :meth:`resolve` is due.
    """

    def __init__(self, limits: Limits, holding: Holding) -> None:
        self._limits = limits
        self._holding = holding
        self._struggling: set[TrackedGang] = set()
        self._in_the_way: dict[TrackedGang, None] = {}
        self._turn: TrackedGang | None = None
        self._until = 0.0
        self._last: QueueKey | None = None
        self._first_is_next = True
        self.is_new = False

    def has_to_wait(self, gang: TrackedGang) -> bool:
        """Return whether a gang was refused, and another one has the turn."""
        return gang.held.failures > 0 and self._turn not in {None, gang}

    def review(self, gang: TrackedGang) -> None:
        """Update the state of a gang that has changed."""
        struggles = gang.lacks_a_node or (gang.held.failures and gang.is_large)
        if gang.complete or not struggles:
            self.forget(gang)
            return
        self._struggling.add(gang)
        if gang.waiting:
            self._in_the_way[gang] = None
        else:
            self._in_the_way.pop(gang, None)
        if self._turn is None or (gang.waiting and gang is not self._turn):
            self.is_new = True

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang that does not lack capacity, or has no pods."""
        self._struggling.discard(gang)
        self._in_the_way.pop(gang, None)
        if self._turn is gang:
            self._turn = None
            self.is_new = len(self._struggling) > 0

    def next_wake(self) -> float | None:
        """Return when the turn is over; ``None`` if no other gang waits for it."""
        return self._until if len(self._struggling) > 1 else None

    def resolve(self, now: float) -> None:
        """Give the turn to the next gang, if it is over; the others give up their reservations."""
        self.is_new = False
        if self._turn is None or self._until <= now:
            self._give_turn(now)
        for gang in list(self._in_the_way):
            if gang is not self._turn and gang.waiting:
                why = f"{gang.key} lacks nodes, and another group has the turn"
                self._holding.reject(gang, Cause.YIELDED, why, now)

    def _give_turn(self, now: float) -> None:
        first, *others = sorted(self._struggling, key=attrgetter("queue_key")) or (None,)
        self._turn = first
        if not self._first_is_next and others:
            last = self._last
            later = (each for each in others if last is not None and last < each.queue_key)
            self._turn = next(later, others[0])
            self._last = self._turn.queue_key
        self._first_is_next = not self._first_is_next
        gang = self._turn
        if gang is None:
            return
        self._until = now + self._limits.turn_s + self._limits.permit_per_pod_s * gang.size
        if others:  # a gang that lacks capacity alone backs off, for the sake of other pods
            self._holding.end_backoff(gang, now)
