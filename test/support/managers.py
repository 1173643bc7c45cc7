"""A manager that runs for the duration of a block, and blocks for fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from jobsetpy import aio
from jobsetpy.manager import Manager
from support import patience

T = TypeVar("T")

START_S = 60.0


@asynccontextmanager
async def for_fixture(block: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Hold a block with a task group in a task of its own.

    Fixtures are set up and torn down by different tasks, and a task group must not change its task.
    """
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def hold() -> None:
        async with block as value:
            entered.set_result(value)
            await leave.wait()

    holding = asyncio.create_task(hold())
    await asyncio.wait([holding, entered], return_when=asyncio.FIRST_COMPLETED)
    if entered.done():
        yield entered.result()
    leave.set()
    await holding


def started_for_fixture(manager: Manager) -> AbstractAsyncContextManager[Manager]:
    """Run a manager as :func:`started` does, in a fixture."""
    return for_fixture(started(manager))


@asynccontextmanager
async def started(manager: Manager) -> AsyncIterator[Manager]:
    """Run a manager, which is ready within the block and stopped in order at its end."""
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        async with patience.timeout(START_S):
            await manager.ready.wait()
        yield manager
        stop.set()
        await running
