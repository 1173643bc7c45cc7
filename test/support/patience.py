"""How long tests wait: time-outs are stated for an idle machine, and grow with how slow this one is.

A time-out of a test is there to end what hangs, not to find out that other programs run as well. So
the machine is measured once, when this module is imported, and all that ends a test or a wait by the
wall clock goes through `scaled`. What a test asserts about time in its own sense (that something does
not happen before, or virtual time) does not.
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
"""What `_work` takes on an idle core of the machine that the time-outs were chosen on."""
MOST = 20.0
SLOWEST_POLL_S = 0.1
"""Dozens of tests that ask an API server a hundred times a second keep it from its work."""
VARIABLE = "JOBSETPY_PATIENCE"
"""Names a factor to use in place of the measured one."""


def factor_of(work_s: float, load: float, cores: int) -> float:
    """How many times longer things take than on the idle reference machine; 1 to `MOST`.

    Args:
        work_s: what `_work` took, in seconds: the share of a core that this process gets just now.
        load: the load average of the last minute, which a lucky moment does not hide.
        cores: how many share it.
    """
    return min(max(1.0, work_s / REFERENCE_S, load / cores), MOST)


def _work() -> int:
    return sum(number * number % 7 for number in range(700_000))


def _measured() -> float:
    began = time.perf_counter()
    _work()
    return factor_of(time.perf_counter() - began, os.getloadavg()[0], os.cpu_count() or 1)


LEAST = "JOBSETPY_PATIENCE_LEAST"
"""Names a factor that the measured one is not to be below: what will be busy is idle at the start."""

FACTOR = float(os.environ.get(VARIABLE) or max(float(os.environ.get(LEAST) or 1), _measured()))
os.environ[VARIABLE] = f"{FACTOR:.2f}"  # for clusters, and programs that tests start


def scaled(seconds: float) -> float:
    """So many seconds of an idle machine, on this one."""
    return seconds * FACTOR


def timeout(seconds: float) -> asyncio.Timeout:
    """``asyncio.timeout`` of scaled seconds."""
    return asyncio.timeout(scaled(seconds))


async def eventually(
    predicate: Callable[[], T | Awaitable[T]],
    seconds: float = 5.0,
    *,
    poll_s: float | None = None,
) -> T:
    """``jobsetpy.testing.eventually`` within scaled seconds.

    Args:
        predicate: a function or coroutine function.
        seconds: how long to try.
        poll_s: how long to wait between tries. By default one that is awaited, which asks a server
            most of the time, is called less and less often, `SLOWEST_POLL_S` apart at last.
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
    """Call ``look`` until its result is true, for scaled seconds at most, and return that.

    Raises:
        AssertionError: it never became true; the last failed assert in ``look`` is its cause.
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
