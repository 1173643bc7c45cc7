"""From an object that changed to the requests that it causes.

An event handler is a function from an object to requests. It does no I/O and decides nothing. It
is called for the old and the new object of an update, so that an object that changes owners wakes
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from jobsetpy.api.meta import KubeObject, ObjectKey, ResourceInfo, key_of
from jobsetpy.controller._reconcile import Request

T = TypeVar("T")

EventHandler: TypeAlias = Callable[[T], Iterable[Request]]
"""Which requests a changed object causes. Must be quick and must not raise."""


class HasResource(Protocol):
    """A class that stands for a kind."""

    @property
    def RESOURCE(self) -> ResourceInfo: ...  # noqa: N802 - the class attribute's name


def enqueue_self(obj: KubeObject) -> Iterable[Request]:
    """The object itself."""
    return (Request(key_of(obj)),)


def enqueue_owner(owner: HasResource) -> EventHandler[Any]:
    """The controlling owner, if it is of ``owner``'s group and kind (the version may differ).

    The owner is looked for by its name in the object's namespace, or without a namespace if its
    kind is cluster-scoped. Objects need ``metadata.owner_references``.
    """
    group, kind, namespaced = (
        owner.RESOURCE.group,
        owner.RESOURCE.kind,
        owner.RESOURCE.namespaced,
    )

    def enqueue_controlling_owner(obj: Any) -> Iterable[Request]:
        metadata = obj.metadata
        for reference in metadata.owner_references:
            if not reference.controller:
                continue
            if reference.kind == kind and _group_of(reference.api_version) == group:
                namespace = metadata.namespace if namespaced else ""
                return (Request(ObjectKey(namespace, reference.name)),)
            return ()  # there is at most one controller
        return ()

    return enqueue_controlling_owner


def enqueue_mapped(map_: Callable[[T], Iterable[ObjectKey | Request]]) -> EventHandler[T]:
    """Whatever ``map_`` makes of the object: keys or requests, any number of them."""

    def enqueue_mapped_keys(obj: T) -> Iterable[Request]:
        return [Request(to) if isinstance(to, ObjectKey) else to for to in map_(obj)]

    return enqueue_mapped_keys


def _group_of(api_version: str) -> str:
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""
