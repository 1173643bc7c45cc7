"""Client transport without sockets, which works in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from jobsetpy.aio import supervise
from jobsetpy.client import HttpRequest, HttpResponse
from jobsetpy.errors import ApiTimeoutError, StreamBrokenError
from jobsetpy.testing.apiserver._dispatch import Dispatcher, Reply
from jobsetpy.testing.apiserver._requests import Request
from jobsetpy.testing.apiserver._watching import ConnectionCutError, Watch

# Number of frames by which a reader may lag before the sender waits, as with a socket's buffer.
_STREAM_BUFFER = 256


class MemoryTransport:
    """``Transport`` that is connected to a world in this process.

    Faults work except ``cut`` and ``stall`` of responses that are not watches.

    Args:
        dispatcher: executes requests.
        user_agent: for the log and for fault rules.
    """

    host = "memory"

    def __init__(self, dispatcher: Dispatcher, *, user_agent: str = "memory") -> None:
        self._dispatcher = dispatcher
        self._user_agent = user_agent

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Implement ``Transport.request``."""
        logged = self._logged(request)
        try:
            async with asyncio.timeout(request.timeout_s):
                reply = await self._dispatcher.answer(logged)
        except TimeoutError:
            raise ApiTimeoutError(f"no answer within {request.timeout_s} s") from None
        except ConnectionCutError:
            raise StreamBrokenError("the answer was lost") from None
        assert isinstance(reply, Reply), "a watch is a stream"
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return HttpResponse(reply.status, headers, reply.body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[_MemoryStream]:
        """Implement ``Transport.stream``."""
        try:
            reply = await self._dispatcher.answer(self._logged(request))
        except ConnectionCutError:
            raise StreamBrokenError("the answer was lost") from None
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
        """Do nothing: there are no credentials."""

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _logged(self, request: HttpRequest) -> Request:
        if request.fence is not None:
            request.fence.check()
        return self._dispatcher.log(
            request.method,
            request.path,
            dict(request.query),
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
