"""Reading one's own writes from a cache that lags behind them.

A reconciler that has just created three Jobs and is called again before the informer shows them
would create them again. Expectations remember, for each key, what has been written and not been
seen; until all of it is seen (or has waited too long), the reconciler returns without acting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api.meta import KubeObject, ObjectKey
from jobsetpy.api.reconcile import Request
from jobsetpy.controller._event import Event
from jobsetpy.controller._handlers import EventHandler
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger


class _Expected:
    """What one key waits for."""

    __slots__ = ("names", "uids", "until", "versions")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.uids: set[str] = set()
        self.versions: dict[str, int] = {}
        self.until = 0.0


class Expectations:
    """Own writes that the cache does not show yet, by key of the object that caused them.

    One instance for each kind of written objects, so that names cannot be mixed up. Creations and
    deletions are to be announced *before* the request is sent, since the event may come before the
    answer; a request that fails is taken back with the same ``observed_`` call that the event would
    have caused. All calls are O(1) for each name, uid or version.

    What does not come within ``ttl_s`` (an event can be missed for ever: created and deleted
    between two lists) is given up with a warning, and the reconciler goes on with what the cache
    shows. Since no event wakes it then, it should look again after ``seconds_left``.

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
        name: in logs and metrics, such as ``jobset/jobs``.
        ttl_s: how long to wait after the last expectation of a key, in seconds.
        clock: where time comes from.
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
        """How many keys wait for something."""
        return len(self._expected)

    def expect_creations(self, key: ObjectKey, names: Iterable[str]) -> None:
        """Objects called ``names`` are about to be created because of ``key``."""
        self._open(key).names.update(names)
        self._close(key)

    def expect_deletions(self, key: ObjectKey, uids: Iterable[str]) -> None:
        """Objects with ``uids`` are about to be deleted because of ``key``.

        Seen as soon as the cache shows the object with a deletion timestamp, or not at all: with
        foreground deletion, finalizers or a grace period, the end may be far away.
        """
        self._open(key).uids.update(uids)
        self._close(key)

    def expect_version(
        self, key: ObjectKey, uid: str, resource_version: str, *, cached: str = ""
    ) -> None:
        """The object with ``uid`` was written and the server answered ``resource_version``.

        Args:
            key: because of whom it was written.
            uid: of the written object.
            resource_version: in the server's answer. Versions are compared as numbers, which
                Kubernetes guarantees for its own kinds and custom resources (KEP-5504); one that is
                no number expects nothing.
            cached: the version that the cache shows now, if any. The event may have overtaken the
                answer, and will not come again.
        """
        version = _number(resource_version)
        if version is None or (_number(cached) or 0) >= version:
            return
        versions = self._open(key).versions
        versions[uid] = max(version, versions.get(uid, 0))
        self._close(key)

    def observed_creation(self, key: ObjectKey, name: str) -> None:
        """An object called ``name`` is in the cache, or will not be (its creation failed)."""
        expected = self._expected.get(key)
        if expected is not None:
            expected.names.discard(name)
            self._drop_if_empty(key, expected)

    def observed_deletion(self, key: ObjectKey, uid: str) -> None:
        """The object with ``uid`` is gone or terminating, or will stay (its deletion failed)."""
        expected = self._expected.get(key)
        if expected is not None:
            expected.uids.discard(uid)
            self._drop_if_empty(key, expected)

    def observed_version(self, key: ObjectKey, uid: str, resource_version: str) -> None:
        """The cache shows ``resource_version`` of the object with ``uid``."""
        expected = self._expected.get(key)
        if expected is not None and uid in expected.versions:
            version = _number(resource_version)
            if version is None or version >= expected.versions[uid]:
                del expected.versions[uid]
                self._drop_if_empty(key, expected)

    def observed_end(self, key: ObjectKey, uid: str) -> None:
        """The object with ``uid`` is gone: no version of it will come."""
        expected = self._expected.get(key)
        if expected is not None and expected.versions.pop(uid, None) is not None:
            self._drop_if_empty(key, expected)

    def is_satisfied(self, key: ObjectKey) -> bool:
        """Whether the cache shows all that was written because of ``key``, or waited too long."""
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
            creations=sorted(expected.names)[:10],
            deletions=sorted(expected.uids)[:10],
            versions=sorted(expected.versions)[:10],
            waited_s=self._ttl_s,
        )
        return True

    def seconds_left(self, key: ObjectKey) -> float:
        """Until the expectations of ``key`` are given up; 0 if it has none."""
        expected = self._expected.get(key)
        return 0.0 if expected is None else max(0.0, expected.until - self._clock.monotonic())

    def forget(self, key: ObjectKey) -> None:
        """``key`` is gone: wait for nothing."""
        self._expected.pop(key, None)

    def handler(self, requests: EventHandler[Any]) -> EventHandler[Any]:
        """A handler for a watch of the written kind; it notes what it sees and causes no requests.

        Its watch has no ``when`` and comes before the watch that fills the queue.

        Args:
            requests: because of whom an object may have been written; the same event handler that
                the controller watches that kind with, such as ``enqueue_owner(JobSet)``.
        """

        def observe(event: Event[Any]) -> Iterable[Request]:
            if self._expected:
                for request in requests(event):
                    self._observe(request.key, event.old, event.new)
            return ()

        return observe

    def _observe(self, key: ObjectKey, old: KubeObject | None, new: KubeObject | None) -> None:
        """An object was added, changed or removed; another uid makes it another object."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.observed_deletion(key, old.metadata.uid)
            self.observed_end(key, old.metadata.uid)
            old = None
        if new is None:
            return
        meta = new.metadata
        if old is None:
            self.observed_creation(key, meta.name)
        elif getattr(meta, "deletion_timestamp", None) is not None:
            self.observed_deletion(key, meta.uid)
        self.observed_version(key, meta.uid, meta.resource_version)

    def _open(self, key: ObjectKey) -> _Expected:
        expected = self._expected.get(key)
        if expected is None:
            expected = self._expected[key] = _Expected()
        return expected

    def _close(self, key: ObjectKey) -> None:
        expected = self._expected[key]
        expected.until = self._clock.monotonic() + self._ttl_s
        self._drop_if_empty(key, expected)

    def _drop_if_empty(self, key: ObjectKey, expected: _Expected) -> None:
        if not (expected.names or expected.uids or expected.versions):
            del self._expected[key]


def _number(resource_version: str) -> int | None:
    return int(resource_version) if resource_version.isdecimal() else None
