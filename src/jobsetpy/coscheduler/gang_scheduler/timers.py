"""Moments at which something is due; each costs O(log n), however many there are."""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """At most one moment for each key."""

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, Any, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        """Whether there is a moment for it."""
        return key in self._at

    def set(self, key: K, at: float, order: Any = ()) -> None:
        """Set or move a moment.

        Args:
            key: for what.
            at: when.
            order: which of two is first at the same time.
        """
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, order, self._count, key))
        if len(self._heap) > 64 + 4 * len(self._at):  # most of them were moved
            self._heap = [each for each in self._heap if self._at.get(each[3]) == each[0]]
            heapq.heapify(self._heap)

    def drop(self, key: K) -> None:
        """Forget it, if it is there."""
        self._at.pop(key, None)

    def first(self) -> float | None:
        """The first moment of all."""
        heap = self._heap
        while heap and self._at.get(heap[0][3]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> K | None:
        """Take out what has been due for the longest; ``None`` if nothing is due."""
        first = self.first()
        if first is None or first > now:
            return None
        key = heapq.heappop(self._heap)[3]
        del self._at[key]
        return key
