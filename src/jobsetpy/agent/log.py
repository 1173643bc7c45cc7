"""JSON lines on standard error, one for each transition.

``logging`` with a formatter would do the same with more imports and more work before the first
line. Values are the caller's: never a token, never a header.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

import msgspec

from jobsetpy.aio import Clock


class Log(Protocol):
    """Something that takes an event and its fields."""

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Write one line; never raises, never blocks for long."""
        ...


class JsonLog:
    """Writes lines such as ``{"ts":…,"level":"info","event":"started","ms":51,…}``.

    Args:
        clock: for the time stamp, and for ``ms``: whole milliseconds since ``start``.
        start: the process's start on ``time.monotonic()``.
        fd: where to write.
    """

    __slots__ = ("_clock", "_fd", "_start")

    def __init__(self, clock: Clock, *, start: float, fd: int = 2) -> None:
        self._clock = clock
        self._start = start
        self._fd = fd

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Write one line; a closed or full standard error loses it, and must not stop a worker."""
        line = {
            "ts": self._clock.now().isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "ms": round((time.monotonic() - self._start) * 1000),
            **fields,
        }
        try:
            os.write(self._fd, msgspec.json.encode(line, enc_hook=str) + b"\n")
        except OSError:
            return
