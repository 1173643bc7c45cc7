"""A manager that runs for the duration of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobsetpy import aio
from jobsetpy.manager import Manager
from support import patience

START_S = 60.0


@asynccontextmanager
async def started_for_fixture(manager: Manager) -> AsyncIterator[Manager]:
    """Run a manager as :func:`started` does, in a fixture.

    Fixtures are set up and torn down by different tasks, so a task group cannot hold the manager.
    """
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    async with patience.timeout(START_S):
        await manager.ready.wait()
    yield manager
    stop.set()
    await running


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
