"""Delays of failed items before they are retried."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from jobsetpy.aio import Clock, LoopClock, TokenBucket

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


class RetryDelays(Generic[K]):
    """Default delays: growing for each item that fails again, and a limit of all retries together.

    The n-th failure in a row of one item is delayed by ``base_s * 2**n``, at most ``cap_s``. The
    defaults are client-go's. There is no jitter: two keys that fail together are different work,
    and workers serialise them anyway. Memory: one number for each item that failed and was not
    forgotten since.

    All items share a bucket; client-go's is ten times smaller (100, then 10 per second). With 5,000
    keys in retry when an API server comes back, the last of them would be retried after eight
    minutes. 100 per second is a fifth of the client's limit of 500 requests per second, so retries
    do not crowd out first attempts.

    Args:
        base_s: delay after the first failure, in seconds.
        cap_s: maximum delay of one item, in seconds.
        qps: retries of all items per second, over time.
        burst: retries of all items in a burst.
        clock: source of time.

    Raises:
        ValueError: an argument is out of range.
    """

    __slots__ = ("_base_s", "_bucket", "_cap_s", "_clock", "_failures")

    def __init__(
        self,
        *,
        base_s: float = 0.005,
        cap_s: float = 1000.0,
        qps: float = 100.0,
        burst: int = 1000,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < base_s <= cap_s:
            raise ValueError(f"need 0 < base_s <= cap_s, not {base_s} and {cap_s}")
        self._base_s = base_s
        self._cap_s = cap_s
        self._bucket = TokenBucket(qps, burst)
        self._clock = clock or LoopClock()
        self._failures: dict[K, int] = {}

    def when(self, item: K) -> float:
        """Count a failure of ``item`` and return its delay in seconds."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        own_s = min(self._cap_s, self._base_s * 2.0 ** min(failures, _MAX_EXPONENT))
        return max(own_s, self._bucket.take(self._clock.monotonic()))

    def forget(self, item: K) -> None:
        """Reset the failures of ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: K) -> int:
        """Return the number of failures of ``item`` since ``forget``."""
        return self._failures.get(item, 0)
