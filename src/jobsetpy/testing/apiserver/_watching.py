"""WATCH: one open stream of events.

A stream is a cursor into its collection's history; nothing is queued per watch. Rules: Kubernetes
API concepts, "Efficient detection of changes", "Watch bookmarks" and "Streaming lists".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import attrs

from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._faults import Faults, Rule, Target
from jobsetpy.testing.apiserver._listing import ListOptions
from jobsetpy.testing.apiserver._storage import Change, Collection, Storage, Version

#: Annotation of the bookmark that ends the initial events of a streaming list.
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# A server ends every watch eventually; a real one after a random time of 30 to 60 minutes.
_DEFAULT_TIMEOUT_S = 1800.0
# Time before its end at which a stream gets a last bookmark, as from a real watch cache.
_LAST_BOOKMARK_S = 2.0
_TIMER_SLACK_S = 0.001

Send = Callable[[bytes], Awaitable[None]]


class ConnectionCutError(Exception):
    """Request by a fault rule to drop the connection.

    Args:
        reset: by a reset rather than an ordinary close.
    """

    def __init__(self, *, reset: bool) -> None:
        super().__init__("connection cut by a fault rule")
        self.reset = reset


@attrs.define(eq=False, kw_only=True)
class Watch:
    """One WATCH request.

    Args:
        storage: for the current resourceVersion.
        collection: collection to watch.
        namespace: "" for all.
        options: the parsed query.
        target: target of the request, for fault rules.
        faults: the fault rules.
        bookmark_s: interval between bookmarks, in seconds.

    Raises:
        StatusError: the request is refused; nothing was sent yet.
    """

    _storage: Storage
    _collection: Collection
    _namespace: str
    _options: ListOptions
    target: Target
    _faults: Faults
    _bookmark_s: float
    _version: int = attrs.field(init=False)
    _wants_initial: bool = attrs.field(init=False)
    _bound: list[tuple[Rule, int]] = attrs.field(factory=list, init=False)
    _order: tuple[int | None] | None = attrs.field(default=None, init=False)
    _woken: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _sent: int = attrs.field(default=0, init=False)
    _send: Send = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        options, current = self._options, self._storage.version
        self._version = options.version
        initial = options.initial_events
        self._wants_initial = self._version == 0 if initial is None else initial
        if self._wants_initial and self._version > current:
            raise answers.too_large_version(self._version, current)

    # -- for fault rules ---------------------------------------------------------------------

    def bind(self, rule: Rule) -> None:
        """Apply a ``cut`` or ``stall`` rule from now on."""
        self._bound.append((rule, self._sent + rule.after_events))
        self._woken.set()

    def end(self, code: int | None = None) -> None:
        """End cleanly, after an ERROR event if there is a code."""
        self._order = (code,)
        self._woken.set()

    # -- the stream --------------------------------------------------------------------------

    async def run(self, send: Send) -> None:
        """Send events until the stream ends.

        Raises:
            ConnectionCutError: the connection is to be dropped rather than ended.
        """
        self._send = send
        self._faults.opened(self)
        self._collection.watchers.add(self._woken)
        limit = self._options.timeout_s or _DEFAULT_TIMEOUT_S
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._stream(asyncio.get_running_loop().time() + limit)
        finally:
            self._faults.closed(self)
            self._collection.watchers.discard(self._woken)

    async def _stream(self, ends_at: float) -> None:
        await self._obey()
        if self._wants_initial:
            await self._initial()
        elif self._version == 0:
            self._version = self._storage.version
        elif self._version < self._collection.floor:
            await self._error(410)
            return
        loop = asyncio.get_running_loop()
        next_bookmark = max(
            loop.time(), min(loop.time() + self._bookmark_s, ends_at - _LAST_BOOKMARK_S)
        )
        while True:
            self._woken.clear()
            if self._version < self._collection.lost:
                await self._error(410)
                return
            for change in self._collection.since(self._version):
                await self._change(change)
            await self._obey()
            if self._order is not None:
                (code,) = self._order
                if code is not None:
                    await self._error(code)
                return
            # A timer may fire slightly early; without the slack a virtual clock would spin here.
            if self._options.bookmarks and loop.time() >= next_bookmark - _TIMER_SLACK_S:
                await self._bookmark()
                next_bookmark = loop.time() + self._bookmark_s
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_bookmark if self._options.bookmarks else None):
                    await self._woken.wait()

    async def _initial(self) -> None:
        """Send the current objects as ADDED events."""
        version = self._storage.version
        found = sorted(
            self._collection.objects.items(),
            key=lambda item: f"{item[0].namespace}/{item[0].name}",
        )
        for key, state in found:
            if self._wants(key, state):
                await self._event("ADDED", state.raw)
        self._version = version
        if self._options.bookmarks:
            await self._bookmark(ends_initial=True)

    def _wants(self, key: ObjectKey, state: Version | None) -> bool:
        if state is None or (self._namespace and key.namespace != self._namespace):
            return False
        return self._options.matches(state.obj)

    async def _change(self, change: Change) -> None:
        self._version = change.version
        deleted = change.type == "DELETED"
        before = self._wants(change.key, change.old)
        after = not deleted and self._wants(change.key, change.new)
        if before and after:
            await self._event("MODIFIED", change.new.raw)
        elif after:
            await self._event("ADDED", change.new.raw)
        elif before and deleted:
            await self._event("DELETED", change.new.raw)
        elif before and change.old is not None:
            # It no longer matches: its last matching state, under the change's version.
            obj = dict(change.old.obj)
            version = str(change.version)
            obj["metadata"] = {**obj["metadata"], "resourceVersion": version}
            await self._event("DELETED", Version(self._collection.kind, obj).raw)

    async def _bookmark(self, *, ends_initial: bool = False) -> None:
        if self._version > self._storage.version:
            return  # the watch began in the future, as after a restore of etcd
        info = self._collection.kind.info
        # Every change up to the store's version was processed, even if it was not sent.
        self._version = max(self._version, self._storage.version)
        meta: dict[str, Any] = {"resourceVersion": str(self._version)}
        if ends_initial:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: dict[str, Any] = {"kind": info.kind, "apiVersion": info.api_version}
        obj |= {"metadata": meta}
        await self._event("BOOKMARK", json.dumps(obj, separators=(",", ":")).encode())

    async def _error(self, code: int) -> None:
        if code == 410:
            floor = self._collection.floor
            status = answers.expired(f"too old resource version: {self._version} ({floor})")
        else:
            status = answers.injected(code, None, "")
        body = json.dumps(status.body(), separators=(",", ":")).encode()
        await self._send(_frame("ERROR", body))

    async def _event(self, kind: str, raw: bytes) -> None:
        frame = _frame(kind, raw)
        await self._obey()
        await self._send(frame)
        self._sent += 1
        await self._obey()

    async def _obey(self) -> None:
        """Apply the bound rules that are due."""
        for rule, at in tuple(self._bound):
            if self._sent < at:
                continue
            self._bound.remove((rule, at))
            if rule.lifted.is_set():
                continue
            if rule.action == "cut":
                raise ConnectionCutError(reset=rule.reset)
            await rule.lifted.wait()


def _frame(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"
