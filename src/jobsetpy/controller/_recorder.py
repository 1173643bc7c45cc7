"""Kubernetes Events: what happened to an object, for users of ``kubectl describe``.

Recording is synchronous and cheap; sending happens in the background and is best effort: an Event
that cannot be sent is counted and dropped, and nothing ever waits for one.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Never

import attrs

from jobsetpy.aio import Clock, LoopClock, full_jitter
from jobsetpy.api.events import Event
from jobsetpy.api.meta import KubeObject
from jobsetpy.api.timestamps import micros_text
from jobsetpy.client import Client
from jobsetpy.controller._token_buckets import TokenBuckets
from jobsetpy.errors import (
    AlreadyExistsError,
    JobSetPyError,
    NotFoundError,
    RetryableApiError,
    TransportError,
)
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.workqueue import DelayHeap

EventType = Literal["Normal", "Warning"]

MAX_NOTE_BYTES = 1024
"""Maximum length of a note that the API server accepts, in bytes."""

_MAX_NAME = 253
_MAX_INSTANCE = 128
_MAX_WORD = 128  # reason and action
_ATTEMPTS = 3
_NEVER = datetime.min.replace(tzinfo=UTC)
_FINAL_FLUSH_TIMEOUT_S = 2.0


class _SeriesKey(NamedTuple):
    """Identity of repeated events; excludes the message and the object's resourceVersion."""

    type: str
    action: str
    reason: str
    regarding: tuple[str, ...]
    related: tuple[str, ...]
    series: str = ""


@attrs.define(eq=False)
class _Series:
    """An event, its repeats, and the part of them that has been sent."""

    key: _SeriesKey
    namespace: str
    body: dict[str, Any]
    count: int = 1
    sent: int = 0
    """The count in the API server."""
    created: bool = False
    last: float = 0.0
    """Monotonic time of the last repeat; ``last_wall`` is its wall-clock time."""
    last_wall: datetime = _NEVER
    next_patch: float = 0.0

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


@attrs.frozen(kw_only=True)
class EventLimits:
    """Limits of what an ``EventRecorder`` sends and remembers.

    Args:
        max_pending: maximum number of Events and patches that wait to be sent.
        max_series: maximum number of series remembered to recognise repeats.
        series_s: silence after which a series ends, in seconds.
        patch_every_s: minimum interval between two patches of a series, in seconds.
        burst: maximum number of new Events of one object in a burst.
        refill_s: interval after which an object may have one more, in seconds.
    """

    max_pending: int = 1000
    max_series: int = 4096
    series_s: float = 360.0
    patch_every_s: float = 5.0
    burst: int = 25
    refill_s: float = 30.0


_DEFAULT_LIMITS = EventLimits()


