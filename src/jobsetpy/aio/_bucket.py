"""A limit on the rate of requests or retries."""

from __future__ import annotations


class TokenBucket:
    """Limit of ``rate`` tokens per second over time, with bursts of ``burst`` tokens, in order.

    A caller that finds the bucket empty takes a future token and waits until it is added, so that
    waits are spread instead of all ending together.

    Args:
        rate: tokens added per second.
        burst: capacity of the bucket, in tokens; 0 for those of one second, at least 1.

    Raises:
        ValueError: an argument is out of range.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int = 0) -> None:
        if rate <= 0 or burst < 0:
            raise ValueError(f"a rate must be positive and a burst not negative: {rate}, {burst}")
        self._rate = rate
        self._burst = float(burst or max(1, int(rate)))
        self._tokens = self._burst
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token; return the seconds until it is available, 0 if it is.

        Args:
            now: monotonic time in seconds.
        """
        if self._at is not None:
            gained = max(0.0, now - self._at) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._at = now
        self._tokens -= 1.0
        # A sum of small gains may be a rounding error below a whole token.
        return 0.0 if self._tokens > -1e-6 else -self._tokens / self._rate

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._tokens += 1.0
