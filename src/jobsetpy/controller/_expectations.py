"""Expectations: tracking of own writes that a lagging cache does not show yet.

A reconciler that has just created three Jobs and is called again before the informer shows them
would create them again. Expectations record, for each key, what was written and not yet
observed; until all of it is observed (or the wait times out), the reconciler returns without
acting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api.meta import KubeObject, ObjectKey
from jobsetpy.api.reconcile import Request
from jobsetpy.controller._event import Event
from jobsetpy.controller._handlers import EventHandler
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger

_Kind = Literal["creations", "deletions", "versions"]


@attrs.define
class _Expected:
    """Pending writes of one key: creations by name, deletions and versions by uid."""

    pending: dict[tuple[_Kind, str], int] = attrs.field(factory=dict)
    """The value is the expected version; 0 for creations and deletions."""
    until: float = 0.0

    def of(self, kind: _Kind) -> list[str]:
        """Return the first names or uids of one kind, for the log."""
        return sorted(name for each, name in self.pending if each == kind)[:10]


class Expectations:
    """Own writes that the cache does not show yet, by key of the object that caused them.

    Use one instance for each written kind, so that names cannot be mixed up. Announce creations
    and deletions *before* sending the request, since the event may arrive before the response;
    take back a failed request with the same ``observed_`` call that the event would have caused.
    All calls are O(1) for each name, uid or version.

    An expectation that is not met within ``ttl_s`` (an event can be missed for ever: created and
    deleted between two lists) is dropped with a warning, and the reconciler continues with the
    state of the cache. No event wakes it then, so it should be requeued after ``seconds_left``.

    ::

        if not self.expected.is_satisfied(key):
            return Result.requeue_after(timedelta(seconds=self.expected.seconds_left(key)))
        self.expected.expect_creations(key, [name])
        try:
            await client.create(...)
        except Exception:
            self.expected.observed_creation(key, name)
            raise

    Args:
        name: label of logs and metrics, such as ``jobset/jobs``.
        ttl_s: timeout after the last expectation of a key, in seconds.
        clock: time source.
    """

    __slots__ = ("_clock", "_expected", "_log", "_ttl_s", "name")

    def __init__(self, name: str, *, ttl_s: float = 300.0, clock: Clock | None = None) -> None:
        self.name = name
        self._ttl_s = ttl_s
        self._clock: Clock = clock or LoopClock()
        self._expected: dict[ObjectKey, _Expected] = {}
        self._log = get_logger("expectations")
        metrics.expectations_expired(name, 0)

    def __len__(self) -> int:
        """Number of keys with pending expectations."""
        return len(self._expected)

    def expect_creations(self, key: ObjectKey, names: Iterable[str]) -> None:
        """Announce that objects called ``names`` are about to be created because of ``key``."""
        self._expect(key, {("creations", name): 0 for name in names})

    def expect_deletions(self, key: ObjectKey, uids: Iterable[str]) -> None:
        """Announce that objects with ``uids`` are about to be deleted because of ``key``.

        The expectation is met when the cache shows the object with a deletion timestamp, or no
        longer shows it: foreground deletion, finalizers or a grace period can delay the removal.
        """
        self._expect(key, {("deletions", uid): 0 for uid in uids})

    def expect_version(
        self, key: ObjectKey, uid: str, resource_version: str, *, cached: str = ""
    ) -> None:
        """Record that the object with ``uid`` was written with the result ``resource_version``.

        Args:
            key: key of the object that caused the write.
            uid: uid of the written object.
            resource_version: version in the server's response. Versions are compared as numbers,
                which Kubernetes guarantees for its own kinds and custom resources (KEP-5504); a
                version that is not a number is ignored.
            cached: version that the cache shows now, if any. The event may have arrived before the
                response, and will not be repeated.
        """
        version = _number(resource_version)
        if version is None or (_number(cached) or 0) >= version:
            return
        self._expect(key, {("versions", uid): version})

    def observed_creation(self, key: ObjectKey, name: str) -> None:
        """Record that ``name`` is in the cache, or never will be (its creation failed)."""
        self._observed(key, "creations", name)

    def observed_deletion(self, key: ObjectKey, uid: str) -> None:
        """Record that ``uid`` is gone or terminating, or will stay (its deletion failed)."""
        self._observed(key, "deletions", uid)

    def observed_version(self, key: ObjectKey, uid: str, resource_version: str) -> None:
        """Record that the cache shows ``resource_version`` of the object with ``uid``."""
        self._observed(key, "versions", uid, _number(resource_version))

    def observed_end(self, key: ObjectKey, uid: str) -> None:
        """Record that the object with ``uid`` is gone: no further version of it will arrive."""
        self._observed(key, "versions", uid)

    def is_satisfied(self, key: ObjectKey) -> bool:
        """Return whether the cache shows all writes caused by ``key``, or the wait timed out."""
        expected = self._expected.get(key)
        if expected is None:
            return True
        if self._clock.monotonic() < expected.until:
            return False
        del self._expected[key]
        metrics.expectations_expired(self.name)
        self._log.warning(
            "own writes did not show up in the cache, going on without",
            expectations=self.name,
            object=str(key),
            **{each: expected.of(each) for each in get_args(_Kind)},
            waited_s=self._ttl_s,
        )
        return True

    def seconds_left(self, key: ObjectKey) -> float:
        """Seconds until the expectations of ``key`` are dropped; 0 if it has none."""
        expected = self._expected.get(key)
        return 0.0 if expected is None else max(0.0, expected.until - self._clock.monotonic())

    def forget(self, key: ObjectKey) -> None:
        """Drop the expectations of ``key``, which is gone."""
        self._expected.pop(key, None)

    def handler(self, requests: EventHandler[Any]) -> EventHandler[Any]:
        """Return an event handler for a watch of the written kind; it causes no requests.

        Its watch has no ``when`` and comes before the watch that fills the queue.

        Args:
            requests: maps an event to the keys that may have caused the write; the same event
                handler with which the controller watches that kind, such as
                ``enqueue_owner(JobSet)``.
        """

        def observe(event: Event[Any]) -> Iterable[Request]:
            if self._expected:
                for request in requests(event):
                    self._observe(request.key, event.old, event.new)
            return ()

        return observe

    def _observe(self, key: ObjectKey, old: KubeObject | None, new: KubeObject | None) -> None:
        """Record an add, update or delete; a different uid means a different object."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.observed_deletion(key, old.metadata.uid)
            self.observed_end(key, old.metadata.uid)
            old = None
        if new is None:
            return
        meta = new.metadata
        if old is not None and _is_rewound(old.metadata.resource_version, meta.resource_version):
            # etcd was restored from a backup: writes that are expected may be lost.
            self._expected.clear()
            return
        if old is None:
            self.observed_creation(key, meta.name)
        elif getattr(meta, "deletion_timestamp", None) is not None:
            self.observed_deletion(key, meta.uid)
        self.observed_version(key, meta.uid, meta.resource_version)

    def _expect(self, key: ObjectKey, pending: Mapping[tuple[_Kind, str], int]) -> None:
        expected = self._expected.get(key) or _Expected()
        for what, version in pending.items():
            expected.pending[what] = max(version, expected.pending.get(what, 0))
        expected.until = self._clock.monotonic() + self._ttl_s
        if expected.pending:
            self._expected[key] = expected

    def _observed(self, key: ObjectKey, kind: _Kind, name: str, version: int | None = None) -> None:
        """Drop an expectation; one of a later version than ``version`` stays."""
        expected = self._expected.get(key)
        if expected is None:
            return
        wanted = expected.pending.get((kind, name))
        if wanted is not None and (version is None or version >= wanted):
            del expected.pending[kind, name]
            if not expected.pending:
                del self._expected[key]


def _number(resource_version: str) -> int | None:
    return int(resource_version) if resource_version.isdecimal() else None


def _is_rewound(before: str, after: str) -> bool:
    """Return whether an update came with no higher version, as only a restored etcd has it."""
    old, new = _number(before), _number(after)
    return old is not None and new is not None and new <= old
