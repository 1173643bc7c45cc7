"""Token buckets by key, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import attrs

from jobsetpy.aio import Clock


@attrs.define(eq=False, kw_only=True)
class TokenBuckets:
    """One token bucket for each key.

    The ``max_keys`` most recently used are kept; a dropped key starts again with a full bucket.
    A full bucket is equivalent to none, so quiet keys lose nothing.

    Args:
        burst: tokens in a full bucket.
        refill_s: interval after which one token is added, in seconds.
        clock: time source.
        max_keys: maximum number of buckets.
    """

    _burst: int
    _refill_s: float
    _clock: Clock
    _max_keys: int = 4096
    _buckets: OrderedDict[Hashable, tuple[float, float]] = attrs.field(
        factory=OrderedDict, init=False
    )

    def __len__(self) -> int:
        """Number of remembered keys."""
        return len(self._buckets)

    def take(self, key: Hashable) -> bool:
        """Take a token of ``key``; return False if there was none. O(1)."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) / self._refill_s)
        enough = tokens >= 1.0
        self._buckets[key] = (tokens - 1.0 if enough else tokens, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return enough
