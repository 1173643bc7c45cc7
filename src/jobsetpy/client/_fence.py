"""A fence around a leader's writes: none is sent, or delivered, after leadership ended.

A leader may write only while no other process can lead. The check is made immediately before the
bytes are sent, because a process can be stopped between any two steps and continue minutes later
with the write it was about to send.

A write that was sent must not arrive late either. Closing a connection does not cancel it: the
process's own buffer is flushed first, and the kernel continues to deliver its buffer for minutes,
even if the process is stopped. A write delayed by a broken network would arrive when the network
recovers, and another process may lead by then. The connection of a write that failed or was
cancelled is therefore aborted. (RFC 9293, 3.10.4 and 3.10.5: CLOSE sends queued data, ABORT does
not.)

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

from jobsetpy.errors import LeadershipLostError

_ABORT_ON_CLOSE = (1).to_bytes(4, sys.byteorder) + bytes(4)  # struct linger: on, for 0 seconds
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)


class WriteFence:
    """Fence that is open until a time that can be extended; closed at first.

    Args:
        clock: seconds on a clock that never jumps, continues while the process is stopped, and is
            read at each call. An event loop's own time may be as old as its current iteration.
        grace_s: time after closing during which no other process writes, in seconds: sent data must
            arrive within it, or never.
    """

    __slots__ = ("_clock", "_until", "grace_s")

    def __init__(self, clock: Callable[[], float], *, grace_s: float = 5.0) -> None:
        self._clock = clock
        self._until = -math.inf
        self.grace_s = grace_s

    def open_until(self, moment: float) -> None:
        """Allow writes until ``moment`` of the clock."""
        self._until = moment

    def close(self) -> None:
        """Refuse all further writes."""
        self._until = -math.inf

    def remaining_s(self) -> float:
        """Return the seconds until it closes; 0 or less when it is closed."""
        return self._until - self._clock()

    def check(self) -> None:
        """Check that writes are allowed.

        Raises:
            LeadershipLostError: the fence is closed; nothing was sent.
        """
        if self.remaining_s() <= 0:
            msg = "refused to write: this process is not, or is no longer, the leader"
            raise LeadershipLostError(msg)

    def admit(self, connection: asyncio.WriteTransport | None) -> None:
        """Check, and prepare the connection; call immediately before a write is sent on it.

        From then on any end of the connection discards data that is not delivered yet, and the
        kernel discards data that is not acknowledged within ``grace_s``, even if this process is
        stopped.

        Raises:
            LeadershipLostError: the fence is closed; nothing may be sent.
        """
        self.check()
        own = None if connection is None else connection.get_extra_info("socket")
        if own is None:
            return
        # Another handle of the same socket: those of event loops do not offer all options.
        with suppress(OSError), socket.socket(fileno=os.dup(own.fileno())) as handle:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT_ON_CLOSE)
            if _USER_TIMEOUT is not None:
                timeout_ms = max(1, round(self.grace_s * 1000))
                handle.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, timeout_ms)