class EventRecorder:
    """Records events.k8s.io/v1 Events and sends them in the background.

    * A repeat (same type, action, reason, object, related object, series) within
      ``series_s`` of the previous event creates nothing: it raises ``series.count`` of the first
      Event by a patch, starting with 2. Its message is not kept. A series is patched at most once
      in ``patch_every_s``, except for the first patch; repeats in between are summed up.
    * A ``series`` separates events whose messages all matter. If they arrive so fast that few
      tokens would be left for other Events of the object, they count as repeats of each other.
    * New Events of one object are limited by a token bucket, so that a hot loop cannot flood. The
      number of Events that wait to be sent is limited by ``max_pending``; further ones are dropped.
    * A message is cut to 1,024 bytes of UTF-8 and never formatted; other fields are cut to what
      the API server accepts.
    * Sending survives any failure. A transient one is retried: three attempts in total.

    Run :meth:`run` in the background (the manager does it for ``manager.recorder()``).

    Args:
        client: client that sends the Events.
        component: ``reportingController``; a name such as ``jobset``.
        instance: ``reportingInstance``; component and host name when absent.
        limits: limits of what is sent and remembered.
        clock: time source.
        rand: uniform numbers in [0, 1), for the delays between attempts.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        instance: str = "",
        limits: EventLimits = _DEFAULT_LIMITS,
        clock: Clock | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.component = component
        self._client = client
        self._instance = (instance or f"{component}-{socket.gethostname()}")[:_MAX_INSTANCE]
        self._limits = limits
        self._clock: Clock = clock or LoopClock()
        self._rand = rand
        self._buckets = TokenBuckets(
            burst=limits.burst, refill_s=limits.refill_s, clock=self._clock
        )
        self._apart = TokenBuckets(
            burst=max(1, limits.burst * 2 // 3), refill_s=limits.refill_s, clock=self._clock
        )
        self._metrics = metrics.EventMetrics(component)
        self._log = get_logger("events")
        # The remembered series, the longest silent first, and those that wait to be sent.
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._due: DelayHeap[_SeriesKey] = DelayHeap()
        self._wake = asyncio.Event()
        self._last_ns = 0

    def __len__(self) -> int:
        """Number of Events and patches that wait to be sent."""
        return sum(series.count > series.sent for series in self._series.values())

    def event(
        self,
        obj: KubeObject,
        type_: str,
        reason: str,
        message: str,
        *,
        related: KubeObject | None = None,
        action: str = "Reconciling",
        series: str = "",
    ) -> None:
        """Record that something happened to ``obj``. Returns immediately and never raises.

        Args:
            obj: the Event's object; the Event gets its namespace (``default`` if it has none).
            type_: ``Normal`` or ``Warning``.
            reason: one word in CamelCase, for machines.
            message: any text, for people.
            related: another object involved.
            action: the controller's action, in CamelCase.
            series: name of the occasion: events of different occasions are not repeats.
        """
        now = self._clock.monotonic()
        self._expire(now)
        key = _SeriesKey(type_, action, reason, _identity(obj), _identity(related), series)
        if series and key not in self._series and not self._apart.take(key.regarding):
            key = key._replace(series="")
        known = self._series.get(key)
        if known is None:
            if not self._buckets.take(key.regarding):
                self._metrics.count("rate_limited")
                return
            known = _Series(key, *self._body(key, obj, related, message))
            self._series[key] = known
            if len(self._series) > self._limits.max_series:
                self._series.popitem(last=False)
        else:
            known.count += 1
            self._series.move_to_end(key)
        known.last = now
        known.last_wall = self._clock.now()
        self._enqueue(known, now)

    async def run(self) -> Never:
        """Send until cancelled; then flush pending Events for at most two seconds."""
        try:
            while True:
                await self._send_due()
                self._wake.clear()
                due = self._due.next_due()
                # At least one tick of uvloop's clock, or the loop would spin until it ticks.
                delay = None if due is None else max(0.001, due - self._clock.monotonic())
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._wake.wait()
        finally:
            try:
                async with asyncio.timeout(_FINAL_FLUSH_TIMEOUT_S):
                    await self.flush()
            except TimeoutError:
                self._log.info("events left unsent", controller=self.component, count=len(self))

    async def flush(self) -> None:
        """Send all pending Events, without regard to ``patch_every_s``."""
        self._due.clear()
        for series in [*self._series.values()]:
            if series.count > series.sent:
                await self._send(series)

    # Recording

    def _expire(self, now: float) -> None:
        """Drop series that ended, the longest silent first. O(1) for each dropped series."""
        while self._series:
            series = next(iter(self._series.values()))
            if now - series.last < self._limits.series_s:
                return
            self._series.popitem(last=False)

    def _enqueue(self, series: _Series, now: float) -> None:
        if series.key not in self._due and len(self._due) >= self._limits.max_pending:
            self._metrics.count("overflow")
            if not series.created:
                self._forget(series)
            return
        self._due.put(series.key, max(now, series.next_patch), 0)
        self._wake.set()

    def _forget(self, series: _Series) -> None:
        if self._series.get(series.key) is series:
            del self._series[series.key]

    def _body(
        self, key: _SeriesKey, obj: KubeObject, related: KubeObject | None, message: str
    ) -> tuple[str, dict[str, Any]]:
        namespace = obj.metadata.namespace or "default"
        now = self._clock.now()
        # The name must be unique even if the clock stands still or is set back.
        self._last_ns = max(self._last_ns + 1, int(now.timestamp() * 1_000_000) * 1000)
        suffix = f".{self._last_ns:x}"
        name = obj.metadata.name[: _MAX_NAME - len(suffix)].rstrip("-.")
        body: dict[str, Any] = {
            "apiVersion": Event.RESOURCE.api_version,
            "kind": Event.RESOURCE.kind,
            "metadata": {"name": name + suffix, "namespace": namespace},
            "eventTime": micros_text(now),
            "reportingController": self.component,
            "reportingInstance": self._instance,
            "action": key.action[:_MAX_WORD],
            "reason": key.reason[:_MAX_WORD],
            "type": key.type,
            "note": _truncated(message, MAX_NOTE_BYTES),
            "regarding": _reference(obj),
        }
        if related is not None:
            body["related"] = _reference(related)
        return namespace, body

    # Sending

    async def _send_due(self) -> None:
        """Send the series that are due."""
        while due := self._due.pop_due(self._clock.monotonic()):
            for key, _ in due:
                series = self._series.get(key)
                if series is None or series.count == series.sent:
                    continue
                # A repeat may have arrived while the series was being sent.
                if series.next_patch > (now := self._clock.monotonic()):
                    self._enqueue(series, now)
                else:
                    await self._send(series)

    async def _send(self, series: _Series) -> None:
        """Create or patch the Event of one series; never raises.

        The series stays unsent meanwhile, so that ``flush`` finds it if ``run`` is cancelled here.
        """
        ok = series.created
        if not ok:
            ok = series.created = await self._attempt(series, self._create)
            if ok:
                series.sent = 1
                self._metrics.count("created")
        if ok and series.count > series.sent:
            count = series.count
            ok = await self._attempt(series, self._patch)
            if ok:
                series.sent = count
                series.next_patch = self._clock.monotonic() + self._limits.patch_every_s
                self._metrics.count("patched")
        if not ok:
            self._forget(series)  # the next event starts a new series
        elif series.count > series.sent:
            self._enqueue(series, self._clock.monotonic())

    async def _attempt(self, series: _Series, send: Callable[[_Series], Any]) -> bool:
        failures = 0
        while True:
            try:
                await send(series)
            except (JobSetPyError, OSError) as error:
                failures += 1
                may_pass = isinstance(error, RetryableApiError | TransportError)
                if not may_pass or failures == _ATTEMPTS:
                    self._failed(series, error)
                    return False
            else:
                return True
            await asyncio.sleep(full_jitter(failures - 1, base=1.0, cap=10.0, rand=self._rand))

    def _failed(self, series: _Series, error: Exception) -> None:
        self._metrics.count("failed")
        self._log.debug(
            "an event could not be sent",
            controller=self.component,
            event_namespace=series.namespace,
            event_name=series.name,
            error=str(error),
        )

    async def _create(self, series: _Series) -> None:
        # A name is used once: if it already exists, an earlier attempt succeeded after all.
        with suppress(AlreadyExistsError):
            await self._client.create(Event, series.namespace, series.body)

    async def _patch(self, series: _Series) -> None:
        repeats = {"count": series.count, "lastObservedTime": micros_text(series.last_wall)}
        try:
            await self._client.merge_patch(
                Event, series.namespace, series.name, {"series": repeats}
            )
        except NotFoundError:
            # Events live for an hour; a series that is older than that gets a new Event.
            await self._client.create(Event, series.namespace, {**series.body, "series": repeats})


def _identity(obj: KubeObject | None) -> tuple[str, ...]:
    if obj is None:
        return ()
    meta = obj.metadata
    return (obj.RESOURCE.group, obj.RESOURCE.kind, meta.namespace, meta.name, meta.uid)


def _reference(obj: KubeObject) -> dict[str, str]:
    meta = obj.metadata
    reference = {
        "apiVersion": obj.RESOURCE.api_version,
        "kind": obj.RESOURCE.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    return {field: value for field, value in reference.items() if value}


def _truncated(text: str, limit: int) -> str:
    """Truncate to ``limit`` bytes of UTF-8 without splitting a character."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode("utf-8", "ignore") + "..."
