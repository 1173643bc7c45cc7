"""Parallel requests with a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from jobsetpy import aio
from jobsetpy.errors import JobSetPyError

T = TypeVar("T")

NAMED_FAILURES: Final = 10
"""Maximum number of failures reported in full."""


async def in_parallel(
    limit: int, items: Sequence[T], act: Callable[[T], Awaitable[None]]
) -> list[tuple[T, JobSetPyError]]:
    """Call ``act`` for each item, at most ``limit`` at a time, in the order of the items.

    Other items are still tried after a failure.

    Args:
        limit: maximum concurrent calls.
        items: items to process.
        act: processes one item; ``JobSetPyError`` is collected, any other exception ends all calls.

    Returns:
        Failed items with their errors.
    """
    failures: list[tuple[T, JobSetPyError]] = []
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            try:
                await act(item)
            except JobSetPyError as error:
                failures.append((item, error))

    if len(items) <= 1:
        await work()
        return failures
    async with aio.supervise() as tasks:
        workers = [tasks.start(work(), name="write") for _ in range(min(limit, len(items)))]
        for worker in workers:
            await worker
    return failures


def raise_failures(failures: Sequence[tuple[Any, JobSetPyError]], what: str) -> None:
    """Raise what :func:`in_parallel` returned as one exception, unless nothing failed.

    Raises:
        ExceptionGroup: the first of them; its message begins with their number.
    """
    if failures:
        errors = [error for _, error in failures[:NAMED_FAILURES]]
        raise ExceptionGroup(f"{len(failures)} {what}: {errors[0]}", errors)
