"""A token bucket for each object, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from jobsetpy.aio import Clock, LoopClock

_MAX_OBJECTS = 4096


class ObjectBuckets:
    """How many Events each object may still have.

    The ``max_objects`` that asked last are remembered; one that is forgotten begins with a full
    bucket. A full bucket is the same as none, so nothing is lost for objects that are quiet.

    Args:
        burst: tokens in a full bucket.
        refill_s: seconds in which one token comes back.
        clock: where time comes from.
        max_objects: how many buckets are kept.
    """

    __slots__ = ("_buckets", "_burst", "_clock", "_max_objects", "_refill_s")

    def __init__(
        self,
        *,
        burst: int,
        refill_s: float,
        clock: Clock | None = None,
        max_objects: int = _MAX_OBJECTS,
    ) -> None:
        self._burst = float(burst)
        self._refill_s = refill_s
        self._clock: Clock = clock or LoopClock()
        self._max_objects = max_objects
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._buckets)

    def take(self, who: Hashable) -> bool:
        """Take a token of ``who``; whether there was one. O(1)."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(who, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) / self._refill_s)
        enough = tokens >= 1.0
        self._buckets[who] = (tokens - 1.0 if enough else tokens, now)
        if len(self._buckets) > self._max_objects:
            self._buckets.popitem(last=False)
        return enough
