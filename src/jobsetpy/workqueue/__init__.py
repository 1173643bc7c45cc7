"""A queue of keys with the guarantees that controllers need, listed in :class:`WorkQueue`.

Not ``asyncio.Queue``, which would neither merge equal items nor keep two workers off one item.
"""

from jobsetpy.workqueue._delaying import DelayHeap as DelayHeap
from jobsetpy.workqueue._queue import QueueShutDown as QueueShutDown
from jobsetpy.workqueue._queue import WorkQueue as WorkQueue
from jobsetpy.workqueue._ratelimiters import RateLimiter as RateLimiter
from jobsetpy.workqueue._ratelimiters import RetryDelays as RetryDelays
