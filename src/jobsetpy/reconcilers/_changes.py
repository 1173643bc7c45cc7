"""One shape for what an informer tells: the object before and the object now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeHandler(ABC, Generic[T]):
    """An informer's handler to which additions, changes and deletions are the same thing."""

    __slots__ = ()

    @abstractmethod
    def changed(self, old: T | None, new: T | None) -> None:
        """An object has changed; ``old`` is ``None`` if it is new, ``new`` if it is gone."""

    def on_add(self, obj: T, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        """It is new."""
        self.changed(None, obj)

    def on_update(self, old: T, new: T) -> None:
        """It is another one than before."""
        self.changed(old, new)

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """It is gone."""
        self.changed(obj, None)
