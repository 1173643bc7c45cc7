"""Limits that keep slow and silent clients from holding a server's connections.

The HTTP server limits the time of a response, but not the time that a client takes to send its
headers, nor that of an idle connection. A guard stands between transport and HTTP protocol and
aborts connections that take too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

HEADERS_S = 10.0
"""Timeout from the first byte of a request (or the connection) to the end of its headers."""

IDLE_S = 120.0
"""Timeout between two requests, in seconds. More than the 90 s after which the API server closes a
connection itself, so that it never sends a request into one that is being closed here."""

_END_S: Final = 1.0
_POLL_S: Final = 0.02


class Guard(asyncio.Protocol):
    """Passes everything to ``inner``, and aborts a connection that exceeds a timeout.

    Args:
        inner: the HTTP protocol.
        headers_s: timeout of the headers, in seconds.
        idle_s: timeout of a connection without a request, in seconds.
    """

    def __init__(self, inner: asyncio.Protocol, *, headers_s: float, idle_s: float) -> None:
        self._inner = inner
        self._headers_s = headers_s
        self._idle_s = idle_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False
        self._made = False

    @contextmanager
    def request(self) -> Iterator[None]:
        """Suspend the timeouts while a request is being answered: it has its own deadline."""
        self._set(None)
        try:
            yield
        finally:
            self._idle = True
            self._set(self._idle_s)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of the headers."""
        self._made = True
        self._transport = transport  # type: ignore[assignment] # TCP and TLS have full transports
        self._set(self._headers_s)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timeouts."""
        self._transport = None
        self._set(None)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timeout at the beginning of a request; more bytes do not extend it."""
        if self._idle:
            self._idle = False
            self._set(self._headers_s)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on the end of the client's data."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read enough."""
        self._inner.resume_writing()

    @property
    def ended(self) -> bool:
        """True if a connection was made and is closed."""
        return self._made and self._transport is None

    def end(self) -> None:
        """Abort the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()

    def _set(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end)


class Guards:
    """Protocol factory: the guarded connections of one server.

    Args:
        factory: creates the HTTP protocols.
        headers_s, idle_s: as in :class:`Guard`.
    """

    def __init__(
        self, factory: Callable[[], Any], *, headers_s: float = HEADERS_S, idle_s: float = IDLE_S
    ) -> None:
        self._factory = factory
        self._headers_s = headers_s
        self._idle_s = idle_s
        # Weak: a connection whose handshake fails is never reported again.
        self._guards: WeakSet[Guard] = WeakSet()

    def __call__(self) -> Guard:
        """Return the guard of a connection that was just accepted."""
        guard = Guard(self._factory(), headers_s=self._headers_s, idle_s=self._idle_s)
        self._guards.add(guard)
        return guard

    async def end(self) -> None:
        """Abort the remaining connections; the server accepts no more.

        Handshakes in progress are awaited, since nothing else can reach their sockets; for a second
        at most.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _END_S
        while True:
            for guard in list(self._guards):
                guard.end()
            await asyncio.sleep(0)  # transports report their end in the loop's next turn
            if loop.time() >= ends_at or all(guard.ended for guard in self._guards):
                return
            await asyncio.sleep(_POLL_S)
