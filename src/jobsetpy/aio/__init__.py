"""Asyncio utilities for long-lived, supervised services: clocks, back-off, task ownership.

Only this package may create tasks. It imports nothing but the standard library, because the agent
pays for each import at every restart.
"""

from jobsetpy.aio._backoff import Backoff, full_jitter
from jobsetpy.aio._clock import Clock, LoopClock, ManualClock, steady
from jobsetpy.aio._supervise import Supervisor, sleep_or, supervise

__all__ = [
    "Backoff",
    "Clock",
    "LoopClock",
    "ManualClock",
    "Supervisor",
    "full_jitter",
    "sleep_or",
    "steady",
    "supervise",
]
