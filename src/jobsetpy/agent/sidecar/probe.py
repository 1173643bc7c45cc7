"""HTTP server for the startup probe: 503 until the barrier lifts, 200 from then on.

It listens from the start, so that the kubelet gets a 503 and not "connection refused". A whole HTTP
library would take longer to load: one request line is read, one fixed answer is given, the
connection is closed (the kubelet opens a new one for each probe anyway). A client costs at most one
small buffer for a few seconds, whatever it sends.

A probe with ``?wait=SECONDS`` is answered when the barrier lifts, or with 503 when that time is
over. The kubelet then sees the lift immediately and not at its next probe, and does not report a
failed probe, with an event, for each second that each pod of a group waits.

Such a probe is also the sign that the barrier holds. A kubelet that restarts counts a container
that has run for 10 s as started and never probes it again: it would start the worker at a closed
barrier. (The kubelet's gate ``ChangeContainerStatusOnKubeletRestart`` avoids it.) Only the kubelet
and the API server know what runs in the pod, and the API server cannot be reached from a node that
is cut off. But the agent sees that probes stop: the connections of a kubelet that ends are closed,
and the next kubelet either probes again, or has forgotten. If none comes within a short time,
``on_lost`` is called, and the agent ends so that all containers of the pod restart. No wait is
needed for the worker: if it runs already, it is ended; if the kubelet is not back yet, it finds an
agent that has ended, and starts none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from jobsetpy.aio import supervise

DEADLINE_S: Final = 5.0
"""Maximum time of one connection, in seconds, without the wait that its request asks for."""

MAX_CONNECTIONS: Final = 128
"""Number above which the oldest connection is dropped for each new one, so that silent clients
cannot lock out the kubelet."""

GONE_S: Final = 2.0
"""Seconds without another waiting probe after one was broken off: a kubelet that only dropped a
connection probes again each second."""

SILENT_S: Final = 15.0
"""Seconds without another waiting probe after one was answered: more than the period of a probe
that states none, so that a slow kubelet does not restart the pods that wait."""

_MAX_HEAD: Final = 8192
_MAX_WAIT_S: Final = 60
_METHODS: Final = (b"GET", b"HEAD")
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
        on_open: called right before a client can see that the barrier has lifted; when it lifts, if
            no client has asked by then, since workers that no probe holds may be started, or if
            waiting probes have stopped, since the kubelet may have started the worker.
        on_lost: called if waiting probes stop before the barrier lifts: nothing may hold the worker
            any longer.
    """

    def __init__(
        self,
        path: str,
        *,
        on_open: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path.encode()
        self._on_open = on_open
        self._on_lost = on_lost
        self._asked = False
        self._waiting: set[asyncio.Timeout] = set()  # those of probes that wait
        self._lost: asyncio.TimerHandle | None = None
        self._lifted = False
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}  # as they arrive

    @property
    def holds(self) -> bool:
        """Return False while waiting probes have stopped and ``on_lost`` is due."""
        return self._lost is None

    def lift(self) -> None:
        """Answer 200 from now on, waiting requests included."""
        self._lifted = True
        if not self._asked or not self.holds:
            self._on_open()
        self._expect(None)
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def listening(self, sock: socket.socket) -> AsyncIterator[None]:
        """Serve on ``sock`` (bound, see :func:`listen`) while the block runs."""
        async with supervise() as tasks:

            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if len(self._connections) >= MAX_CONNECTIONS:
                    oldest = next(iter(self._connections))
                    oldest.transport.abort()  # its task may not have begun, and cannot do so
                    self._connections.pop(oldest).cancel()
                task = tasks.start(self._serve(reader, writer), name="probe")
                self._connections[writer] = task

            server = await asyncio.start_server(connected, sock=sock, limit=_MAX_HEAD)
            try:
                yield
            finally:
                server.close()
                self._expect(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the head of one request, answer, now or later, and close."""
        try:
            with suppress(OSError):  # a timeout, too
                async with asyncio.timeout(DEADLINE_S):
                    head = await _head_of(reader)
                self._asked = self._asked or self._path in head
                if wait_s := self._wait_s(head):
                    await self._wait(reader, wait_s)
                if head:
                    writer.write(self.answer(head))
                writer.close()
                async with asyncio.timeout(DEADLINE_S):
                    await writer.wait_closed()
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    async def _wait(self, reader: asyncio.StreamReader, seconds: int) -> None:
        """Wait until the barrier lifts, the client has gone, or time is over."""
        if self._lifted:
            return
        self._expect(None)
        gone, limit = False, asyncio.timeout(seconds)
        self._waiting.add(limit)
        try:
            with suppress(TimeoutError):
                async with limit:
                    await _closed(reader)
                    gone = True
        finally:
            self._waiting.discard(limit)
        if not self._waiting and not self._lifted:
            self._expect(GONE_S if gone else SILENT_S)

    def _expect(self, seconds: float | None) -> None:
        """Call ``on_lost`` unless another probe comes within some seconds; not at all if None."""
        if self._lost is not None:
            self._lost.cancel()
        self._lost = None
        if seconds is not None:
            self._lost = asyncio.get_running_loop().call_later(seconds, self._on_lost)

    def _wait_s(self, head: bytes) -> int:
        """Return the seconds that a request for the barrier accepts to wait."""
        method, path, query = _request(head)
        if path != self._path or method not in _METHODS:
            return 0
        for part in query.split(b"&"):
            name, _, value = part.partition(b"=")
            if name == b"wait" and value.isdigit():
                return min(int(value[:4]), _MAX_WAIT_S)
        return 0

    def answer(self, head: bytes) -> bytes:
        """Return the whole response to a request, given its bytes up to the empty line."""
        method, path, _ = _request(head)
        if len(head) > _MAX_HEAD:
            return _response(431)
        if not method:
            return _response(400)
        if path != self._path:
            return _response(404, body=method != b"HEAD")
        if method not in _METHODS:
            return _response(405)
        if self._lifted:
            self._on_open()
        return _response(200 if self._lifted else 503, body=method != b"HEAD")


async def _closed(reader: asyncio.StreamReader) -> None:
    """Return when a client has closed its connection."""
    with suppress(OSError):
        while await reader.read(_MAX_HEAD):
            pass


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    """Return a request up to its empty line, or more than the maximum; b"" if it ends before."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= _MAX_HEAD:
        more = await reader.read(_MAX_HEAD)
        if not more:
            return b""
        head += more
    return head


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


def _request(head: bytes) -> tuple[bytes, bytes, bytes]:
    """Return method, path and query of a request; empty ones if it is not one of HTTP/1."""
    words = head.split(b"\n", 1)[0].split()
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return b"", b"", b""
    path, _, query = words[1].partition(b"?")
    return words[0], path, query


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
