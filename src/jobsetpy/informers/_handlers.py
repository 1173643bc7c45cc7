"""Who listens to an informer, and how far each has been told."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from jobsetpy.informers._store import Store

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Handler(Protocol[T_contra]):
    """Hears of each change after the store has it.

    Called from the event loop: must not block and must not raise. An exception is a programming
    error and ends the informer's ``run``, with it the process.
    """

    def on_add(self, obj: T_contra, *, initial: bool) -> None:
        """A new object; ``initial`` if it was there when the handler began to listen."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """An object's state changed; states in between may have been skipped."""

    def on_delete(self, obj: T_contra, *, final_state_known: bool) -> None:
        """An object is gone.

        Args:
            obj: the state that was told last; whoever has counted it can subtract it. What the
                server shows of a deleted object may never have been told.
            final_state_known: whether the deletion itself was seen; else a list lacked the object.
        """


class Registration:
    """A handler's membership in an informer."""

    __slots__ = ("_active", "_handler", "_synced")

    def __init__(self, handler: Handler[Any]) -> None:
        self._handler = handler
        self._active = True
        self._synced = asyncio.Event()

    @property
    def has_synced(self) -> bool:
        """Whether the handler has been told of all objects of the first list.

        The store is synced earlier: a handler is told afterwards, in slices.
        """
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until ``has_synced``."""
        await self._synced.wait()

    def remove(self) -> None:
        """Call the handler no more; doing so twice is harmless."""
        self._active = False


class HandlerSet(Generic[T]):
    """The handlers of one informer.

    Tells a list's changes to those who listened when the list was complete: whoever joins while
    they are being told has all present objects replayed instead, and must not hear them twice.

    Args:
        lists: how many first lists there are: one, or one of each namespace.
    """

    __slots__ = ("_announced", "_first", "_lists", "_members", "_synced", "everybody")

    def __init__(self, lists: int = 1) -> None:
        self._members: tuple[Registration, ...] = ()
        self.everybody: Audience[T] = Audience(())
        """Who is told of what has just happened."""
        self._announced = False
        self._first: tuple[Registration, ...] = ()
        self._lists = lists
        self._synced = asyncio.Event()

    @property
    def synced(self) -> asyncio.Event:
        """Set when the first list has been told to all who listened then."""
        return self._synced

    def join(self, handler: Handler[T], store: Store[T]) -> Registration:
        """Add a handler; if others have been told of the first list, it is told of all objects.

        One that comes before is told with them: a store may be synced for some time before.
        """
        registration = Registration(handler)
        if self._announced:
            for obj in store.list():
                handler.on_add(obj, initial=True)
            registration._synced.set()  # noqa: SLF001 - set here, read by the user
        members = (member for member in self._members if member._active)  # noqa: SLF001 - as above
        self._members = (*members, registration)
        self.everybody = Audience(self._members)
        return registration

    def begin_announcement(self, *, initial: bool) -> Audience[T]:
        """A list is complete, and so are all first ones; who is to be told what it changed.

        Args:
            initial: whether it is a first list; ``end_announcement`` has to follow.
        """
        if not initial:
            return self.everybody
        if not self._announced:
            self._announced, self._first = True, self._members
        return Audience(self._first)

    def end_announcement(self) -> None:
        """Everything in one of the first lists has been told."""
        self._lists -= 1
        if self._lists:
            return
        for member in self._first:
            member._synced.set()  # noqa: SLF001 - as above
        self._first = ()
        self._synced.set()


class Audience(Generic[T]):
    """Those who are told of the same changes."""

    __slots__ = ("_members",)

    def __init__(self, members: tuple[Registration, ...]) -> None:
        self._members = members

    def _listeners(self) -> list[Handler[T]]:
        return [member._handler for member in self._members if member._active]  # noqa: SLF001 - as above

    def added(self, obj: T, *, initial: bool) -> None:
        """Tell of a new object."""
        for handler in self._listeners():
            handler.on_add(obj, initial=initial)

    def updated(self, old: T, new: T) -> None:
        """Tell of a changed object."""
        for handler in self._listeners():
            handler.on_update(old, new)

    def deleted(self, obj: T, *, final_state_known: bool) -> None:
        """Tell of an object that is gone."""
        for handler in self._listeners():
            handler.on_delete(obj, final_state_known=final_state_known)
