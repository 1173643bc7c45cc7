"""Lanes: per scheduler, the gangs that wait behind their gates and those that are being placed.

Each scheduler has a queue of its own, so the order of gangs matters within its lane only. Pods that
name a scheduler which does not run delay only their own lane.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, Final

from jobsetpy.reconcilers.coscheduling import plugin

if TYPE_CHECKING:
    from jobsetpy.coscheduler.gang_scheduler.state import TrackedGang
    from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

FRESH: Final = "fresh"
STUCK: Final = "stuck"
TRIED: Final = "tried"
"""Places of gangs that are being placed: rarely refused, often refused, and tried without capacity,
to trigger an autoscaler."""


class Lane:
    """Gangs whose pods name the same scheduler, or the same set of schedulers."""

    def __init__(self, scheduler: str) -> None:
        self.scheduler = scheduler
        self.members = 0
        self.queue: list[tuple[plugin.QueueKey, TrackedGang]] = []
        self.resume: plugin.QueueKey | None = None
        self.may_ungate = False
        self.settling: TrackedGang | None = None
        self.begun: dict[PodGroupKey, TrackedGang] = {}
        self.whole: dict[PodGroupKey, TrackedGang] = {}
        self.places: Counter[str] = Counter()

    @property
    def is_active(self) -> bool:
        """Return whether the lane needs work, now or when the time of the settling gang is over."""
        return self.may_ungate or self.resume is not None or self.settling is not None

    def enqueue(self, group: TrackedGang, key: plugin.QueueKey | None) -> None:
        """Keep a gang at its place in the queue; ``None`` removes it. O(log gangs)."""
        if key == group.queued_as:
            return
        if group.queued_as is not None:
            del self.queue[bisect_left(self.queue, group.queued_as, key=lambda each: each[0])]
        group.queued_as = key
        if key is not None:
            insort(self.queue, (key, group), key=lambda each: each[0])

    def count_place(self, group: TrackedGang, place: str) -> None:
        """Record the place that a gang takes; "" for none."""
        if group.place != place:
            self.places[group.place] -= 1
            self.places[place] += 1
            group.place = place

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

    def remove(self, group: TrackedGang) -> None:
        """Remove a gang."""
        self.enqueue(group, None)
        self.count_place(group, "")
        self.begun.pop(group.key, None)
        self.whole.pop(group.key, None)
        self.members -= 1
        if self.settling is group:
            self.settling = None
