"""Waiting until a condition is true, in tests that run in real time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    predicate: Callable[[], T | Awaitable[T]], timeout: float = 5.0, *, poll_s: float = 0.01
) -> T:
    """Call ``predicate`` until its result is true, and return that.

    An ``AssertionError`` counts as "not yet", so a function with asserts works as well as an
    expression.

    Args:
        predicate: a function or coroutine function.
        timeout: maximum total time, in seconds.
        poll_s: interval between calls, in seconds.

    Raises:
        AssertionError: it never became true; the last failed assert is its cause.
    """
    loop = asyncio.get_running_loop()
    ends_at, cause, result = loop.time() + timeout, None, None
    while True:
        try:
            found = predicate()
            result = await found if inspect.isawaitable(found) else found
            cause = None
            if result:
                return result
        except AssertionError as error:
            cause = error
        if loop.time() >= ends_at:
            raise AssertionError(f"not true within {timeout} s; last result: {result!r}") from cause
        await asyncio.sleep(poll_s)
