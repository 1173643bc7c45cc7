"""Delayed items: a heap of deadlines, independent of clocks and event loops.

The queue around it owns the timer; this class only answers "which items are due at time t?", so
that its rules can be tested without waiting.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_COMPACT_ABOVE = 64
"""Number of outdated heap entries below which the heap is not rebuilt."""


class DelayHeap(Generic[K]):
    """A set of items, each with one deadline and one priority.

    * An item put twice keeps the *earlier* deadline and the *higher* priority.
    * Items are returned in the order of their deadlines, and for equal ones of their insertion.
    * ``put`` and ``pop_due`` are O(log n) per item; outdated entries never outnumber live ones by
      more than a constant, so memory is bounded by the number of waiting items.
    """

    __slots__ = ("_heap", "_sequence", "_waiting")

    def __init__(self) -> None:
        # An entry is live if its sequence number is the one in _waiting.
        self._heap: list[tuple[float, int, K]] = []
        self._waiting: dict[K, tuple[float, int, int]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        """Number of delayed items."""
        return len(self._waiting)

    def __contains__(self, item: object) -> bool:
        """Return whether ``item`` is delayed."""
        return item in self._waiting

    def put(self, item: K, due: float, priority: int) -> None:
        """Delay ``item`` until ``due``, or until its present deadline if that is earlier."""
        known = self._waiting.get(item)
        if known is not None:
            old_due, sequence, old_priority = known
            priority = max(priority, old_priority)
            if due >= old_due:
                self._waiting[item] = (old_due, sequence, priority)
                return
        self._sequence += 1
        self._waiting[item] = (due, self._sequence, priority)
        heapq.heappush(self._heap, (due, self._sequence, item))
        if len(self._heap) > 2 * len(self._waiting) + _COMPACT_ABOVE:
            self._heap = [(due, seq, item) for item, (due, seq, _) in self._waiting.items()]
            heapq.heapify(self._heap)

    def next_due(self) -> float | None:
        """Return the earliest deadline, or ``None`` if no item is delayed."""
        heap = self._heap
        while heap:
            due, sequence, item = heap[0]
            known = self._waiting.get(item)
            if known is not None and known[1] == sequence:
                return due
            heapq.heappop(heap)
        return None

    def pop_due(self, now: float) -> list[tuple[K, int]]:
        """Remove and return items (with priorities) whose deadline is ``now`` or earlier."""
        out: list[tuple[K, int]] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, sequence, item = heapq.heappop(heap)
            known = self._waiting.get(item)
            if known is not None and known[1] == sequence:
                del self._waiting[item]
                out.append((item, known[2]))
        return out

    def clear(self) -> None:
        """Remove all items."""
        self._heap.clear()
        self._waiting.clear()
