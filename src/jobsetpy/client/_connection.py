"""One HTTP/1.1 connection on asyncio and h11, for ``H11Transport``.

A protocol class rather than asyncio's streams: it receives data and closes while the connection is
idle, which a stream hides until the next read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final, cast

import h11

from jobsetpy.errors import StreamBrokenError

_HIGH_WATER = 2**18

PEER_TIMEOUT_S: Final = 30
"""Time without any answer, even to the kernel's probes, after which a peer is considered lost."""

_PROBES: Final = {
    "SO_KEEPALIVE": 1,
    "TCP_KEEPIDLE": PEER_TIMEOUT_S // 3,
    "TCP_KEEPINTVL": PEER_TIMEOUT_S // 6,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": PEER_TIMEOUT_S * 1000,  # for sent data that is not acknowledged
}
"""Socket options; those that a platform does not have are left out. A watch, or a request that
waits, may be silent for minutes: only the kernel can distinguish a quiet peer from a lost one."""


class Connection(asyncio.Protocol):
    """A connection and its HTTP state, for one exchange at a time; also its ``ByteStream``.

    Args:
        loop: the running loop.
    """

    __slots__ = (
        *("_chunks", "_ended", "_error", "_http", "_paused", "_size", "_waiter"),
        *("headers", "idle_since", "lost", "status", "transport"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._http = h11.Connection(h11.CLIENT)
        self.status = 0
        """Status code of the latest response; ``headers`` are its headers, in lower case."""
        self.headers: Mapping[str, str] = {}
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the connection is closed."""

    # ---- called by asyncio ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass of it
        notice_lost_peer(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Buffer the data; pause the sender when the buffer is full."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Record the end of the data; return false so that asyncio closes the connection."""
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the connection, clean or not."""
        self._ended = True
        self._error = exc
        if not self.lost.done():
            self.lost.set_result(None)
        self._wake()

    # ---- called by the transport ------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """True if an idle connection can be reused: open, and without unsolicited data."""
        return not self._ended and not self._chunks

    def send(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None
    ) -> None:
        """Send a whole request in one write."""
        http, transport = self._http, self.transport
        assert transport is not None, "a request is sent before the connection is made"
        out = http.send(h11.Request(method=method, target=target, headers=headers)) or b""
        if body:
            out += http.send(h11.Data(data=body)) or b""
        out += http.send(h11.EndOfMessage()) or b""
        transport.write(out)

    async def response(self) -> None:
        """Wait for ``status`` and ``headers`` of the response.

        Raises:
            StreamBrokenError: the connection ended, or the data is not HTTP.
        """
        while True:
            event = self._next_event()
            if event is h11.NEED_DATA:
                await self._receive()
            elif isinstance(event, h11.Response):
                names = ((name.decode("ascii"), value) for name, value in event.headers)
                self.status = event.status_code
                self.headers = {name: value.decode("latin-1") for name, value in names}
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise StreamBrokenError(f"unexpected {type(event).__name__} instead of an answer")

    async def read(self) -> bytes:
        """Return the received part of the body, at least one byte; b"" at its end.

        May be cancelled and called again without loss of data.

        Raises:
            StreamBrokenError: the connection ended before the body did.
        """
        pieces: list[bytes] = []
        while self._http.their_state is h11.SEND_BODY:
            event = self._next_event()
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif event is h11.NEED_DATA:
                if pieces:
                    break
                await self._receive()
        if self._http.their_state is h11.ERROR:
            raise StreamBrokenError("the connection broke before")
        return b"".join(pieces)

    def finish(self) -> bool:
        """Prepare for another request after the body's end; return whether that is possible."""
        http = self._http
        if self._ended or http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        if http.trailing_data[0]:
            return False  # unsolicited data: the next response would be a wrong one
        http.start_next_cycle()
        return True

    def abort(self) -> None:
        """Close immediately."""
        if self.transport is not None:
            self.transport.abort()

    def _next_event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as problem:
            raise StreamBrokenError(f"the connection broke: {self._error or problem}") from problem

    async def _receive(self) -> None:
        while not self._chunks and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._chunks:
            data = self._chunks.popleft()
            self._size -= len(data)
            if self._paused and self._size <= _HIGH_WATER // 2 and self.transport is not None:
                self._paused = False
                self.transport.resume_reading()
            self._http.receive_data(data)
        elif self._error is not None:
            msg = f"the connection broke: {type(self._error).__name__}: {self._error}"
            raise StreamBrokenError(msg) from self._error
        else:
            self._http.receive_data(b"")

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def notice_lost_peer(sock: socket.socket) -> None:
    """Make the kernel end a connection with a lost peer after ``PEER_TIMEOUT_S``."""
    for name, value in _PROBES.items():
        option = getattr(socket, name, None)
        if option is not None:
            level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
            sock.setsockopt(level, option, value)


async def open_connection(
    host: str, port: int, context: ssl.SSLContext | None, server_hostname: str | None
) -> Connection:
    """Connect, with TLS if there is a context.

    Raises:
        OSError: the connection failed, or TLS failed (``ssl.SSLError``).
    """
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(loop),
        host,
        port,
        ssl=context,
        server_hostname=server_hostname if context is not None else None,
    )
    return connection
