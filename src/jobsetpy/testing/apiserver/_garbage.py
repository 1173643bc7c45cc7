"""Fake garbage collector: follows owner references, immediately.

Rules: Kubernetes documentation, "Garbage Collection": cascading deletion in the background or in
the foreground, and orphaning. The real one acts a little later; this one, if enabled, before the
response to the request that triggers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver._kinds import Json
from jobsetpy.testing.apiserver._registry import DeleteOptions, Registry
from jobsetpy.testing.apiserver._storage import Change, Collection
from jobsetpy.testing.apiserver._writes import WriteOptions


class GarbageCollector:
    """Deletes objects without a living owner.

    Args:
        registry: owners and dependents, written as by any client.
    """

    def __init__(self, registry: Registry) -> None:
        self._storage = registry.storage
        self._registry = registry
        self._pending: deque[Callable[[], None]] = deque()

    def note(self, collection: Collection, change: Change) -> None:
        """Queue the checks that a change requires."""
        obj = change.new.obj
        uid = obj["metadata"]["uid"]
        if change.type == "DELETED":
            self._pending.append(partial(self._owner_gone, uid))
            for ref in obj["metadata"].get("ownerReferences") or ():
                self._pending.append(partial(self._recheck, ref["uid"]))
        else:
            self._pending.append(partial(self._recheck, uid))
            if change.type == "ADDED" and obj["metadata"].get("ownerReferences"):
                self._pending.append(partial(self._check_owners, collection, change.key))

    def collect(self) -> None:
        """Execute all queued checks, and those that follow from them."""
        while self._pending:
            self._pending.popleft()()

    def scan(self) -> None:
        """Queue checks of every object: for a collector that is enabled late."""
        for collection in self._storage:
            for key, found in collection.objects.items():
                uid = found.obj["metadata"]["uid"]
                self._pending.append(partial(self._recheck, uid))
                self._pending.append(partial(self._check_owners, collection, key))

    def _owner_gone(self, uid: str) -> None:
        for collection, key in self._storage.dependents(uid):
            self._check_owners(collection, key)

    def _check_owners(self, collection: Collection, key: ObjectKey) -> None:
        obj = collection.get(key)
        refs = obj["metadata"].get("ownerReferences") if obj is not None else None
        if not refs:
            return
        alive = [ref for ref in refs if self._storage.alive(ref["uid"]) is not None]
        if not alive:
            self._registry.delete(collection, key, DeleteOptions("Background"))
        elif len(alive) < len(refs):
            self._set(collection, key, {"ownerReferences": alive})

    def _recheck(self, uid: str) -> None:
        place = self._storage.alive(uid)
        if place is None:
            return
        collection, key = place
        obj = collection.get(key)
        if obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if "orphan" in finalizers:
            self._orphan(uid)
            self._drop_finalizer(collection, key, obj, "orphan")
        elif "foregroundDeletion" in finalizers:
            self._delete_dependents(uid)
            if not any(self._blocks(place, uid) for place in self._storage.dependents(uid)):
                self._drop_finalizer(collection, key, obj, "foregroundDeletion")

    def _delete_dependents(self, uid: str) -> None:
        for collection, key in self._storage.dependents(uid):
            obj = collection.get(key)
            if obj is None or "deletionTimestamp" in obj["metadata"]:
                continue
            others = [
                ref
                for ref in obj["metadata"]["ownerReferences"]
                if ref["uid"] != uid and self._storage.alive(ref["uid"]) is not None
            ]
            if others:
                self._set(collection, key, {"ownerReferences": others})
            else:
                self._registry.delete(collection, key, DeleteOptions("Foreground"))

    def _blocks(self, place: tuple[Collection, ObjectKey], uid: str) -> bool:
        collection, key = place
        obj = collection.get(key)
        refs: list[Mapping[str, Any]] = obj["metadata"]["ownerReferences"] if obj else []
        return any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs)

    def _orphan(self, uid: str) -> None:
        for collection, key in self._storage.dependents(uid):
            obj = collection.get(key)
            if obj is not None:
                kept = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
                self._set(collection, key, {"ownerReferences": kept})

    def _drop_finalizer(self, collection: Collection, key: ObjectKey, obj: Json, name: str) -> None:
        kept = [one for one in obj["metadata"]["finalizers"] if one != name]
        self._set(collection, key, {"finalizers": kept})

    def _set(self, collection: Collection, key: ObjectKey, meta: Json) -> None:
        def change(obj: Json) -> Json:
            return {**obj, "metadata": {**obj["metadata"], **meta}}

        self._registry.patch(collection, key, change, WriteOptions())
