"""Time of a plan, and waits on the monotonic clock for stored wall-clock times.

A time in a status comes from one manager's wall clock and is compared with that of the current
manager. Clocks differ and are adjusted, so each manager compares once, when it first observes the
time, and measures the rest on its monotonic clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

CLOCK_SKEW_S: Final = 60.0
"""Maximum difference between the managers' clocks, in seconds. A past event with a time further in
the future was written before a clock was set back, and its age is unknown."""


@attrs.frozen
class Now:
    """Time of a plan, on two clocks.

    Args:
        wall: aware time, for stored times.
        monotonic: seconds on a clock that never jumps; for durations.
    """

    wall: datetime
    monotonic: float


@attrs.frozen
class PinnedTime:
    """Wall-clock time with the corresponding monotonic time.

    Args:
        at: the stored time.
        monotonic: seconds on the monotonic clock.
    """

    at: datetime
    monotonic: float

    def left_s(self, now: Now) -> float:
        """Return the seconds until then; 0 if it has passed."""
        return max(0.0, self.monotonic - now.monotonic)


def pin(known: PinnedTime | None, at: datetime, now: Now, *, longest_s: float) -> PinnedTime:
    """Return the monotonic time for a stored time.

    Args:
        known: the time pinned before, if any; another stored time is pinned again.
        at: the stored time.
        now: time on both clocks.
        longest_s: maximum wait in seconds, regardless of the wall clock.
    """
    if known is not None and known.at == at:
        return known
    left_s = min((at - now.wall).total_seconds(), longest_s)
    return PinnedTime(at, now.monotonic + max(0.0, left_s))
