"""Timers by key, at a cost of O(log n) comparisons each."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import count
from typing import Any, TypeVar

from jobsetpy.coscheduler.gang_scheduler.ranking import Ranking

K = TypeVar("K", bound=Hashable)


def earliest(*times: float | None) -> float | None:
    """Return the earliest of some times; ``None`` without any."""
    return min((time for time in times if time is not None), default=None)


class Timers(Ranking[K]):
    """At most one due time for each key."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def at(self, key: K) -> float | None:
        """Return the time of a key; ``None`` if none is set."""
        rank = self._ranks.get(key)
        return None if rank is None else rank[0]

    def set(self, key: K, at: float | None, order: Any = ()) -> None:
        """Set or change the time of a key.

        Args:
            key: key of the timer.
            at: due time; ``None`` removes it.
            order: sort key for equal times.
        """
        if at is None:
            self.drop(key)
        elif at != self.at(key):
            self.put(key, (at, order, next(self._numbers)))

    def next_at(self) -> float | None:
        """Return the earliest time."""
        return self._order[0][0][0] if self._order else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that are due, including those that become due meanwhile."""
        while (key := self.pop(now)) is not None:
            yield key

    def pop(self, now: float) -> K | None:
        """Remove and return the key that has been due longest; ``None`` if none is due."""
        if not self._order or self._order[0][0][0] > now:
            return None
        key = self._order[0][1]
        self.drop(key)
        return key
