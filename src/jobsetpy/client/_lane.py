"""Requests over connections of their own, beside a transport's shared pool.

On the agent's import path: standard library only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobsetpy.client._protocol import ByteStream, HttpRequest, HttpResponse, Transport
from jobsetpy.errors import ApiTimeoutError


class OwnConnections:
    """A ``Transport`` that sends each request as a stream of ``transport``.

    Streams share no pool: such a request is never kept waiting by others that hang, nor lost to a
    kept connection that died in silence. The price is a connection for each.

    Args:
        transport: whose server and credentials are used; it is not closed by ``aclose``.
    """

    __slots__ = ("_transport",)

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        """See ``Transport``."""
        try:
            async with (
                asyncio.timeout(request.timeout_s),
                self._transport.stream(request) as stream,
            ):
                pieces = []
                while piece := await stream.read():
                    pieces.append(piece)
                return HttpResponse(stream.status, stream.headers, b"".join(pieces))
        except TimeoutError:
            msg = f"{request.method} {request.path}: no answer in {request.timeout_s:.3g} s"
            raise ApiTimeoutError(msg) from None

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[ByteStream]:
        """See ``Transport``."""
        async with self._transport.stream(request) as stream:
            yield stream

    async def refresh_credentials(self) -> None:
        """See ``Transport``."""
        await self._transport.refresh_credentials()

    async def aclose(self) -> None:
        """Nothing: the transport is another one's."""
