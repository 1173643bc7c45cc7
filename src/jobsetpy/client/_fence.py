"""A fence around writes: refused from a moment on, even if that moment passed while they waited.

Whoever leads may write for as long as nobody else can lead, and not a moment longer. The check
stands right before the bytes go out, because a process can be stopped between any two steps and go
on minutes later, with whatever it was about to send.

On the agent's import path: standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar

from jobsetpy.errors import LeadershipLostError


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


in_force: ContextVar[WriteFence | None] = ContextVar("write_fence", default=None)
"""The fence of the request that is being sent; transports that wait before they send look at it."""
