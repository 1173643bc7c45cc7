"""How long a failed item waits before it is tried again.

Two limits answer two questions. ``ItemExponential``: how often may *this* item fail?
``TokenBucket``: how many retries may *all* items together cause? ``MaxOf`` obeys both, and is what
a controller gets by default.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from jobsetpy.aio import Clock, LoopClock

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

_MAX_EXPONENT = 62
"""2 to this many steps exceeds any cap; a larger exponent would overflow the float one day."""


class RateLimiter(Protocol[K_contra]):
    """Tells how long an item has to wait, and counts that it asked."""

    def when(self, item: K_contra) -> float:
        """Seconds until ``item`` may be tried again; each call counts as one retry."""
        ...

    def forget(self, item: K_contra) -> None:
        """``item`` succeeded (or is given up): its next failure is the first one again."""
        ...

    def num_requeues(self, item: K_contra) -> int:
        """How often ``when`` was asked for ``item`` since it was last forgotten."""
        ...


class ItemExponential(Generic[K]):
    """``base_s * 2**n`` for the n-th failure in a row of one item, at most ``cap_s``.

    The defaults are client-go's: 5 ms to 1,000 s. There is no jitter: two keys that fail together
    are different work, and workers serialise them anyway. Memory: one number for each item that
    failed and was not forgotten since.

    Args:
        base_s: wait after the first failure, in seconds.
        cap_s: the longest wait, in seconds.
    """

    __slots__ = ("_base_s", "_cap_s", "_failures")

    def __init__(self, *, base_s: float = 0.005, cap_s: float = 1000.0) -> None:
        if not 0 < base_s <= cap_s:
            msg = f"need 0 < base_s <= cap_s, not {base_s} and {cap_s}"
            raise ValueError(msg)
        self._base_s = base_s
        self._cap_s = cap_s
        self._failures: dict[K, int] = {}

    def when(self, item: K) -> float:
        """Seconds to wait after one more failure of ``item``."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return min(self._cap_s, self._base_s * 2.0 ** min(failures, _MAX_EXPONENT))

    def forget(self, item: K) -> None:
        """Start over with ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: K) -> int:
        """Failures of ``item`` since it was last forgotten."""
        return self._failures.get(item, 0)


class TokenBucket(Generic[K]):
    """At most ``burst`` retries at once and ``qps`` a second over time, whatever the item.

    A caller that finds the bucket empty takes a token that does not exist yet: its wait is the
    time until that token comes, so waits line up instead of all ending together.

    Args:
        qps: tokens that come back each second.
        burst: tokens in a full bucket.
        clock: where time comes from.
    """

    __slots__ = ("_at", "_burst", "_clock", "_qps", "_tokens")

    def __init__(self, *, qps: float, burst: int, clock: Clock | None = None) -> None:
        if qps <= 0 or burst < 1:
            msg = f"need qps > 0 and burst >= 1, not {qps} and {burst}"
            raise ValueError(msg)
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock or LoopClock()
        self._tokens = float(burst)
        self._at: float | None = None

    def when(self, item: K) -> float:  # noqa: ARG002 - all items share the bucket
        """Take a token; seconds until it is really there."""
        now = self._clock.monotonic()
        if self._at is not None:
            gained = (now - self._at) * self._qps
            self._tokens = min(self._burst, self._tokens + max(0.0, gained))
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def forget(self, item: K) -> None:
        """Nothing: the bucket knows no items."""

    def num_requeues(self, item: K) -> int:  # noqa: ARG002 - all items share the bucket
        """Always 0: the bucket knows no items."""
        return 0


class MaxOf(Generic[K]):
    """The longest wait that any of ``limiters`` asks for; every one of them counts the retry."""

    __slots__ = ("_limiters",)

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            msg = "MaxOf needs at least one limiter"
            raise ValueError(msg)
        self._limiters = limiters

    def when(self, item: K) -> float:
        """The longest of all waits."""
        return max([limiter.when(item) for limiter in self._limiters])

    def forget(self, item: K) -> None:
        """Start over with ``item`` in every limiter."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: K) -> int:
        """The highest count of any limiter."""
        return max([limiter.num_requeues(item) for limiter in self._limiters])


def default_rate_limiter(
    *,
    base_s: float = 0.005,
    cap_s: float = 1000.0,
    qps: float = 100.0,
    burst: int = 1000,
    clock: Clock | None = None,
) -> MaxOf[Hashable]:
    """Per item 5 ms doubling up to 1,000 s; over all items 1,000 retries, then 100 a second.

    client-go's bucket is ten times smaller (100, then 10 a second). With 5,000 keys in retry when
    an API server comes back, that would have the last of them tried after eight minutes. 100 a
    second is a fifth of the client's own limit of 500 requests a second, so retries do not crowd
    out first attempts.
    """
    return MaxOf(
        ItemExponential[Hashable](base_s=base_s, cap_s=cap_s),
        TokenBucket[Hashable](qps=qps, burst=burst, clock=clock),
    )
