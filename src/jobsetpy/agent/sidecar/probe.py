"""HTTP server for the startup probe: 503 until the barrier lifts, 200 from then on.

It listens from the start, so that the kubelet gets a 503 and not "connection refused". A whole HTTP
library would take longer to load: one request line is read, one fixed answer is given, the
connection is closed (the kubelet opens a new one for each probe anyway). A client costs at most one
small buffer for a few seconds, whatever it sends.

A probe with ``?wait=SECONDS`` is answered when the barrier lifts, or with 503 when that time is
over. The kubelet then sees the lift immediately and not at its next probe, and does not report a
failed probe, with an event, for each second that each pod of a group waits.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

_MAX_HEAD: Final = 8192
_MAX_WAIT_S: Final = 60
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class BarrierServer:
    """Server that answers ``GET`` and ``HEAD`` on one path by the state of the barrier.

    Args:
        path: URL path of the barrier; every other one gives 404. Of a query, only ``wait`` is read:
            seconds to delay a 503, at most 60.
        deadline_s: maximum time of one connection, without that wait.
        max_connections: number above which the oldest connection is dropped for each new one, so
            that silent clients cannot lock out the kubelet.
        on_open: called once, right before a client can see that the barrier has lifted; when it
            lifts, if no client has asked by then, since workers that no probe holds may be started.
    """

    def __init__(
        self,
        path: str,
        *,
        deadline_s: float = 5.0,
        max_connections: int = 128,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path.encode()
        self._on_open: Callable[[], None] | None = on_open
        self._asked = False
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        self._connections: dict[_Connection, None] = {}  # in order of arrival
        self._waiting: dict[_Connection, bytes] = {}
        self._lifted = False

    def lift(self) -> None:
        """Answer 200 from now on, waiting requests included."""
        self._lifted = True
        if not self._asked:
            self._open()
        waiting, self._waiting = self._waiting, {}
        for connection, head in waiting.items():
            connection.finish(self.answer(head))

    def _open(self) -> None:
        if self._on_open is not None:
            self._on_open()
            self._on_open = None

    def close(self) -> None:
        """Answer 503 again; for a supervisor that joins the next epoch."""
        self._lifted = False

    @asynccontextmanager
    async def listening(self, sock: socket.socket) -> AsyncIterator[None]:
        """Serve on ``sock`` (bound, see :func:`listen`) while the block runs."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), sock=sock)
        try:
            yield
        finally:
            server.close()
            for connection in list(self._connections):
                connection.drop()

    def opened(self, connection: _Connection) -> float:
        """Register a new connection and return its maximum time in seconds."""
        if len(self._connections) >= self._max_connections:
            next(iter(self._connections)).drop()
        self._connections[connection] = None
        return self._deadline_s

    def closed(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        self._waiting.pop(connection, None)

    def respond(self, connection: _Connection, head: bytes) -> None:
        """Answer a request, now or later."""
        self._asked = self._asked or self._path in head
        wait_s = 0 if self._lifted else self._wait_s(head)
        if wait_s:
            self._waiting[connection] = head
            connection.wait(wait_s)
        else:
            connection.finish(self.answer(head))

    def waited(self, connection: _Connection) -> None:
        """Answer a request whose wait is over while the barrier is closed."""
        head = self._waiting.pop(connection, None)
        if head is not None:
            connection.finish(self.answer(head))

    def _wait_s(self, head: bytes) -> int:
        """Return the seconds that a request for the barrier accepts to wait."""
        words = head.split(b"\n", 1)[0].split()
        if len(words) != 3 or words[0] not in {b"GET", b"HEAD"}:
            return 0
        path, _, query = words[1].partition(b"?")
        if path != self._path or not words[2].startswith(b"HTTP/1."):
            return 0
        for part in query.split(b"&"):
            name, _, value = part.partition(b"=")
            if name == b"wait" and value.isdigit():
                return min(int(value[:4]), _MAX_WAIT_S)
        return 0

    def answer(self, head: bytes) -> bytes:
        """Return the whole response to a request, given its bytes up to the empty line."""
        words = head.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(400)
        method, target = words[0], words[1].split(b"?", 1)[0]
        if target != self._path:
            return _response(404, body=method != b"HEAD")
        if method not in {b"GET", b"HEAD"}:
            return _response(405)
        if self._lifted:
            self._open()
        return _response(200 if self._lifted else 503, body=method != b"HEAD")


class _Connection(asyncio.Protocol):
    """Connection of one client: reads the head of one request, answers and closes."""

    __slots__ = ("_deadline_s", "_head", "_server", "_timer", "_transport")

    def __init__(self, server: BarrierServer) -> None:
        self._server = server
        self._head = bytearray()
        self._deadline_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline_s = self._server.opened(self)
        self._arm(self._deadline_s, self.drop)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._head += data
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            head = bytes(self._head)
            self._head.clear()
            self._server.respond(self, head)
        elif len(self._head) > _MAX_HEAD:
            self.finish(_response(431))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio.Protocol
        self._server.closed(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def drop(self) -> None:
        """Abort the connection, even with unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def wait(self, seconds: float) -> None:
        """Stay open without an answer for a number of seconds."""
        self._arm(seconds, self._server.waited, self)

    def finish(self, response: bytes) -> None:
        """Answer and close."""
        if self._transport is not None:
            self._arm(self._deadline_s, self.drop)
            self._transport.write(response)
            self._transport.close()

    def _arm(self, seconds: float, then: Callable[..., None], *args: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then, *args)


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket; ``address`` "" means all addresses, IPv6 and IPv4 if both exist.

    The socket is created here because asyncio would start a resolver thread for a host name.

    Raises:
        OSError: the address is not this machine's, or the port is in use.
    """
    if not address and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address or "0.0.0.0", port), family=family, backlog=128)  # noqa: S104 - the kubelet probes the pod's address


def _response(status: int, *, body: bool = True) -> bytes:
    """Return a complete HTTP/1.1 response with the reason as its text."""
    text = f"{_REASONS[status]}\n"
    allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
        f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return (head + (text if body else "")).encode()
