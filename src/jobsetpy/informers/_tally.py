"""Running tallies: an aggregate for each key, kept up to date by each event in O(1).

A reconciler that needs the number of pods per epoch of a JobSet must not iterate over all pods at
each pod event: for n pods that is O(n²) in one restart of a JobSet. A tally is a histogram that
each event changes by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


@attrs.frozen
class Tally(Generic[T, K, V]):
    """A histogram for each key: the number of objects per value.

    Args:
        name: unique within a store.
        contribute: returns the key and value of an object, or ``None`` if it does not count. Must
            depend on the object alone. An object for which it raises does not count.
    """

    name: str
    contribute: Callable[[T], tuple[K, V] | None]


class TallyView(Mapping[V, int]):
    """The histogram of one key: value → count, without zeros. Read-only and live.

    It stays live when the key's last object is removed and another one is added, so it may be kept.
    Reading one count is O(1); ``max(view)`` iterates over the distinct values.
    """

    __slots__ = ("_counts", "_key")

    def __init__(self, counts: Mapping[Any, Mapping[V, int]], key: Hashable) -> None:
        self._counts = counts
        self._key = key

    def _now(self) -> Mapping[V, int]:
        return self._counts.get(self._key, _NOTHING)

    def __getitem__(self, value: V) -> int:
        return self._now()[value]

    def __iter__(self) -> Iterator[V]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __contains__(self, value: object) -> bool:
        return value in self._now()

    def __repr__(self) -> str:
        """Key and counts as they are now."""
        return f"TallyView({self._key!r}: {dict(self._now())!r})"


_NOTHING: Mapping[Any, int] = {}


class TallyTable(Generic[T]):
    """One tally's counts: key → value → count."""

    __slots__ = ("counts", "declared", "failed")

    def __init__(self, tally: Tally[T, Any, Any]) -> None:
        self.declared = tally
        self.counts: dict[Any, dict[Any, int]] = {}
        self.failed: set[tuple[str, str]] = set()

    @property
    def title(self) -> str:
        """Name of the tally in messages."""
        return f"tally {self.declared.name!r}"

    def of(self, obj: T | None) -> tuple[Any, Any] | None:
        """Return the key and value of an object. Raises what ``contribute`` raises."""
        if obj is None:
            return None
        part: Any = self.declared.contribute(obj)  # users' code: types are not checked
        if part is not None:
            hash(part)  # an unhashable key must fail here, before anything is changed
            if len(part) != 2:
                raise TypeError(f"a tally needs a key and a value, not {part!r}")
        return part  # type: ignore[no-any-return] # checked

    def nothing(self) -> None:
        """Return the contribution of an object for which the function fails: none."""

    def forget(self, identity: tuple[str, str]) -> None:
        """Do nothing: a tally does not record which objects were counted."""

    def change(
        self,
        identity: tuple[str, str],  # noqa: ARG002 - as of an index
        before: tuple[Any, Any] | None,
        after: tuple[Any, Any] | None,
        obj: T | None,  # noqa: ARG002 - as of an index
    ) -> None:
        """Subtract one contribution and add another; cannot fail."""
        if before == after:
            return
        if before is not None:
            key, value = before
            # A function that depends on more than the object may name another pair now.
            values = self.counts.get(key, {})
            left = values.get(value, 0) - 1
            if left > 0:
                values[value] = left
            elif left == 0:
                del values[value]
                if not values:
                    del self.counts[key]
        if after is not None:
            key, value = after
            values = self.counts.setdefault(key, {})
            values[value] = values.get(value, 0) + 1
