"""Log of JSON lines on standard error, one for each transition.

``logging`` with a formatter would need more imports and more work before the first line. Callers
never log a token or a header.

A log that is not read must not stop the agent: with a slow disk or a stopped container runtime, the
pipe behind standard error fills up, and a write to it would block. So a line that does not fit is
dropped, and the next one that fits has the number of dropped lines.
"""

from __future__ import annotations

import os
import select
import stat
import time
from typing import Final, Protocol

import msgspec

from jobsetpy.aio import Clock

MAX_LINE: Final = select.PIPE_BUF
"""Length in bytes above which a line is cut off. A pipe that polls as writable takes that much."""


class Log(Protocol):
    """Function that logs an event with its fields."""

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Write one line; never raises, never blocks for long."""
        ...


class JsonLog:
    """Log of lines such as ``{"ts":…,"level":"info","event":"started","ms":51,…}``.

    The field ``dropped_lines`` counts lines before this one that could not be written.

    Args:
        clock: clock for the time stamp.
        start: the process's start on ``time.monotonic()``; ``ms`` is whole milliseconds since then.
        fd: file descriptor to write to.
    """

    __slots__ = ("_clock", "_dropped", "_fd", "_is_pipe", "_ready", "_start")

    def __init__(self, clock: Clock, *, start: float, fd: int = 2) -> None:
        self._clock = clock
        self._start = start
        self._fd = fd
        self._dropped = 0
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)
        try:
            self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        except OSError:
            self._is_pipe = False

    def __call__(self, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Write one line, or drop it if standard error is closed or full."""
        line = {
            "ts": self._clock.now().isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "ms": round((time.monotonic() - self._start) * 1000),
            **fields,
        }
        if self._dropped:
            line["dropped_lines"] = self._dropped
        data = msgspec.json.encode(line, enc_hook=str)[: MAX_LINE - 1] + b"\n"
        self._dropped = 0 if self._write(data) else self._dropped + 1

    def _write(self, data: bytes) -> bool:
        """Write without blocking; return True if the line was written.

        Standard error cannot be made non-blocking: it is the worker's as well.
        """
        try:
            if not self._ready.poll(0):
                return False
            if self._is_pipe:
                # The worker may have filled it since the poll. Kernels before 6.4 cannot do this.
                try:
                    os.pwritev(self._fd, [data], -1, os.RWF_NOWAIT)
                except BlockingIOError:
                    return False
                except OSError:
                    pass
                else:
                    return True
            os.write(self._fd, data)
        except OSError:
            return False
        return True
