"""Delays of failed items before they are retried.

Two limits answer two questions. ``ItemExponential``: how often may *this* item fail?
``TokenBucket``: how many retries may *all* items together cause? ``MaxOf`` applies both and is the
default of a controller.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from jobsetpy.aio import Clock, LoopClock

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

_MAX_EXPONENT = 62
"""Maximum exponent of the back-off: above any cap; a larger one could overflow the float."""


class RateLimiter(Protocol[K_contra]):
    """Source of the delay of a failed item; counts its retries."""

    def when(self, item: K_contra) -> float:
        """Return the seconds until ``item`` may be retried; each call counts as one retry."""
        ...

    def forget(self, item: K_contra) -> None:
        """Reset the retries of ``item``, after success or when giving up."""
        ...

    def num_requeues(self, item: K_contra) -> int:
        """Return the number of calls of ``when`` for ``item`` since ``forget``."""
        ...


class ItemExponential(Generic[K]):
    """``base_s * 2**n`` for the n-th failure in a row of one item, at most ``cap_s``.

    The defaults are client-go's: 5 ms to 1,000 s. There is no jitter: two keys that fail together
    are different work, and workers serialise them anyway. Memory: one number for each item that
    failed and was not forgotten since.

    Args:
        base_s: delay after the first failure, in seconds.
        cap_s: maximum delay, in seconds.
    """

    __slots__ = ("_base_s", "_cap_s", "_failures")

    def __init__(self, *, base_s: float = 0.005, cap_s: float = 1000.0) -> None:
        if not 0 < base_s <= cap_s:
            raise ValueError(f"need 0 < base_s <= cap_s, not {base_s} and {cap_s}")
        self._base_s = base_s
        self._cap_s = cap_s
        self._failures: dict[K, int] = {}

    def when(self, item: K) -> float:
        """Count a failure of ``item`` and return its delay in seconds."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return min(self._cap_s, self._base_s * 2.0 ** min(failures, _MAX_EXPONENT))

    def forget(self, item: K) -> None:
        """Reset the failures of ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: K) -> int:
        """Return the number of failures of ``item`` since ``forget``."""
        return self._failures.get(item, 0)


class TokenBucket(Generic[K]):
    """Limit of all retries together: bursts of ``burst`` retries, and ``qps`` per second over time.

    A caller that finds the bucket empty takes a future token: its delay is the time until that
    token is added, so that delays are spread instead of all ending together.

    Args:
        qps: tokens added per second.
        burst: capacity of the bucket, in tokens.
        clock: source of time.
    """

    __slots__ = ("_at", "_burst", "_clock", "_qps", "_tokens")

    def __init__(self, *, qps: float, burst: int, clock: Clock | None = None) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"need qps > 0 and burst >= 1, not {qps} and {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock or LoopClock()
        self._tokens = float(burst)
        self._at: float | None = None

    def when(self, item: K) -> float:  # noqa: ARG002 - all items share the bucket
        """Take a token; return the seconds until it is available."""
        now = self._clock.monotonic()
        if self._at is not None:
            gained = (now - self._at) * self._qps
            self._tokens = min(self._burst, self._tokens + max(0.0, gained))
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def forget(self, item: K) -> None:
        """Do nothing: the bucket has no state per item."""

    def num_requeues(self, item: K) -> int:  # noqa: ARG002 - all items share the bucket
        """Return 0: the bucket has no state per item."""
        return 0


class MaxOf(Generic[K]):
    """Longest delay of several ``limiters``, each of which counts the retry."""

    __slots__ = ("_limiters",)

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ValueError("MaxOf needs at least one limiter")
        self._limiters = limiters

    def when(self, item: K) -> float:
        """Return the longest of all delays, in seconds."""
        return max([limiter.when(item) for limiter in self._limiters])

    def forget(self, item: K) -> None:
        """Reset ``item`` in every limiter."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: K) -> int:
        """Return the highest count of any limiter."""
        return max([limiter.num_requeues(item) for limiter in self._limiters])


def default_rate_limiter(
    *,
    base_s: float = 0.005,
    cap_s: float = 1000.0,
    qps: float = 100.0,
    burst: int = 1000,
    clock: Clock | None = None,
) -> MaxOf[Hashable]:
    """Return the default limiter: 5 ms to 1,000 s per item; 1,000 retries, then 100/s, over all.

    client-go's bucket is ten times smaller (100, then 10 per second). With 5,000 keys in retry
    when an API server comes back, the last of them would be retried after eight minutes. 100 per
    second is a fifth of the client's limit of 500 requests per second, so retries do not crowd out
    first attempts.
    """
    return MaxOf(
        ItemExponential[Hashable](base_s=base_s, cap_s=cap_s),
        TokenBucket[Hashable](qps=qps, burst=burst, clock=clock),
    )
