"""Manager that runs for the duration of a block, and event loops in virtual time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from jobsetpy import aio
from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.testing._client import RecordingClient
from jobsetpy.testing.apiserver._world import World

T = TypeVar("T")

Setup = Callable[[Manager], Awaitable[None] | None]

START_S = 60.0
"""Timeout for the start of a manager, in seconds."""


@asynccontextmanager
async def running_manager(
    world: World,
    *setups: Setup,
    settings: ManagerSettings | None = None,
    clock: aio.Clock | None = None,
) -> AsyncIterator[Manager]:
    """Run a manager against a world in memory; it is started within the block.

    ::

        async with running_manager(world, my_module.setup) as manager:
            world.create("widgets", {...})
            await asyncio.sleep(5)  # takes no real time in virtual time

    Its client is a ``RecordingClient``. An exception of the manager is raised from the block.

    Args:
        world: the cluster.
        *setups: functions as for ``jobsetpy run``.
        settings: settings of the manager.
        clock: clock of the manager; the loop's when absent.
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


_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The running event loop's time, and a wall clock in step with it.

    For loops whose time jumps to the next timer, such as those of the pytest plugin ``looptime``:
    components that are given this clock agree with the loop's timers. Without a running loop, or
    in a test that moves the time itself, use ``aio.ManualClock``.

    Args:
        start: wall-clock time when the loop's time is 0.
    """

    __slots__ = ("_start",)

    def __init__(self, start: datetime = _START) -> None:
        self._start = start

    def monotonic(self) -> float:
        """Return ``loop.time()``, in seconds."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """Return ``start`` plus the loop's time."""
        return self._start + timedelta(seconds=self.monotonic())


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose time jumps to the next timer as soon as there is nothing else to do.

    For programs in one process without sockets, such as a ``World``: ten minutes of back-off take
    no real time. A loop that waits for something that can never happen raises ``RuntimeError``.
    """

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self._virtual_s = 0.0

    def time(self) -> float:
        """Return the seconds since the loop was created."""
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        """Advance the time by this number of seconds."""
        self._virtual_s += seconds


class _Jumping(selectors.DefaultSelector):
    """Selector that does not wait for a timeout, but advances the loop's time by it."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            # Only another thread could wake this loop, such as one of asyncio.to_thread.
            found = super().select(REAL_WAIT_S)
            if not found:
                msg = f"nothing happened for {REAL_WAIT_S:g} s, and no timer is set: a dead end"
                raise RuntimeError(msg)
            return found
        self._loop.jump(timeout)
        return found


REAL_WAIT_S = 30.0
"""Time that a virtual loop without timers waits for other threads, in seconds."""


class VirtualTime:
    """Runs coroutines in virtual time; ``clock`` agrees with it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to completion on its own event loop."""
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(main)
