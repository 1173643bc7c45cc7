"""Client-side token bucket, so that one process cannot overload the API server."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

_ALMOST_ONE = 1.0 - 1e-6  # a timer may fire a rounding error too early


class RateLimiter:
    """Limit of ``burst`` requests in a burst and ``qps`` per second, first come, first served.

    Every operation is O(1). A cancelled waiter costs no token, even if it was admitted in the same
    iteration of the loop.

    Args:
        qps: tokens added per second; 0 disables the limit.
        burst: capacity of the bucket; 0 for the tokens of one second, at least 1.
    """

    DEFAULT_QPS: Final = 500.0
    DEFAULT_BURST: Final = 500
    """Capacity of the bucket of clients created by ``connect()``; their rate is ``DEFAULT_QPS``."""

    __slots__ = ("_burst", "_qps", "_stamp", "_timer", "_tokens", "_waiters")

    def __init__(self, qps: float, burst: int = 0) -> None:
        if qps < 0 or burst < 0:
            raise ValueError(f"qps and burst cannot be negative: {qps}, {burst}")
        self._qps = qps
        self._burst = float(burst or max(1, int(qps)))
        self._tokens = self._burst
        self._stamp: float | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def try_acquire(self) -> bool:
        """Take a token if one is available and there are no waiters; never blocks."""
        if not self._qps:
            return True
        if self._waiters:
            return False
        self._refill(asyncio.get_running_loop().time())
        if self._tokens < _ALMOST_ONE:
            return False
        self._tokens -= 1.0
        return True

    async def acquire(self) -> None:
        """Wait for a token. The caller sets the deadline by ``asyncio.timeout_at``."""
        if self.try_acquire():
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters.append(turn)
        self._schedule(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._tokens += 1.0  # admitted and then cancelled: return the token
                self._release()
            raise

    def _refill(self, now: float) -> None:
        if self._stamp is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._qps)
        self._stamp = now

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            wait = max(0.0, 1.0 - self._tokens) / self._qps
            self._timer = loop.call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._release()

    def _release(self) -> None:
        loop = asyncio.get_running_loop()
        self._refill(loop.time())
        waiters = self._waiters
        while waiters:
            if waiters[0].done():  # cancelled while waiting
                waiters.popleft()
            elif self._tokens >= _ALMOST_ONE:
                self._tokens -= 1.0
                waiters.popleft().set_result(None)
            else:
                self._schedule(loop)
                return
