"""Event of an object in a cache."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)


class Event(msgspec.Struct, Generic[T_co], frozen=True):
    """A change in a cache: an add has no ``old``, a delete no ``new``, an update has both.

    Each handler of thousands of pods gets one for each change, and a struct is created in a third
    of the time of an attrs class.

    Attributes:
        old: the object before the event; for a delete, its last known state.
        new: the object after the event.
        initial: an add of an object that existed before: in the informer's first list, or when
            the controller started to watch.
    """

    old: T_co | None
    new: T_co | None
    initial: bool = False

    @property
    def obj(self) -> T_co:
        """The new object; for a delete, the old one."""
        obj = self.old if self.new is None else self.new
        assert obj is not None, "an event has an object"
        return obj

    @property
    def deleted(self) -> bool:
        """True if the object is gone."""
        return self.new is None

    @property
    def is_update(self) -> bool:
        """True if the object existed before and still does."""
        return self.old is not None and self.new is not None
