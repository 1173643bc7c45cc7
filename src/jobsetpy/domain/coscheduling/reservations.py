"""Reservations: capacity that becomes free is kept for a gang that has waited long for it.

One gang at a time has a reservation. Gangs behind it in the queue that could be on the same nodes
stay gated meanwhile, so none is overtaken for ever by smaller ones.

It may never be placed, for a reason that is not counted. So a reservation ends when there is
capacity and each pod of the gang can have come back from the scheduler's back-off, or after as long
as the gang had waited. Then others get on for as long, and the next reservation lasts twice as
long: a gang that can be placed is started, however long the pods run that have the capacity. One
that was offered capacity in vain waits twice as long each time for its next reservation.
"""

from __future__ import annotations

from typing import Final

from jobsetpy.domain.coscheduling import plugin
from jobsetpy.domain.coscheduling.state import Limits, Room, TrackedGang
from jobsetpy.domain.coscheduling.timers import Timers

_ASKED: Final = 100
"""Maximum number of gangs whose capacity is counted per pass."""
_IN_VAIN: Final = 6
"""Maximum doublings of the time until the next reservation of a gang that cannot be placed."""


def round_s(limits: Limits, group: TrackedGang) -> float:
    """Time in which each pod of a gang can have come back from the scheduler's back-off."""
    return limits.longest_backoff_s + limits.settle_s + limits.settle_per_pod_s * group.size


class Reservations:
    """The gang that has a reservation, and those that are due for one later.

    Args:
        limits: times and bounds.
        room: counts capacity; without it nothing is reserved.
    """

    def __init__(self, limits: Limits, room: Room | None) -> None:
        self._limits = limits
        self._room = room
        self._waiting: Timers[TrackedGang] = Timers()
        self._until = 0.0
        self._offered = False
        self.holder: TrackedGang | None = None

    def next_wake(self) -> float | None:
        """Return when :meth:`advance` is due; ``None`` if no gang waits."""
        return self._waiting.first() if self.holder is None else self._until

    def watch(self, group: TrackedGang, now: float) -> None:
        """Have a gang that waits get a reservation after a while."""
        after_s = self._limits.reserve_after_s
        known = group is self.holder or group in self._waiting
        if after_s and self._room is not None and not known:
            self._wait(group, now + after_s)

    def drop(self, group: TrackedGang) -> bool:
        """Forget a gang that no longer waits; return whether it had the reservation."""
        self._waiting.drop(group)
        group.reservations = 0
        if self.holder is not group:
            return False
        self.holder = None
        return True

    def blocks(self, group: TrackedGang) -> bool:
        """Whether a gang must not take capacity because it is kept for one ahead of it."""
        first = self.holder
        if first is None or self._room is None or group.complete:
            return False
        ahead = plugin.less(first.info(), group.info())
        return ahead and self._room.compete(first.key, group.key)

    def advance(self, now: float) -> bool:
        """End a reservation and begin another one if due; return whether one has ended."""
        ended = self._end(now)
        if self.holder is not None or self._room is None:
            return ended
        last: list[tuple[float, TrackedGang]] = []
        taken = False
        for _ in range(_ASKED):
            due_at = self._waiting.first()
            group = self._waiting.pop(now)
            if group is None or due_at is None:
                break
            if group.in_vain >= self._limits.stuck_after:
                last.append((due_at, group))
                continue
            taken = self._take(self._room, group, due_at, now)
            if taken:
                break
        for due_at, group in last:
            if taken:
                self._wait(group, due_at)
            else:
                taken = self._take(self._room, group, due_at, now)
        return ended

    def _take(self, room: Room, group: TrackedGang, due_at: float, now: float) -> bool:
        """Reserve for a gang if it lacks capacity; ``False`` if another one may be asked."""
        ever = room.ever_fits(group.key, group.missing)
        fits = room.fits(group.key, group.missing) if ever else False
        if ever is None or fits is None:
            self._wait(group, due_at)  # it is asked again when that is known
            return True
        if not ever:
            self._wait(group, now + self._limits.reserve_after_s)
            return False
        if fits:
            self._wait(group, now + round_s(self._limits, group))
            return False
        group.reservations += 1
        self.holder, self._offered = group, False
        self._until = now + self._duration_s(group)
        return True

    def _end(self, now: float) -> bool:
        """End the reservation when its time is over, or when it has had its effect."""
        group = self.holder
        if group is None or self._room is None:
            return False
        due = self._until <= now
        if self._offered and not due:
            return False
        fits = self._room.fits(group.key, group.missing) is True
        if fits and not self._offered:
            self._offered = True
            self._until = min(self._until, now + round_s(self._limits, group))
        if not due:
            return False
        if fits:
            group.in_vain, group.reservations = group.in_vain + 1, 0
        patience_s = self._limits.reserve_after_s * 2 ** min(group.in_vain, _IN_VAIN)
        self._wait(group, now + max(patience_s, self._duration_s(group)))
        self.holder = None
        return True

    def _duration_s(self, group: TrackedGang) -> float:
        doubled = 0 if group.in_vain >= self._limits.stuck_after else group.reservations - 1
        return float(self._limits.reserve_after_s * 2 ** min(max(doubled, 0), 20))

    def _wait(self, group: TrackedGang, at: float) -> None:
        self._waiting.set(group, at, plugin.queue_key(group.info()))
