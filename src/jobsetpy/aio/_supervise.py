"""Tasks with an owner.

``supervise()`` is a ``TaskGroup`` that ends with its block: leaving the block cancels the tasks
that still run, and a task that fails cancels the block and its siblings, so no failure is ever
seen first by the garbage collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Supervisor:
    """Starts tasks that live at most as long as the ``supervise()`` block."""

    __slots__ = ("_ends", "_group", "_tasks")

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._ends = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run ``coro`` in its own task; its failure ends the whole block.

        It is cancelled before its first step if the block has been left.
        """
        task = self._group.create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._ends:
            task.cancel()
        return task

    def cancel_all(self) -> None:
        """Cancel every task that still runs, and those that are started later."""
        self._ends = True
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def supervise() -> AsyncIterator[Supervisor]:
    """A block whose tasks end with it.

    Raises:
        BaseExceptionGroup: with the failures of tasks (and of the block); a single failure is
            unwrapped and raised unchanged.
    """
    try:
        async with asyncio.TaskGroup() as group:
            supervisor = Supervisor(group)
            try:
                yield supervisor
            finally:
                supervisor.cancel_all()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) == 1:
            raise failures.exceptions[0] from None
        raise


async def sleep_or(event: asyncio.Event, seconds: float) -> bool:
    """Wait until ``event`` is set, at most ``seconds``; return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
