"""Time of a plan, and stored wall-clock times that are waited for on the monotonic clock.

A time in a status was written by some manager's wall clock, and is compared with that of the
manager that works now. Clocks differ and are set, so each manager compares once, when it first sees
the time, and counts what is left on its monotonic clock from then on.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

CLOCK_SKEW_S: Final = 60.0
"""Maximum difference between the managers' clocks, in seconds. A past event whose time lies further
in the future was written before a clock was set back, and its age is not known."""


@attrs.frozen
class Now:
    """Time of a plan, on two clocks.

    Args:
        wall: aware; for what is written down.
        monotonic: seconds on a clock that never jumps; for durations.
    """

    wall: datetime
    monotonic: float


@attrs.frozen
class PinnedTime:
    """A wall-clock time with the monotonic time that it stands for.

    Args:
        at: as it is stored.
        monotonic: seconds on the monotonic clock.
    """

    at: datetime
    monotonic: float

    def left_s(self, now: Now) -> float:
        """Seconds until then; 0 if it has come."""
        return max(0.0, self.monotonic - now.monotonic)


def pin(known: PinnedTime | None, at: datetime, now: Now, *, longest_s: float) -> PinnedTime:
    """Return the monotonic time for a stored time.

    Args:
        known: as pinned before, if it was; another stored time is pinned again.
        at: as it is stored.
        now: on both clocks.
        longest_s: maximum wait, in seconds, whatever the wall clock says.
    """
    if known is not None and known.at == at:
        return known
    left_s = min((at - now.wall).total_seconds(), longest_s)
    return PinnedTime(at, now.monotonic + max(0.0, left_s))
