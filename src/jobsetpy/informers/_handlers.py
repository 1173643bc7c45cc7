"""Handlers of an informer, and the delivery of changes to them."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from jobsetpy.informers._store import Store

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Handler(Protocol[T_contra]):
    """Callbacks for changes, called after the store has them.

    Called from the event loop: must not block and must not raise. An exception is a programming
    error and ends the informer's ``run``, and with it the process.
    """

    def on_add(self, obj: T_contra, *, initial: bool) -> None:
        """A new object; ``initial`` if it existed when the handler was added."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """An object's state changed; states in between may have been skipped."""

    def on_delete(self, obj: T_contra, *, final_state_known: bool) -> None:
        """An object is gone.

        Args:
            obj: the last delivered state, so that a handler that counted it can subtract it. The
                server's final state of the object may never have been delivered.
            final_state_known: true if the deletion itself was seen; false if the object was missing
                from a list.
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
        """True once the handler was called with all objects of the first list.

        The store is synced earlier: handlers are called afterwards, in slices.
        """
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until ``has_synced``."""
        await self._synced.wait()

    def remove(self) -> None:
        """Stop calling the handler; idempotent."""
        self._active = False


class HandlerSet(Generic[T]):
    """The handlers of one informer.

    The changes of a list are delivered to the handlers that were registered when the list was
    complete: a handler that joins during delivery has all present objects replayed instead, and
    must not receive them twice.

    Args:
        lists: number of first lists: one, or one per namespace.
    """

    __slots__ = ("_announced", "_first", "_lists", "_members", "everybody", "synced")

    def __init__(self, lists: int = 1) -> None:
        self._members: tuple[Registration, ...] = ()
        self.everybody: Audience[T] = Audience(())
        """Receivers of watch events: all handlers."""
        self._announced = False
        self._first: tuple[Registration, ...] = ()
        self._lists = lists
        self.synced = asyncio.Event()
        """Set when the first list was delivered to all handlers registered at its end."""

    def join(self, handler: Handler[T], store: Store[T]) -> Registration:
        """Add a handler; if delivery of the first list has begun, replay all objects to it.

        A handler added earlier takes part in that delivery, even if the store is already synced.
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
        """Return the receivers of the changes of a list, once all first lists are complete.

        Args:
            initial: true for a first list; ``end_announcement`` has to follow.
        """
        if not initial:
            return self.everybody
        if not self._announced:
            self._announced, self._first = True, self._members
        return Audience(self._first)

    def end_announcement(self) -> None:
        """Record that the changes of one of the first lists were delivered."""
        self._lists -= 1
        if self._lists:
            return
        for member in self._first:
            member._synced.set()  # noqa: SLF001 - as above
        self._first = ()
        self.synced.set()


class Audience(Generic[T]):
    """Handlers that receive the same changes."""

    __slots__ = ("_members",)

    def __init__(self, members: tuple[Registration, ...]) -> None:
        self._members = members

    def _listeners(self) -> list[Handler[T]]:
        return [member._handler for member in self._members if member._active]  # noqa: SLF001 - as above

    def added(self, obj: T, *, initial: bool) -> None:
        """Deliver a new object."""
        for handler in self._listeners():
            handler.on_add(obj, initial=initial)

    def updated(self, old: T, new: T) -> None:
        """Deliver a changed object."""
        for handler in self._listeners():
            handler.on_update(old, new)

    def deleted(self, obj: T, *, final_state_known: bool) -> None:
        """Deliver the deletion of an object."""
        for handler in self._listeners():
            handler.on_delete(obj, final_state_known=final_state_known)
