"""Processes and managers that contend for Leases, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from jobsetpy import aio
from jobsetpy.aio import Clock
from jobsetpy.errors import LeadershipLostError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.testing import RecordingClient, World


def loop_time() -> float:
    """Time of the running loop."""
    return asyncio.get_running_loop().time()


class Contender:
    """A process, with its elector and the error with which its leadership ended."""

    def __init__(self, elector: Any) -> None:
        self.elector = elector
        self.stop = asyncio.Event()
        self.lost: LeadershipLostError | None = None

    async def run(self) -> None:
        """Contend until stopped, or until leadership is lost."""
        self.elector.contend()
        try:
            async with self.elector.running():
                await self.stop.wait()
        except LeadershipLostError as lost:
            self.lost = lost

    @property
    def leads(self) -> bool:
        """True while it leads."""
        return bool(self.elector.leading.is_set())


def elected_manager(
    world: World, name: str, *, identity: str = "m", clock: Clock | None = None, **settings: Any
) -> Manager:
    """Return a manager with a Lease of this name, whose election has the loop's time."""
    settings["leader_election"] = LeaderElectionSettings(
        namespace="default", name=name, identity=identity
    )
    client = RecordingClient(world, qps=0)
    manager = Manager(client, settings=ManagerSettings(**settings), clock=clock)
    elector: Any = manager._elector
    for one in getattr(elector, "electors", [elector]):
        one._clock = one.fence._clock = loop_time
    return manager


@asynccontextmanager
async def contending(contenders: Sequence[Contender]) -> AsyncIterator[Sequence[Contender]]:
    """Run contenders within the block."""
    async with aio.supervise() as tasks:
        for one in contenders:
            tasks.start(one.run(), name="contender")
        yield contenders


async def within(seconds: float, condition: Callable[[], object]) -> float:
    """Wait for a condition, which has to hold in time; return the virtual seconds that it took."""
    started = loop_time()
    while not condition():
        assert loop_time() - started < seconds
        await asyncio.sleep(0.01)
    return loop_time() - started
