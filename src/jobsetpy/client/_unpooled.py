"""Requests over separate connections, outside a transport's shared pool."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport


class UnpooledTransport:
    """A ``Transport`` that sends each request as a stream of another transport.

    Streams share no pool: such a request is never blocked by others that hang, nor lost on a kept
    connection that died silently. The cost is one connection per request.

    Args:
        transport: provides server and credentials; ``aclose`` leaves it open.
    """

    __slots__ = ("_transport",)

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Implement ``Transport.request``."""
        try:
            async with asyncio.timeout(request.timeout_s), self.stream(request) as stream:
                pieces = []
                while piece := await stream.read():
                    pieces.append(piece)
                return HttpResponse(stream.status, stream.headers, b"".join(pieces))
        except TimeoutError:
            raise request.timed_out() from None

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        """Implement ``Transport.stream``."""
        return self._transport.stream(request)

    async def refresh_credentials(self) -> None:
        """Implement ``Transport.refresh_credentials``."""
        await self._transport.refresh_credentials()

    async def aclose(self) -> None:
        """Do nothing: the other transport has its own owner."""
