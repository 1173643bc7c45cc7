"""Event handlers: map an event to the requests that it causes.

An event handler is a function of an :class:`Event`. It does no I/O and decides nothing; it may keep
a ledger up to date. The handlers defined here use both the old and the new object of an update, so
that an object that changes owners enqueues both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from jobsetpy.api.meta import KubeObject, ObjectKey, ResourceInfo, key_of
from jobsetpy.api.reconcile import Request
from jobsetpy.controller._event import Event

T = TypeVar("T")

EventHandler: TypeAlias = Callable[[Event[T]], Iterable[Request]]
"""Function that returns the requests of an event. Must be fast and should not raise."""


class HasResource(Protocol):
    """Class that represents a kind."""

    @property
    def RESOURCE(self) -> ResourceInfo: ...  # noqa: N802 - the class attribute's name


def enqueue_self(event: Event[KubeObject]) -> Iterable[Request]:
    """Enqueue the object itself; its old and new state have the same key."""
    return (Request(key_of(event.obj)),)


def enqueue_owner(owner: HasResource) -> EventHandler[Any]:
    """Enqueue the controlling owner, if it is of ``owner``'s group and kind, in any version.

    The owner's key is its name in the object's namespace, or without a namespace if its kind is
    cluster-scoped. Objects need ``metadata.owner_references``.
    """
    group, kind, namespaced = (owner.RESOURCE.group, owner.RESOURCE.kind, owner.RESOURCE.namespaced)

    def owner_of(obj: Any) -> tuple[Request, ...]:
        metadata = obj.metadata
        for reference in metadata.owner_references:
            if not reference.controller:
                continue
            if reference.kind == kind and _group_of(reference.api_version) == group:
                namespace = metadata.namespace if namespaced else ""
                return (Request(ObjectKey(namespace, reference.name)),)
            return ()  # there is at most one controller
        return ()

    def controlling_owner(event: Event[Any]) -> Iterable[Request]:
        old, new = event.old, event.new
        if old is None or new is None:
            return owner_of(event.obj)
        if old.metadata.owner_references == new.metadata.owner_references:
            return owner_of(new)
        return owner_of(new) + owner_of(old)

    return controlling_owner


def enqueue_mapped(map_: Callable[[T], Iterable[ObjectKey | Request]]) -> EventHandler[T]:
    """Enqueue the keys or requests that ``map_`` returns for the new and the old object.

    If ``map_`` raises for one of the two, the requests of the other are still enqueued.
    """

    def enqueue_mapped_keys(event: Event[T]) -> Iterable[Request]:
        failure: Exception | None = None
        for obj in (event.new, event.old):
            if obj is None:
                continue
            try:
                for to in map_(obj):
                    yield Request(to) if isinstance(to, ObjectKey) else to
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
        if failure is not None:
            raise failure

    enqueue_mapped_keys.__qualname__ = getattr(map_, "__qualname__", repr(map_))
    return enqueue_mapped_keys


def _group_of(api_version: str) -> str:
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""
