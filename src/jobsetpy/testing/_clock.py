"""Clock for tests whose event loop runs in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The running event loop's time, and a wall clock in step with it.

    For loops whose time jumps to the next timer, such as those of the pytest plugin ``looptime``:
    components that are given this clock agree with the loop's timers. Without a running loop, or
    in a test that moves the time itself, use ``aio.ManualClock``.

    Args:
        start: wall-clock time when the loop's time is 0.
    """

    __slots__ = ("_start",)

    def __init__(self, start: datetime = _START) -> None:
        self._start = start

    def monotonic(self) -> float:
        """Return ``loop.time()``, in seconds."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """Return ``start`` plus the loop's time."""
        return self._start + timedelta(seconds=self.monotonic())
