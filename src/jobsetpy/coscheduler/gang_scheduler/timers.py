"""Timers by key, at a cost of O(log n) each."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")


def earliest(*times: float | None) -> float | None:
    """Return the earliest of some times; ``None`` without any."""
    return min((time for time in times if time is not None), default=None)


class Timers(Generic[K]):
    """At most one due time for each key."""

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, Any, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        """Return whether a time is set for the key."""
        return key in self._at

    def set(self, key: K, at: float | None, order: Any = ()) -> None:
        """Set or change the time of a key.

        Args:
            key: key of the timer.
            at: due time; ``None`` removes it.
            order: sort key for equal times.
        """
        if at is None:
            self.drop(key)
        if at is None or self._at.get(key) == at:
            return
        self._at[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, order, self._count, key))
        if len(self._heap) > 64 + 4 * len(self._at):  # most of them were changed
            self._heap = [each for each in self._heap if self._at.get(each[3]) == each[0]]
            heapq.heapify(self._heap)

    def drop(self, key: K) -> None:
        """Remove the time of a key, if there is one."""
        self._at.pop(key, None)

    def first(self) -> float | None:
        """Return the earliest time."""
        heap = self._heap
        while heap and self._at.get(heap[0][3]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that are due, including those that become due meanwhile."""
        while (key := self.pop(now)) is not None:
            yield key

    def pop(self, now: float) -> K | None:
        """Remove and return the key that has been due longest; ``None`` if none is due."""
        first = self.first()
        if first is None or first > now:
            return None
        key = heapq.heappop(self._heap)[3]
        del self._at[key]
        return key
