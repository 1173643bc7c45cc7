"""A clock for tests whose event loop runs in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The running event loop's time, and a wall clock that keeps pace with it.

    For loops whose time jumps to the next timer, such as those of the pytest plugin ``looptime``:
    components that are given this clock agree with the loop's timers. Where no loop runs, or where
    a test moves the time itself, use ``aio.ManualClock``.

    Args:
        start: the wall clock when the loop's time is 0.
    """

    __slots__ = ("_start",)

    def __init__(self, start: datetime = _START) -> None:
        self._start = start

    def monotonic(self) -> float:
        """Seconds of ``loop.time()``."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """``start``, and the loop's time since."""
        return self._start + timedelta(seconds=self.monotonic())
