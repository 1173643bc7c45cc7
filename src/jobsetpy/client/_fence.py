"""A fence around a leader's writes: none is sent, or delivered, after leadership ended.

A leader may write for as long as nobody else can lead, and not a moment longer. The check stands
right before the bytes go out, because a process can be stopped between any two steps and go on
minutes later, with whatever it was about to send.

What was sent must not arrive late either. Closing a connection does not end what was written to it:
the process's own buffer is flushed first, and the kernel goes on delivering what it has, for
minutes, after the process forgot about it or was stopped. A write that hung in a broken network
would arrive when the network is well again, and somebody else leads by then. So the connection of a
write that failed or was cancelled is aborted. (RFC 9293, 3.10.4 and 3.10.5: CLOSE sends what is
queued, ABORT does not.)

On the agent's import path: standard library only.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from jobsetpy.errors import LeadershipLostError

_ABORT_ON_CLOSE = (1).to_bytes(4, sys.byteorder) + bytes(4)  # struct linger: on, for 0 seconds
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)


class WriteFence:
    """Open until a moment that may be moved on. It begins closed.

    Args:
        clock: seconds on a clock that never jumps, goes on while the process is stopped, and is
            read anew at each call. An event loop's own time may be as old as its present round.
        grace_s: for how long after it closed nobody else writes, in seconds: what was sent before
            has to arrive until then, or never.
    """

    __slots__ = ("_clock", "_until", "grace_s")

    def __init__(self, clock: Callable[[], float], *, grace_s: float = 5.0) -> None:
        self._clock = clock
        self._until = -math.inf
        self.grace_s = grace_s

    def open_until(self, moment: float) -> None:
        """Let writes pass until ``moment`` of the clock."""
        self._until = moment

    def close(self) -> None:
        """Let nothing pass any more."""
        self._until = -math.inf

    def remaining_s(self) -> float:
        """Seconds until it closes; 0 or less when it is closed."""
        return self._until - self._clock()

    def check(self) -> None:
        """Return if writes may pass.

        Raises:
            LeadershipLostError: they may not; nothing was sent.
        """
        if self.remaining_s() <= 0:
            msg = "refused to write: this process does not lead, or not any more"
            raise LeadershipLostError(msg)

    def admit(self, connection: asyncio.WriteTransport | None) -> None:
        """Check, and prepare the connection; to be called right before a write is sent on it.

        From then on the end of the connection, whatever ends it, discards what is not delivered
        yet; and what nobody confirms for ``grace_s`` is discarded by the kernel itself, even if
        this process is stopped.

        Raises:
            LeadershipLostError: the fence is closed; nothing may be sent.
        """
        self.check()
        own = None if connection is None else connection.get_extra_info("socket")
        if own is None:
            return
        # Another handle of the same socket: event loops do not let everything through theirs.
        with suppress(OSError), socket.socket(fileno=os.dup(own.fileno())) as handle:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT_ON_CLOSE)
            if _USER_TIMEOUT is not None:
                timeout_ms = max(1, round(self.grace_s * 1000))
                handle.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, timeout_ms)


class Lent(Protocol):
    """A connection while a request has it; without a transport when it was given back."""

    @property
    def transport(self) -> asyncio.WriteTransport | None: ...


class AbortOnFailure:
    """Aborts the connection that a request was sent on if the block fails or is cancelled.

    What would be closed instead may stay open for long: TLS waits for the peer's answer.

    Args:
        fence: of the request, if it has one.
    """

    __slots__ = ("_fence", "_used")

    def __init__(self, fence: WriteFence | None) -> None:
        self._fence = fence
        self._used: list[tuple[Lent, asyncio.WriteTransport]] = []

    def admit(self, connection: Lent) -> None:
        """To be called right before the request is sent: ``fence.admit``, if there is a fence."""
        transport = connection.transport
        if self._fence is not None:
            self._fence.admit(transport)
        if transport is not None:
            self._used.append((connection, transport))

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Abort, after a failure."""
        if kind is None:
            return
        for connection, transport in self._used:
            # One that was given back to be kept may carry somebody else's request by now.
            if connection.transport is transport or transport.is_closing():
                transport.abort()
