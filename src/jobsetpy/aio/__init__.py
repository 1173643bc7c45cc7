"""Asyncio utilities for long-lived, supervised services: clocks, back-off, rates, task ownership.

Only this package may create tasks. It imports nothing but the standard library, because the agent
pays for each import at every restart.
"""

from jobsetpy.aio._backoff import Backoff as Backoff
from jobsetpy.aio._backoff import full_jitter as full_jitter
from jobsetpy.aio._bucket import TokenBucket as TokenBucket
from jobsetpy.aio._clock import Clock as Clock
from jobsetpy.aio._clock import LoopClock as LoopClock
from jobsetpy.aio._clock import ManualClock as ManualClock
from jobsetpy.aio._clock import steady as steady
from jobsetpy.aio._supervise import Supervisor as Supervisor
from jobsetpy.aio._supervise import sleep_or as sleep_or
from jobsetpy.aio._supervise import supervise as supervise
from jobsetpy.aio._timer import Timer as Timer
