"""Keys in the order of their ranks."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_rank = itemgetter(0)


class Ranking(Generic[K]):
    """Keys sorted by rank; no two keys have the same rank. O(log n) comparisons per change."""

    def __init__(self) -> None:
        self._ranks: dict[K, Any] = {}
        self._order: list[tuple[Any, K]] = []

    def __contains__(self, key: object) -> bool:
        """Return whether the key has a rank."""
        return key in self._ranks

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._order)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in order; they must not be changed meanwhile."""
        return (key for _, key in self._order)

    def __reversed__(self) -> Iterator[K]:
        """Iterate in reversed order."""
        return (key for _, key in reversed(self._order))

    def put(self, key: K, rank: Any) -> None:
        """Set or change the rank of a key; ``None`` removes it."""
        before = self._ranks.get(key)
        if before == rank:
            return
        if before is not None:
            del self._order[bisect_left(self._order, before, key=_rank)]
            del self._ranks[key]
        if rank is not None:
            self._ranks[key] = rank
            insort(self._order, (rank, key), key=_rank)

    def drop(self, key: K) -> None:
        """Remove a key, if it is there."""
        if key in self._ranks:
            self.put(key, None)
