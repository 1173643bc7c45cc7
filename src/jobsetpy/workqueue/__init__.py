"""A queue of keys with the guarantees that controllers need, listed in :class:`WorkQueue`.

Not ``asyncio.Queue``, which would neither merge equal items nor keep two workers off one item.
"""

from jobsetpy.workqueue._delaying import DelayHeap
from jobsetpy.workqueue._queue import QueueShutDown, WorkQueue
from jobsetpy.workqueue._ratelimiters import (
    ItemExponential,
    MaxOf,
    RateLimiter,
    TokenBucket,
    default_rate_limiter,
)

__all__ = [
    "DelayHeap",
    "ItemExponential",
    "MaxOf",
    "QueueShutDown",
    "RateLimiter",
    "TokenBucket",
    "WorkQueue",
    "default_rate_limiter",
]
