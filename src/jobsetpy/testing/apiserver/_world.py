"""Fake cluster without HTTP: tests use it to create objects and to check the outcome."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api.meta import ObjectKey, ResourceInfo
from jobsetpy.testing.apiserver import _patches, _selectors
from jobsetpy.testing.apiserver._admission import Handler
from jobsetpy.testing.apiserver._definitions import DEFINITIONS, kind_of
from jobsetpy.testing.apiserver._dispatch import Dispatcher
from jobsetpy.testing.apiserver._faults import Faults
from jobsetpy.testing.apiserver._garbage import GarbageCollector
from jobsetpy.testing.apiserver._kinds import BUILTIN, Json, Kind
from jobsetpy.testing.apiserver._memory import MemoryTransport
from jobsetpy.testing.apiserver._registry import DeleteOptions, Registry
from jobsetpy.testing.apiserver._requests import RequestLog
from jobsetpy.testing.apiserver._storage import Change, Collection, Storage
from jobsetpy.testing.apiserver._writes import WriteOptions


class World:
    """Objects of a fake cluster, changed by the API server's rules.

    ``what`` is a kind by its plural (``pods``; ``jobs.batch`` if that is ambiguous), by a wire
    class with a ``RESOURCE``, or by its ``ResourceInfo``. Objects are passed and returned as plain
    JSON data, always as copies. Refusals raise ``StatusError`` with the response that a client
    would get. ``default``, ``kube-system`` and ``kube-public`` exist.

    Args:
        clock: clock for timestamps.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._storage = Storage(self._changed)
        self._registry = Registry(self._storage, clock or LoopClock())
        self._garbage = GarbageCollector(self._registry)
        self._dispatcher = Dispatcher(self._registry, self._settle)
        self.faults: Faults = self._dispatcher.faults
        """Fault rules."""
        self.requests: RequestLog = self._dispatcher.requests
        """Requests of clients."""
        self._collects = False
        for kind in (*BUILTIN, DEFINITIONS):
            self._storage.register(kind, floor=0)
        for name in ("default", "kube-system", "kube-public"):
            self.add_namespace(name)

    # -- settings ----------------------------------------------------------------------------

    def register(
        self,
        what: ResourceInfo | type[Any],
        *,
        status: bool = True,
    ) -> None:
        """Add a custom kind, in short; ``create("customresourcedefinitions", ...)`` works too.

        Args:
            what: the resource, or a wire class of it.
            status: ``/status`` is a separate subresource.
        """
        info: ResourceInfo = what if isinstance(what, ResourceInfo) else what.RESOURCE
        self._storage.register(Kind(info, status=status, builtin=False, unconditional_update=False))

    @property
    def garbage_collect(self) -> bool:
        """Follow owner references after each write; initially off.

        While it is off, foreground deletions wait for a test to remove their finalizer.
        """
        return self._collects

    @garbage_collect.setter
    def garbage_collect(self, on: bool) -> None:
        self._collects = on
        if on:
            self._garbage.scan()
            self._garbage.collect()

    @property
    def graceful_pods(self) -> bool:
        """Keep a pod on a node after its DELETE until one with ``gracePeriodSeconds=0``.

        Initially off: pods are removed immediately.
        """
        return self._registry.graceful_pods

    @graceful_pods.setter
    def graceful_pods(self, on: bool) -> None:
        self._registry.graceful_pods = on

    @property
    def resource_version(self) -> str:
        """Version of the latest write."""
        return str(self._storage.version)

    # -- objects -----------------------------------------------------------------------------

    def add_namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace unless it exists."""
        if self.get("namespaces", name) is None:
            self.create("namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})

    def create(self, what: Any, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        """Create an object in ``namespace``, or in its own namespace, or in ``default``."""
        collection = self._collection(what)
        info = collection.kind.info
        namespace = namespace or body.get("metadata", {}).get("namespace") or "default"
        full = {"apiVersion": info.api_version, "kind": info.kind, **body}
        made = self._registry.create(
            collection, namespace if info.namespaced else "", full, WriteOptions()
        )
        return self._settled(made)

    def get(self, what: Any, name: str, *, namespace: str = "default") -> Json | None:
        """Return the object, or ``None``."""
        collection = self._collection(what)
        return copy.deepcopy(collection.get(self._key(collection, namespace, name)))

    def list(self, what: Any, *, namespace: str = "", labels: str = "") -> list[Json]:
        """Return all objects of a kind by namespace and name; ``labels`` is a label selector."""
        matches = _selectors.label_selector(labels)
        found = self._collection(what).objects
        return [
            copy.deepcopy(state.obj)
            for key, state in sorted(found.items(), key=lambda item: item[0])
            if (not namespace or key.namespace == namespace) and matches(state.obj)
        ]

    def patch(
        self,
        what: Any,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str = "default",
        subresource: str = "",
    ) -> Json:
        """Apply a JSON merge patch."""
        collection = self._collection(what)
        done = self._registry.patch(
            collection,
            self._key(collection, namespace, name),
            lambda obj: _patches.merge_patch(obj, patch),
            WriteOptions(subresource),
        )
        return self._settled(done)

    def set_status(
        self, what: Any, name: str, *, namespace: str = "default", **status: Any
    ) -> Json:
        """Merge fields (by their wire names) into the status."""
        return self.patch(what, name, {"status": status}, namespace=namespace, subresource="status")

    def delete(
        self,
        what: Any,
        name: str,
        *,
        namespace: str = "default",
        propagation: str | None = "Background",
    ) -> None:
        """Delete an object; with finalizers it stays, marked as deleted."""
        collection = self._collection(what)
        key = self._key(collection, namespace, name)
        self._registry.delete(collection, key, DeleteOptions(propagation))
        self._settle()

    def expire(self) -> None:
        """Drop all history: every resourceVersion before now is too old (410) from now on."""
        self._storage.compact()

    def serve_webhooks(self, service: str, target: str | Handler) -> None:
        """Set the location of a service's webhooks, for configurations that name it.

        Webhooks are called for writes of clients; a test's own ``create`` and the like bypass
        them. ``matchConditions`` are not evaluated.

        Args:
            service: ``namespace/name``.
            target: its URL, ``https://127.0.0.1:9443``, or ``async def handler(path, review)``
                that returns the AdmissionReview with its response.
        """
        self._dispatcher.admission.services[service] = target

    def transport(self, *, user_agent: str = "memory") -> MemoryTransport:
        """Return a client transport that is connected to this world, without sockets."""
        return MemoryTransport(self._dispatcher, user_agent=user_agent)

    # -- for the server ----------------------------------------------------------------------

    def _collection(self, what: Any) -> Collection:
        if isinstance(what, str):
            plural, _, group = what.partition(".")
            for collection in self._storage:
                info = collection.kind.info
                if info.plural == plural and group in {"", info.group}:
                    return collection
        else:
            info = what if isinstance(what, ResourceInfo) else what.RESOURCE
            found = self._storage.find(info.group, info.plural)
            if found is not None:
                return found
        raise LookupError(f"the fake server has no such kind: {what}; register it first")

    @staticmethod
    def _key(collection: Collection, namespace: str, name: str) -> ObjectKey:
        return ObjectKey(namespace if collection.kind.info.namespaced else "", name)

    def _changed(self, collection: Collection, change: Change) -> None:
        if collection.kind is DEFINITIONS:
            self._defined(change)
        if self._collects:
            self._garbage.note(collection, change)

    def _defined(self, change: Change) -> None:
        """Handle the creation, update or deletion of a CustomResourceDefinition."""
        if change.type != "DELETED":
            kind = kind_of(change.new.obj)
            if kind is not None:
                self._storage.register(kind)
            return
        spec = change.new.obj["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        if self._storage.find(group, plural) is not None:
            self._storage.unregister(group, plural)
            self.faults.end_watches(resource=plural)

    def _settle(self) -> None:
        if self._collects:
            self._garbage.collect()

    def _settled(self, obj: Json) -> Json:
        self._settle()
        return copy.deepcopy(obj)
