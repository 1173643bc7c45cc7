"""Storage of the fake server: objects, one global resourceVersion, and the history of changes.

It takes the place of etcd and the watch cache of a real API server. Everything is synchronous and
therefore atomic on the event loop. Stored objects are never changed in place: each write stores a
new one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs
import msgspec

from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver._fields import Claims
from jobsetpy.testing.apiserver._kinds import Json, Kind

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_HISTORY_LIMIT = 20_000
"""Number of changes of each kind that are kept for watches."""


class Version:
    """One state of one object; its JSON text is encoded once, on demand."""

    __slots__ = ("_bare", "kind", "obj")

    def __init__(self, kind: Kind, obj: Json) -> None:
        self.kind = kind
        self.obj = obj
        self._bare: bytes | None = None

    @property
    def bare(self) -> bytes:
        """JSON as an item of a list; for built-in kinds without ``kind`` and ``apiVersion``."""
        if self._bare is None:
            obj: Mapping[str, Any] = self.obj
            if self.kind.builtin:
                obj = {k: v for k, v in obj.items() if k not in {"kind", "apiVersion"}}
            self._bare = msgspec.json.encode(obj)
        return self._bare

    @property
    def raw(self) -> bytes:
        """JSON of the whole object."""
        if not self.kind.builtin:
            return self.bare
        info = self.kind.info
        head = f'{{"kind":"{info.kind}","apiVersion":"{info.api_version}",'
        return head.encode() + self.bare[1:]


@attrs.frozen(eq=False)
class Change:
    """One entry of the history; ``old`` is ``None`` for creations.

    ``new`` of a deletion is the object's last state under the deletion's own resourceVersion.
    """

    version: int
    type: EventType
    key: ObjectKey
    new: Version
    old: Version | None


class Collection:
    """All objects of one kind, and their changes since ``floor``.

    ``lost`` is the version of the latest change that is no longer kept: a client that has seen it
    has missed nothing, even if it is below ``floor``.
    """

    def __init__(self, kind: Kind, floor: int) -> None:
        self.kind = kind
        self.objects: dict[ObjectKey, Version] = {}
        self.floor = floor
        self.lost = 0
        self._history: list[Change] = []
        self.watchers: set[asyncio.Event] = set()

    def get(self, key: ObjectKey) -> Json | None:
        """Return the current object; callers must not change it."""
        found = self.objects.get(key)
        return None if found is None else found.obj

    def since(self, version: int) -> list[Change]:
        """Return the changes after ``version``, oldest first; the caller checks ``floor`` first."""
        at = bisect_right(self._history, version, key=lambda change: change.version)
        return self._history[at:]

    def snapshot(self, version: int) -> dict[ObjectKey, Version]:
        """Return the objects as they were at ``version`` (not below ``floor``)."""
        objects = dict(self.objects)
        for change in reversed(self.since(version)):
            if change.old is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.old
        return objects

    def record(self, change: Change) -> None:
        """Append to the history, dropping the oldest entries beyond its limit."""
        self._history.append(change)
        if len(self._history) > _HISTORY_LIMIT + _HISTORY_LIMIT // 4:
            self.floor = self.lost = self._history[-_HISTORY_LIMIT - 1].version
            del self._history[:-_HISTORY_LIMIT]
        self.wake()

    def forget(self, version: int) -> None:
        """Make every resourceVersion below ``version`` too old."""
        kept = self.since(version)
        if len(kept) < len(self._history):
            self.lost = self._history[-len(kept) - 1].version
        self._history = kept
        self.floor = max(self.floor, version)

    def wake(self) -> None:
        """Wake every open watch."""
        for watcher in self.watchers:
            watcher.set()


class Storage:
    """All collections, and their common version counter.

    Args:
        on_change: called with every change, while it is made.
    """

    def __init__(self, on_change: Callable[[Collection, Change], None]) -> None:
        # The version before the first write is above 1, so that "1" is old as on any real server.
        self.version = 100
        self._on_change = on_change
        self._collections: dict[tuple[str, str], Collection] = {}
        self._dependents: dict[str, dict[tuple[Collection, ObjectKey], None]] = {}
        self._uids: dict[str, tuple[Collection, ObjectKey]] = {}
        #: Latest configurations of server-side apply, by the object's uid.
        self.claims: dict[str, Claims] = {}

    def register(self, kind: Kind, *, floor: int | None = None) -> Collection:
        """Add a kind; for watches from before this moment, the resourceVersion is too old."""
        key = (kind.info.group, kind.info.plural)
        present = self._collections.get(key)
        if present is not None:
            present.kind = kind
            return present
        made = Collection(kind, self.version if floor is None else floor)
        self._collections[key] = made
        return made

    def unregister(self, group: str, plural: str) -> None:
        """Delete all objects of a kind, and the kind."""
        collection = self._collections[group, plural]
        for key in tuple(collection.objects):
            self.remove(collection, key)
        del self._collections[group, plural]

    def find(self, group: str, plural: str) -> Collection | None:
        """Return the collection of a resource; ``None`` if it is unknown."""
        return self._collections.get((group, plural))

    def __iter__(self) -> Iterator[Collection]:
        return iter(self._collections.values())

    def put(self, collection: Collection, key: ObjectKey, obj: Json) -> Version:
        """Store ``obj``, whose metadata must not be shared, under the next resourceVersion."""
        old = collection.objects.get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        new = Version(collection.kind, obj)
        collection.objects[key] = new
        place = (collection, key)
        self._uids[obj["metadata"]["uid"]] = place
        self._link(place, old, new)
        kind: EventType = "ADDED" if old is None else "MODIFIED"
        self._publish(collection, Change(self.version, kind, key, new, old))
        return new

    def remove(self, collection: Collection, key: ObjectKey) -> Version:
        """Delete an object; the DELETED event has its stored state under a new version."""
        old = collection.objects.pop(key)
        self.version += 1
        obj = dict(old.obj)
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.version)}
        new = Version(collection.kind, obj)
        self._uids.pop(obj["metadata"]["uid"], None)
        self.claims.pop(obj["metadata"]["uid"], None)
        self._link((collection, key), old, None)
        self._publish(collection, Change(self.version, "DELETED", key, new, old))
        return new

    def compact(self) -> None:
        """Drop all history: every older resourceVersion is too old from now on."""
        for collection in self:
            collection.forget(self.version)

    def alive(self, uid: str) -> tuple[Collection, ObjectKey] | None:
        """Return the place of the object with that uid; ``None`` if it is gone."""
        return self._uids.get(uid)

    def dependents(self, uid: str) -> list[tuple[Collection, ObjectKey]]:
        """Return the places of the objects with an owner reference to ``uid``."""
        return list(self._dependents.get(uid, ()))

    def _publish(self, collection: Collection, change: Change) -> None:
        collection.record(change)
        self._on_change(collection, change)

    def _link(
        self, place: tuple[Collection, ObjectKey], old: Version | None, new: Version | None
    ) -> None:
        before = _owner_uids(old.obj) if old is not None else set()
        after = _owner_uids(new.obj) if new is not None else set()
        for uid in before - after:
            places = self._dependents.get(uid, {})
            places.pop(place, None)
            if not places:
                self._dependents.pop(uid, None)
        for uid in after - before:
            self._dependents.setdefault(uid, {})[place] = None


def _owner_uids(obj: Mapping[str, Any]) -> set[str]:
    return {ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ()}
