"""Lanes: the gangs of one scheduler that wait behind their gates, and those that it is placing.

Each scheduler has a queue of its own, so the order of gangs matters within its lane only. Pods that
name a scheduler which does not run hold up no lane but their own.
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
"""Places of gangs that are being placed: one that was not refused often, one that was, and one that
is tried without capacity, for the sake of an autoscaler."""


class Lane:
    """Gangs whose pods name the same scheduler, or the same several ones."""

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
        """Whether something is to be done, now or when the settling gang's time is over."""
        return self.may_ungate or self.resume is not None or self.settling is not None

    def enqueue(self, group: TrackedGang, key: plugin.QueueKey | None) -> None:
        """Keep a gang at its place in the queue; ``None`` takes it out. O(log gangs)."""
        if key == group.queued_as:
            return
        if group.queued_as is not None:
            del self.queue[bisect_left(self.queue, group.queued_as, key=lambda each: each[0])]
        group.queued_as = key
        if key is not None:
            insort(self.queue, (key, group), key=lambda each: each[0])

    def count_place(self, group: TrackedGang, place: str) -> None:
        """Count the place that a gang takes; "" for none."""
        if group.place != place:
            self.places[group.place] -= 1
            self.places[place] += 1
            group.place = place

    def has_place(self, in_flight: int, stuck: int) -> bool:
        """Whether another incomplete gang may be ungated.

        Stuck gangs beyond their bound take places of others, but for one: however many gangs there
        are that can never be placed, others still get their turn.

        Args:
            in_flight: maximum of gangs that were not refused often.
            stuck: maximum of gangs that were.
        """
        excess = max(0, self.places[STUCK] - stuck)
        return self.places[FRESH] + min(excess, in_flight - 1) < in_flight

    def remove(self, group: TrackedGang) -> None:
        """Forget a gang."""
        self.enqueue(group, None)
        self.count_place(group, "")
        self.begun.pop(group.key, None)
        self.whole.pop(group.key, None)
        self.members -= 1
        if self.settling is group:
            self.settling = None
