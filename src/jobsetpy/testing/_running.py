"""A manager that runs for as long as a block does, and time that does not have to be waited for."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from jobsetpy import aio
from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.testing._client import RecordingClient
from jobsetpy.testing._clock import VirtualClock
from jobsetpy.testing.apiserver._world import World

T = TypeVar("T")

Setup = Callable[[Manager], Awaitable[None] | None]

START_S = 60.0
"""How long a manager may take until it works."""


@asynccontextmanager
async def running_manager(
    world: World,
    *setups: Setup,
    settings: ManagerSettings | None = None,
    clock: aio.Clock | None = None,
) -> AsyncIterator[Manager]:
    """Run a manager against a world in memory; inside of the block it works.

    ::

        async with running_manager(world, my_module.setup) as manager:
            world.create("widgets", {...})
            await asyncio.sleep(5)  # no time at all in virtual time

    Its client is a ``RecordingClient``. What the manager raises comes out of the block.

    Args:
        world: the cluster.
        *setups: functions as of ``jobsetpy run``.
        settings: of the manager.
        clock: of the manager; the loop's when absent.
    """
    client = RecordingClient(world)
    manager, stop = Manager(client, settings=settings, clock=clock), asyncio.Event()
    for setup in setups:
        asked = setup(manager)
        if asked is not None:
            await asked
    async with aio.supervise() as tasks:
        tasks.start(_run(manager, stop), name="manager")
        async with asyncio.timeout(START_S):
            await manager.ready.wait()
        try:
            yield manager
        finally:
            stop.set()


async def _run(manager: Manager, stop: asyncio.Event) -> None:
    try:
        await manager.run(stop)
    finally:
        await manager.client.aclose()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is to be done.

    For what lives in one process without sockets, such as a ``World``: ten minutes of back-off
    take no time. A loop that waits for nothing that could ever come raises ``RuntimeError``.
    """

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self._virtual_s = 0.0

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        """Have so much time passed."""
        self._virtual_s += seconds


class _Jumping(selectors.DefaultSelector):
    """Waits for no time-out, but tells the loop that it is over."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            # Only another thread could wake this loop up, such as one of asyncio.to_thread.
            found = super().select(REAL_WAIT_S)
            if not found:
                msg = f"nothing happened for {REAL_WAIT_S:g} s, and no timer is set: a dead end"
                raise RuntimeError(msg)
            return found
        self._loop.jump(timeout)
        return found


REAL_WAIT_S = 30.0
"""How long a virtual loop waits for other threads where there is no timer."""


class VirtualTime:
    """Runs coroutines in virtual time; ``clock`` agrees with it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on an event loop of its own."""
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(main)
