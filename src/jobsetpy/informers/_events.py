"""Events of a watch: one protocol for the informers and for the agent.

A consumer that keeps a mapping of objects is always correct if it follows five rules:

* ``ListStarted``: begin a new, empty mapping in addition to the old one. A second ``ListStarted``
  before ``ListCompleted`` means that the list was restarted: discard the unfinished mapping.
* ``Listed``: put the object into the new mapping.
* ``Unreadable``: copy the object unchanged from the old mapping, if it is there.
* ``ListCompleted``: the new mapping replaces the old one; objects missing from it are gone.
* ``Applied`` and ``Deleted``: change the current mapping, or the new one during a list (that
  happens only in streaming lists).

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Identified(Protocol):
    """Metadata that informers read of every object."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class ListStarted(msgspec.Struct, frozen=True):
    """A complete list begins; the current state stays valid until ``ListCompleted``.

    ``rewound``: the list is older than what was delivered before, because etcd was restored from a
    backup. Own writes since the backup are lost, and a resourceVersion that is known may belong to
    another state of the object.
    """

    rewound: bool = False


class Listed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object of the list in progress."""

    obj: T


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An object of the list in progress that does not fit the model.

    The object exists: a consumer that treated it as deleted would undo the work done for it.
    ``uid`` is "" if it could not be read; a known object of this name with another uid is deleted.
    """

    namespace: str
    name: str
    uid: str = ""


class ListCompleted(msgspec.Struct, frozen=True):
    """The list is complete as of ``resource_version``; objects that were not listed are gone."""

    resource_version: str


class Applied(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was created or changed, or entered the selector's scope."""

    obj: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was deleted, or left the selector's scope.

    When ``final_state_known`` is false, the final state was not seen: ``obj`` is the last known
    state, or (from a watch, if the server's JSON did not fit the model) the identity alone.
    """

    obj: T
    final_state_known: bool = True


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to ``resource_version`` has been delivered."""

    resource_version: str


WatchEvent: TypeAlias = (
    ListStarted | Listed[T] | Unreadable | ListCompleted | Applied[T] | Deleted[T] | Bookmark
)
