"""Driver of the watch machine: contains all waiting and all deadlines of a watch.

Usable alone (as in the agent) and under a ``SharedInformer``. Events go directly to a sink, which
only stores and enqueues, so the socket is always drained.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Generic, Never, TypeAlias, TypeVar, assert_never

import msgspec

from jobsetpy.client import Client, Page, WatchFrame, WatchStream, decoder_of
from jobsetpy.errors import (
    ApiError,
    ApiTimeoutError,
    DecodeError,
    JobSetPyError,
    NotFoundError,
    TransportError,
)
from jobsetpy.informers._events import ListCompleted, Listed, ListStarted, WatchEvent
from jobsetpy.informers._machine import OpenWatch, ReadFrames, RequestPage, Wait, WatchMachine
from jobsetpy.informers._options import DEFAULT_OPTIONS, WatchOptions

T = TypeVar("T")

Sink: TypeAlias = Callable[[Sequence[WatchEvent[T]]], Awaitable[None] | None]

FAULTS: Final = (ApiError, TransportError, DecodeError, RecursionError)
"""Exceptions of a client that are caused by the server, the network or the data.

``RecursionError`` is caused by JSON that is nested too deeply for the decoder: data, not code.
"""

LONGEST_CONNECT: Final = 4
"""Maximum time to open a watch, in ``connect_timeout_s``, after attempts that took too long: with a
server that is always slow, each would be in vain."""

SLICE: Final = 64
"""Maximum number of frames handled before other tasks run (about 2 ms)."""


class Watcher(Generic[T]):
    """List and watch of one collection that continues for ever, through every fault.

    Guarantees: after each ``ListCompleted`` the consumer's view equals the collection as of that
    resourceVersion, and each later change is delivered once and in order, as long as the server
    remembers it; when it does not, a new list follows. A watch that dies silently is noticed within
    ``idle_timeout_s``. Not guaranteed: every intermediate state of an object; a list and a server
    may each skip some.

    An object that does not fit the model is reported to the observer and left out: after a watch
    event the consumer keeps the previous state; in a list the object is ``Unreadable``.

    Args:
        client: sends the requests.
        cls: the wire class; its ``RESOURCE`` is the resource to watch.
        options: scope and limits of the watch.
        decode: decodes an object from a watch event's JSON; msgspec with ``cls`` when absent.
            Lists are always decoded with ``cls``, by the client.
        advise: returns a hint on how to fix a failure, or ""; it is added to the exception's notes.
    """

    def __init__(
        self,
        client: Client,
        cls: type[T],
        options: WatchOptions = DEFAULT_OPTIONS,
        *,
        decode: Callable[[msgspec.Raw], T] | None = None,
        advise: Callable[[Exception], str] | None = None,
    ) -> None:
        self._advise = advise
        self.failure: Exception | None = None
        """Exception of the last request; ``None`` if it did not fail."""
        self._client = client
        self._cls = cls
        self._options = options
        resource: Any = getattr(cls, "RESOURCE", None)
        self.kind = str(resource.kind) if resource is not None else cls.__name__
        """Name of the kind that is watched."""
        self._machine: WatchMachine[T] = WatchMachine(
            decode or decoder_of(cls).decode, kind=self.kind, options=options
        )
        self.last_activity: float | None = None
        """Monotonic time of the last sign of life from the server; ``None`` before the first."""
        self._connect_s = options.connect_timeout_s
        self._list_began = 0.0
        self._list_count = 0

    @property
    def resource_version(self) -> str:
        """Version up to which the sink has received events; "" before the first list."""
        return self._machine.resource_version

    def silent_too_long(self, now: float | None = None) -> bool:
        """Return whether the server has been silent for longer than all deadlines together allow.

        A quiet but healthy watch shows a sign of life at least every ``idle_timeout_s``, plus the
        time to open a new one.
        """
        if self.last_activity is None:
            return True
        at = self._options.clock.monotonic() if now is None else now
        longest = self._options.idle_timeout_s + self._options.connect_timeout_s
        return at - self.last_activity > longest

    # ---------------------------------------------------------------------------------------------

    async def run(self, sink: Sink[T]) -> Never:
        """Pass events to ``sink`` in batches until cancelled.

        ``sink`` is called once for at most ``SLICE`` frames or one page, and other tasks run
        between two calls. It should be quick; if it returns an awaitable, that is awaited before
        the next read. An exception of ``sink`` ends ``run``.
        """
        machine = self._machine
        while True:
            match machine.command:
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                    machine.on_waited()
                case RequestPage() as command:
                    await self._list(command, sink)
                case OpenWatch() as command:
                    await self._watch(command, sink)
                case ReadFrames():  # pragma: no cover - only while _watch runs
                    raise AssertionError("reading without a stream")
                case command:
                    assert_never(command)

    # ---------------------------------------------------------------------------------------------

    def _alive(self) -> float:
        now = self._options.clock.monotonic()
        self.last_activity = now
        self.failure = None
        return now

    def _failed(self, error: JobSetPyError | RecursionError) -> None:
        if isinstance(error, RecursionError):
            error = DecodeError(self.kind, "", "it is nested too deeply")
        if self._advise is not None and (advice := self._advise(error)):
            error.add_note(advice)
        self.failure = error
        if isinstance(error, ApiTimeoutError):
            longest_s = LONGEST_CONNECT * self._options.connect_timeout_s
            self._connect_s = min(2 * self._connect_s, longest_s)
        self._machine.on_error(error, self._options.clock.monotonic())

    async def _list(self, command: RequestPage, sink: Sink[T]) -> None:
        if not command.continue_token:
            self._list_began = self._options.clock.monotonic()
        page: Page[T]
        try:
            page = await self._client.list_page(
                self._cls,
                self._options.namespace,
                label_selector=self._options.label_selector,
                field_selector=self._options.field_selector,
                limit=command.limit,
                continue_token=command.continue_token,
                timeout_s=self._options.list_timeout_s,
            )
        except NotFoundError as error:
            if not self._options.optional:
                self._failed(error)
                return
            self._alive()
            await self._deliver(self._machine.on_absent(), sink)
            return
        except FAULTS as error:
            self._failed(error)
            return
        self._alive()
        for problem in page.bad:
            self._options.observer.on_decode_error(
                self.kind, problem, problem.namespace, problem.name
            )
        events = self._machine.on_page(
            page.items, page.resource_version, page.continue_token, page.bad
        )
        await self._deliver(events, sink)

    async def _watch(self, command: OpenWatch, sink: Sink[T]) -> None:
        machine = self._machine
        if command.send_initial_events:
            self._list_began = self._options.clock.monotonic()
        watch = self._client.watch(
            self._cls,
            self._options.namespace,
            resource_version=command.resource_version,
            label_selector=self._options.label_selector,
            field_selector=self._options.field_selector,
            timeout_seconds=command.timeout_seconds,
            send_initial_events=command.send_initial_events,
            connect_timeout_s=self._connect_s,
        )
        async with AsyncExitStack() as stack:
            try:
                # The client has this deadline too; a watch that never opens must not depend on it.
                async with asyncio.timeout(self._connect_s):
                    stream = await stack.enter_async_context(watch)
            except TimeoutError:
                self._failed(ApiTimeoutError(f"the watch of {self.kind} did not open in time"))
                return
            except FAULTS as error:
                self._failed(error)
                return
            machine.on_opened(self._alive())
            if isinstance(machine.command, ReadFrames):  # a slow server is slow after a list, too
                self._connect_s = self._options.connect_timeout_s
            await self._follow(stream, sink)

    async def _follow(self, stream: WatchStream, sink: Sink[T]) -> None:
        machine = self._machine
        while isinstance(reading := machine.command, ReadFrames):
            try:
                async with asyncio.timeout(reading.idle_s):
                    frames = await stream.read()
            except TimeoutError:
                machine.on_silence(self._options.clock.monotonic())
                return
            except FAULTS as error:
                self._failed(error)
                return
            if not frames:
                machine.on_eof(self._alive())
                return
            await self._take(frames, sink)

    async def _take(self, frames: Sequence[WatchFrame], sink: Sink[T]) -> None:
        now = self._alive()
        for start in range(0, len(frames), SLICE):
            events = self._machine.on_frames(frames[start : start + SLICE], now)
            await self._deliver(events, sink)
            if not isinstance(self._machine.command, ReadFrames):
                return

    async def _deliver(self, events: Sequence[WatchEvent[T]], sink: Sink[T]) -> None:
        if events:
            result = sink(events)
            if result is not None:
                await result
            self._observe_list(events)
        # Other tasks must run even if reads never have to wait.
        await asyncio.sleep(0)

    def _observe_list(self, events: Sequence[WatchEvent[T]]) -> None:
        for event in events:
            if isinstance(event, Listed):
                self._list_count += 1
            elif isinstance(event, ListStarted):
                self._list_count = 0
            elif isinstance(event, ListCompleted):
                seconds = self._options.clock.monotonic() - self._list_began
                self._options.observer.on_list(self.kind, seconds, self._list_count)
