"""What reconcilers remember of JobSets from one reconcile to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from jobsetpy.api.meta import ObjectKey

T = TypeVar("T")


class Memories(Generic[T]):
    """A frozen value for each JobSet; nothing that could not be lost.

    Plans return the next value. A value carries the UID of its JobSet, and the plan begins anew if
    the JobSet of that name is another one by now.

    Args:
        new: makes the value of a JobSet of which nothing is remembered.
    """

    __slots__ = ("_nothing", "_values")

    def __init__(self, new: Callable[[], T]) -> None:
        self._nothing = new()
        self._values: dict[ObjectKey, T] = {}

    def __len__(self) -> int:
        """How many JobSets are remembered."""
        return len(self._values)

    def __contains__(self, key: ObjectKey) -> bool:
        """Whether anything is remembered of a JobSet."""
        return key in self._values

    def of(self, key: ObjectKey) -> T:
        """What is remembered of a JobSet, or the value of one of which nothing is."""
        return self._values.get(key, self._nothing)

    def keep(self, key: ObjectKey, value: T | None) -> None:
        """Remember this and nothing else of a JobSet; ``None`` forgets it."""
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def forget(self, key: ObjectKey) -> None:
        """The JobSet is gone."""
        self._values.pop(key, None)
