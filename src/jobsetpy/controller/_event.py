"""What happened to an object."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

T_co = TypeVar("T_co", covariant=True)


@attrs.frozen
class Event(Generic[T_co]):
    """A change in a cache: an add has no ``old``, a delete no ``new``, an update has both.

    Attributes:
        old: the object as it was at the event before, also of a delete.
        new: the object now.
        initial: an add of an object that was there before: in the informer's first list, or when
            the controller began to listen.
    """

    old: T_co | None
    new: T_co | None
    initial: bool = attrs.field(default=False, kw_only=True)

    @property
    def obj(self) -> T_co:
        """The new object; the old one of a delete."""
        obj = self.old if self.new is None else self.new
        assert obj is not None, "an event has an object"
        return obj

    @property
    def deleted(self) -> bool:
        """Whether the object is gone."""
        return self.new is None

    @property
    def is_update(self) -> bool:
        """Whether the object was there before and still is."""
        return self.old is not None and self.new is not None
