"""What a watch tells its consumer: one event protocol for the informers and for the agent.

A consumer that keeps a mapping of objects is always right if it follows five rules:

* ``ListStarted``: begin a new, empty mapping beside the old one. A second ``ListStarted`` before
  ``ListCompleted`` means that the list began anew: throw the unfinished mapping away.
* ``Listed``: put the object into the new mapping.
* ``Unreadable``: take the object over from the old mapping, as it was, if it is there.
* ``ListCompleted``: the new mapping replaces the old one; what it lacks is gone.
* ``Applied`` and ``Deleted``: change the current mapping, or the new one while a list is going on
  (that happens only in streaming lists).

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Identified(Protocol):
    """The metadata the machinery reads of every object."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class ListStarted(msgspec.Struct, frozen=True):
    """A complete list begins; the current state stays valid until ``ListCompleted``."""


class Listed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object of the list that is going on."""

    obj: T


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An object of the list that is going on, which does not fit the model.

    It is there all the same: who takes it for gone would undo what has been done for it. ``uid`` is
    "" if it could not be read; an object of another one is another object, and gone indeed.
    """

    namespace: str
    name: str
    uid: str = ""


class ListCompleted(msgspec.Struct, frozen=True):
    """The list is complete as of ``resource_version``; whatever was not listed is gone."""

    resource_version: str


class Applied(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was created or changed, or came into the selector's scope."""

    obj: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object was deleted, or left the selector's scope.

    When ``final_state_known`` is false, the last state was not seen: ``obj`` is the last state that
    was, or (from a watch, if the server's JSON did not fit the model) holds the identity alone.
    """

    obj: T
    final_state_known: bool = True


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to ``resource_version`` has been delivered."""

    resource_version: str


WatchEvent: TypeAlias = (
    ListStarted | Listed[T] | Unreadable | ListCompleted | Applied[T] | Deleted[T] | Bookmark
)
