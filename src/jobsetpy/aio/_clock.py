"""Time as a dependency, so that rules about time are tested without waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Two clocks: a monotonic one for durations, and the wall clock for recorded times."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        ...


class LoopClock:
    """The running event loop's clock, or the system's monotonic clock outside a loop."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds of ``loop.time()``, the time base of ``call_at`` and ``asyncio.timeout_at``."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    def now(self) -> datetime:
        """The system's wall clock in UTC."""
        return datetime.now(UTC)


def steady() -> float:
    """Seconds on a clock that never jumps and that continues while the machine sleeps.

    Read from the system at each call: uvloop's loop time is that of its current iteration, which
    for a process that was stopped is the time before the stop.
    """
    return time.clock_gettime(_STEADY)


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ManualClock:
    """A clock for tests: it moves only by ``advance``."""

    __slots__ = ("_mono", "_now")

    def __init__(self, now: datetime | None = None) -> None:
        self._mono = 1000.0
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, moved by ``advance``."""
        return self._mono

    def now(self) -> datetime:
        """The simulated wall clock."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by ``seconds`` (never back)."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds}")
        self._mono += seconds
        self._now += timedelta(seconds=seconds)
