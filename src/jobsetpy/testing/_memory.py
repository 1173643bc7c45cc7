"""A client of a :class:`World` without sockets: it works in virtual time and records its writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from jobsetpy.aio import supervise
from jobsetpy.client import HttpRequest, HttpResponse, KubeClient
from jobsetpy.errors import ApiTimeoutError, StreamBrokenError
from jobsetpy.testing._dispatch import Arrival, Dispatcher, Reply
from jobsetpy.testing._requests import Request
from jobsetpy.testing._watching import ConnectionCutError, Watch
from jobsetpy.testing._world import World

# Frames a slow reader may be behind before the sending side waits, as with a socket's buffer.
_STREAM_BUFFER = 256


class MemoryTransport:
    """A ``Transport`` that ends in a world of this process.

    Faults work but for ``cut`` and ``stall`` of answers that are no watches.

    Args:
        dispatcher: what carries requests out.
        user_agent: for the log and for fault rules.
    """

    def __init__(self, dispatcher: Dispatcher, *, user_agent: str = "memory") -> None:
        self._dispatcher = dispatcher
        self._user_agent = user_agent

    async def request(self, request: HttpRequest) -> HttpResponse:
        """See ``Transport``."""
        arrival = self._arrival(request)
        entry = self._dispatcher.log(arrival)
        try:
            async with asyncio.timeout(request.timeout_s):
                reply = await self._dispatcher.answer(arrival, entry)
        except TimeoutError:
            msg = f"no answer within {request.timeout_s} s"
            raise ApiTimeoutError(msg) from None
        except ConnectionCutError:
            msg = "the answer was lost"
            raise StreamBrokenError(msg) from None
        assert isinstance(reply, Reply), "a watch is a stream"
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return HttpResponse(reply.status, headers, reply.body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[_MemoryStream]:
        """See ``Transport``."""
        arrival = self._arrival(request)
        try:
            reply = await self._dispatcher.answer(arrival, self._dispatcher.log(arrival))
        except ConnectionCutError:
            msg = "the answer was lost"
            raise StreamBrokenError(msg) from None
        stream = _MemoryStream(reply.status if isinstance(reply, Reply) else 200)
        if isinstance(reply, Reply):
            stream.frames.put_nowait(reply.body)
            stream.frames.put_nowait(b"")
            stream.frames.put_nowait(b"")
            yield stream
            return
        async with supervise() as tasks:
            tasks.start(stream.fill(reply), name="memory-watch")
            yield stream

    async def refresh_credentials(self) -> None:
        """See ``Transport``; there are none."""

    async def aclose(self) -> None:
        """See ``Transport``."""

    def _arrival(self, request: HttpRequest) -> Arrival:
        return Arrival(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            content_type=request.content_type,
            user_agent=self._user_agent,
            body=request.body or b"",
        )


class _MemoryStream:
    def __init__(self, status: int) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.frames: asyncio.Queue[bytes | Exception] = asyncio.Queue(_STREAM_BUFFER)

    async def fill(self, watch: Watch) -> None:
        try:
            await watch.run(self.frames.put)
        except ConnectionCutError:
            await self.frames.put(StreamBrokenError("the watch was cut"))
        else:
            await self.frames.put(b"")

    async def read(self) -> bytes:
        frame = await self.frames.get()
        if isinstance(frame, Exception):
            raise frame
        return frame


class RecordingClient(KubeClient):
    """A ``Client`` on a world in memory, for tests of what a reconciler writes.

    ::

        client = RecordingClient()
        client.world.create(JobSet, make_jobset("a").build())
        ...
        assert [("create", "jobs", "a-w-0")] == client.calls

    Answers are those of the fake API server, and so are ``world.faults``.

    Args:
        world: the objects; an empty world when absent.
        **settings: for ``KubeClient``.
    """

    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world if world is not None else World()
        super().__init__(self.world.transport(), **settings)

    @property
    def writes(self) -> list[Request]:
        """Every request that may have changed something, oldest first."""
        return self.world.requests.writes

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """The writes as verb, resource and name; the name of a create is that in its body."""
        return [(one.verb, one.resource, one.name or _body_name(one)) for one in self.writes]


def _body_name(request: Request) -> str:
    body = request.json
    meta = body.get("metadata") if isinstance(body, dict) else None
    name = meta.get("name") or meta.get("generateName") if isinstance(meta, dict) else ""
    return name or ""
