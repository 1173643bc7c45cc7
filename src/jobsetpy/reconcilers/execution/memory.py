"""State that reconcilers keep for JobSets from one reconcile to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from jobsetpy.api.meta import ObjectKey

T = TypeVar("T")


class Memories(Generic[T]):
    """A frozen value for each JobSet, which may be lost.

    Plans return the next value. A value carries the UID of its JobSet, and the plan starts from a
    new value if the JobSet of that name is another one.

    Args:
        new: creates the value of a JobSet without one.
    """

    __slots__ = ("_nothing", "_values")

    def __init__(self, new: Callable[[], T]) -> None:
        self._nothing = new()
        self._values: dict[ObjectKey, T] = {}

    def __len__(self) -> int:
        """Return the number of JobSets with a value."""
        return len(self._values)

    def __contains__(self, key: ObjectKey) -> bool:
        """Return True if there is a value for a JobSet."""
        return key in self._values

    def of(self, key: ObjectKey) -> T:
        """Return the value of a JobSet, or a new one."""
        return self._values.get(key, self._nothing)

    def keep(self, key: ObjectKey, value: T | None) -> None:
        """Replace the value of a JobSet; ``None`` removes it."""
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
