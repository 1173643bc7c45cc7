"""Timeouts of tests, which are stated for an idle machine and grow with the load of this one.

A test's timeout ends hangs; it must not fail because other programs run. So the machine is measured
once, when this module is imported, and all timeouts of tests and waits by the wall clock use
`scaled`. Assertions about time itself (that something does not happen earlier, or virtual time) do
not.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from jobsetpy import testing

T = TypeVar("T")

REFERENCE_S = 0.09
"""Seconds that `_work` takes on an idle core of the machine for which timeouts were chosen."""
MOST = 20.0
SLOWEST_POLL_S = 0.25
"""Dozens of tests that poll an API server a hundred times a second would overload it."""
VARIABLE = "JOBSETPY_PATIENCE"
"""Variable with a factor that replaces the measured one."""


def factor_of(work_s: float, load: float, cores: int) -> float:
    """Return how many times longer things take than on the idle reference machine, 1 to `MOST`.

    Args:
        work_s: seconds that `_work` took, for the share of a core that this process has now.
        load: load average of the last minute, for load that the measurement may have missed.
        cores: number of cores that share it.
    """
    return min(max(1.0, work_s / REFERENCE_S, load / cores), MOST)


def _work() -> int:
    return sum(number * number % 7 for number in range(700_000))


def _measured() -> float:
    began = time.perf_counter()
    _work()
    return factor_of(time.perf_counter() - began, os.getloadavg()[0], os.cpu_count() or 1)


LEAST = "JOBSETPY_PATIENCE_LEAST"
"""Variable with a minimum of the measured factor, for a machine that will be busy later."""

FACTOR = float(os.environ.get(VARIABLE) or max(float(os.environ.get(LEAST) or 1), _measured()))
os.environ[VARIABLE] = f"{FACTOR:.2f}"  # for clusters, and programs that tests start


def scaled(seconds: float) -> float:
    """Return the time on this machine for seconds of an idle one."""
    return seconds * FACTOR


class News(asyncio.Event):
    """Event that is set when something changed, after which a condition is checked again."""

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Wait until a condition holds.

        Args:
            condition: checked now, and each time that this is set.
            seconds: maximum time; none if absent.

        Raises:
            TimeoutError: it does not hold in time.
        """
        async with asyncio.timeout(None if seconds is None else scaled(seconds)):
            while not condition():
                self.clear()
                await self.wait()


def timeout(seconds: float) -> asyncio.Timeout:
    """Return ``asyncio.timeout`` of scaled seconds."""
    return asyncio.timeout(scaled(seconds))


async def eventually(
    predicate: Callable[[], T | Awaitable[T]],
    seconds: float = 5.0,
    *,
    poll_s: float | None = None,
) -> T:
    """Call ``jobsetpy.testing.eventually`` with scaled seconds.

    Args:
        predicate: a function or coroutine function.
        seconds: maximum time.
        poll_s: interval between calls. By default an awaited predicate, which usually sends a request, is
            called less and less often, up to `SLOWEST_POLL_S` apart.
    """
    if poll_s is None:
        return await testing.eventually(_slower(predicate), scaled(seconds))
    return await testing.eventually(predicate, scaled(seconds), poll_s=poll_s)


def _slower(predicate: Callable[[], T | Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    pause = 0.0

    async def call() -> T:
        nonlocal pause
        if pause:
            await asyncio.sleep(pause)
        found = predicate()
        if inspect.isawaitable(found):
            pause = min(1.5 * pause + 0.01, SLOWEST_POLL_S)
            found = await found
        return cast("T", found)

    return call


def wait_for(look: Callable[[], T], seconds: float = 30.0, *, poll_s: float = 0.1) -> T:
    """Call ``look`` until its result is true, for scaled seconds at most, and return the result.

    Raises:
        AssertionError: it never became true; the last failed assertion in ``look`` is its cause.
    """
    deadline = time.monotonic() + scaled(seconds)
    while True:
        cause, found = None, None
        try:
            if found := look():
                return found
        except AssertionError as error:
            cause = error
        if time.monotonic() > deadline:
            msg = f"not true within {scaled(seconds):.0f} s; last result: {found!r}"
            raise AssertionError(msg) from cause
        time.sleep(poll_s)
