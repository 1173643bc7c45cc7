"""Timers by key, at a cost of O(log n) comparisons each."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar

from jobsetpy.coscheduler.gang_scheduler.ranking import Ranking

K = TypeVar("K", bound=Hashable)


def earliest(*times: float | None) -> float | None:
    """Return the earliest of some times; ``None`` without any."""
    return min((time for time in times if time is not None), default=None)


class Timers(Generic[K]):
    """At most one due time for each key."""

    def __init__(self) -> None:
        self._due: Ranking[K] = Ranking()
        self._numbers = count()

    def __contains__(self, key: K) -> bool:
        """Return whether a time is set for the key."""
        return key in self._due

    def at(self, key: K) -> float | None:
        """Return the time of a key; ``None`` if none is set."""
        due = self._due.rank(key)
        return None if due is None else float(due[0])

    def set(self, key: K, at: float | None, order: Any = ()) -> None:
        """Set or change the time of a key.

        Args:
            key: key of the timer.
            at: due time; ``None`` removes it.
            order: sort key for equal times.
        """
        if at != self.at(key):
            self._due.put(key, None if at is None else (at, order, next(self._numbers)))

    def drop(self, key: K) -> None:
        """Remove the time of a key, if there is one."""
        self._due.drop(key)

    def first(self) -> float | None:
        """Return the earliest time."""
        key = self._due.first()
        return None if key is None else self.at(key)

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that are due, including those that become due meanwhile."""
        while (key := self.pop(now)) is not None:
            yield key

    def pop(self, now: float) -> K | None:
        """Remove and return the key that has been due longest; ``None`` if none is due."""
        first = self.first()
        key = self._due.first() if first is not None and first <= now else None
        if key is not None:
            self._due.drop(key)
        return key
