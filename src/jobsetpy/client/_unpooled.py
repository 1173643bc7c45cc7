"""Requests over connections of their own, beside a transport's shared pool."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport


class UnpooledTransport:
    """A ``Transport`` that sends each request as a stream of another transport.

    Streams share no pool: such a request is never kept waiting by others that hang, nor lost to a
    kept connection that died in silence. The price is a connection for each.

    Args:
        transport: whose server and credentials are used; ``aclose`` leaves it open.
    """

    __slots__ = ("_transport",)

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """See ``Transport``."""
        try:
            async with asyncio.timeout(request.timeout_s), self.stream(request) as stream:
                pieces = []
                while piece := await stream.read():
                    pieces.append(piece)
                return HttpResponse(stream.status, stream.headers, b"".join(pieces))
        except TimeoutError:
            raise request.timed_out() from None

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        """See ``Transport``."""
        return self._transport.stream(request)

    async def refresh_credentials(self) -> None:
        """See ``Transport``."""
        await self._transport.refresh_credentials()

    async def aclose(self) -> None:
        """Do nothing: the other transport has its own owner."""
