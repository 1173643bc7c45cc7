"""Lanes: per scheduler, the gangs that wait behind their gates and those that are being placed.

Each scheduler has a queue of its own, so the order of gangs matters within its lane only. Pods that
name a scheduler which does not run delay only their own lane.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.order.ranking import Ranking

FRESH: Final = "fresh"
STUCK: Final = "stuck"
TRIED: Final = "tried"
"""Places of gangs that are being placed: rarely refused, often refused, and tried without capacity,
to trigger an autoscaler."""

_START: Final[tuple[float, ...]] = ()
_END: Final[tuple[float, ...]] = (float("inf"),)
"""Positions before and after all ranks in the queue."""


class Lane:
    """Gangs whose pods name the same scheduler, or the same set of schedulers.

    The queue is scanned once after each growth of capacity; afterwards only gangs that have changed
    are checked again.
    """

    def __init__(self, scheduler: str) -> None:
        self.scheduler = scheduler
        self.members = 0
        self.queue: Ranking[TrackedGang] = Ranking()
        self.begun: Ranking[TrackedGang] = Ranking()
        self.whole: Ranking[TrackedGang] = Ranking()
        self.settling: TrackedGang | None = None
        self.settle_by = 0.0
        self.places: Counter[str] = Counter()
        self._scanned: tuple[object, ...] = _START
        self._again: Ranking[TrackedGang] = Ranking()

    # -- the queue ----------------------------------------------------------------------------

    def dequeue(self, gang: TrackedGang) -> None:
        """Remove a gang from the queue."""
        for ranking in (self.queue, self.begun, self.whole, self._again):
            ranking.drop(gang)

    def rescan(self) -> None:
        """Check all gangs again."""
        self._scanned = _START
        self._again.clear()

    def recheck(self, gang: TrackedGang) -> None:
        """Check a gang again, if it was checked before."""
        key = gang.queue_key
        if gang in self.queue and not self._scanned < key:
            self._again.put(gang, key)

    def next_unchecked(self) -> TrackedGang | None:
        """Return the first gang that was not checked; it counts as checked now."""
        entry, again = self.queue.after(self._scanned), self._again.first()
        if again is not None:  # it is before all that were not scanned
            self._again.drop(again)
            return again
        self._scanned = _END if entry is None else entry[0]
        return None if entry is None else entry[1]

    # -- places -------------------------------------------------------------------------------

    def has_place(self, in_flight: int, stuck: int) -> bool:
        """Return whether another incomplete gang may be ungated.

        Stuck gangs beyond their limit take places of others, except for one: even with many gangs
        that can never be placed, others still get their turn.

        Args:
            in_flight: maximum number of gangs that were rarely refused.
            stuck: maximum number of gangs that were often refused.
        """
        excess = max(0, self.places[STUCK] - stuck)
        return self.places[FRESH] + min(excess, in_flight - 1) < in_flight
