"""Ends the connection of a write that was given up, so that nothing of it is delivered later.

Closing a connection is no end of what was written to it: the process's own buffer is flushed first,
and the kernel goes on delivering what it has, for minutes, after the process forgot about it or was
stopped. A write that hung in a broken network would arrive when the network is well again, and
somebody else leads by then. (RFC 9293, 3.10.4 and 3.10.5: CLOSE sends what is queued, ABORT does
not.)
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

_ABORT_ON_CLOSE = struct.pack("ii", 1, 0)
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)

_used: ContextVar[list[asyncio.BaseTransport] | None] = ContextVar("used", default=None)


@contextmanager
def cut_on_failure() -> Iterator[None]:
    """Cut the connection that was used in the block, by ``use``, if the block fails."""
    used: list[asyncio.BaseTransport] = []
    token = _used.set(used)
    try:
        yield
    except BaseException:
        for transport in used:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        raise
    finally:
        _used.reset(token)


def use(transport: asyncio.BaseTransport | None, grace_s: float) -> None:
    """To be called right before a write goes out on ``transport``.

    From then on its end, whatever ends it, discards what is not delivered yet; and what nobody
    confirms for ``grace_s`` is discarded by the kernel itself, even if this process is stopped.
    """
    used = _used.get()
    if transport is None or used is None:
        return
    used.append(transport)
    own = transport.get_extra_info("socket")
    if own is None:
        return
    # Another handle of the same socket: event loops do not let everything through theirs.
    with suppress(OSError), socket.socket(fileno=os.dup(own.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT_ON_CLOSE)
        if _USER_TIMEOUT is not None:
            handle.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, max(1, round(grace_s * 1000)))
