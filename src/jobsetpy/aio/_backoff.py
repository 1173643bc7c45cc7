"""Waiting times between attempts: exponential, capped, with full jitter.

Full jitter means a uniformly random wait between 0 and the exponential bound. Thousands of agents
that lose the API server at the same moment reconnect spread over the whole interval.
"""

from __future__ import annotations

import random
from collections.abc import Callable


def full_jitter(
    attempt: int,
    *,
    base: float,
    cap: float,
    rand: Callable[[], float] = random.random,
) -> float:
    """Return the seconds to wait before attempt number ``attempt`` (0 is the first retry).

    Args:
        attempt: number of waits before this one.
        base: upper bound of the first wait, in seconds.
        cap: upper bound of every wait, in seconds.
        rand: source of uniform numbers in [0, 1).
    """
    # 2**64 would overflow no float, but an attempt counter that runs for weeks would.
    return min(cap, base * 2.0 ** min(attempt, 62)) * rand()


class Backoff:
    """Attempt counter around :func:`full_jitter`.

    ``next()`` returns the next wait in seconds and counts it; ``reset()`` is called after a
    success. A server's own waiting time (Retry-After) is a minimum: the jitter is added to it, so
    that clients that received the same value do not return together.
    """

    __slots__ = ("_base", "_cap", "_rand", "attempt")

    def __init__(
        self,
        *,
        base: float = 0.1,
        cap: float = 30.0,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._base = base
        self._cap = cap
        self._rand = rand
        self.attempt = 0
        """Number of waits returned since the last reset."""

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds to wait now; ``retry_after`` is the server's minimum, if any."""
        wait = full_jitter(self.attempt, base=self._base, cap=self._cap, rand=self._rand)
        self.attempt += 1
        return wait if retry_after is None else retry_after + wait

    def reset(self) -> None:
        """Start over after a success."""
        self.attempt = 0
