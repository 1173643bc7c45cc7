"""A coscheduler and its settings, published to managers in a Lease."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import Coscheduler, CoschedulerSettings
from jobsetpy.coscheduler._publication import RENEWED_S
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState, coscheduler_state
from jobsetpy.testing import RecordingClient, VirtualClock, World

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def leading(world, **settings):
    """A manager whose coscheduler leads; it stops properly at the end of the block."""
    election = LeaderElectionSettings(namespace="default", name="leader", identity="a")
    manager = Manager(
        RecordingClient(world, qps=0),
        settings=ManagerSettings(leader_election=election),
        clock=VirtualClock(),
    )
    manager.add(Coscheduler(manager, CoschedulerSettings(namespace="default", **settings)))
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await manager.leading.wait()
        await asyncio.sleep(0.5)
        yield manager
        stop.set()
        await running


def lease(world):
    """The current Lease."""
    return world.get("leases", keys.COSCHEDULER_LEASE)


async def test_lease_names_the_scheduler_and_is_renewed():
    """Managers of version 0.2 read from it that no gang waits, and add no gates."""
    world = World(clock=VirtualClock())
    async with leading(world, scheduler_name="gangs", member_resource=True):
        text = lease(world)["metadata"]["annotations"][keys.COSCHEDULER_QUEUE_ANNOTATION]
        expected = CoschedulerState(scheduler_name="gangs", member_resource=True)
        assert coscheduler_state(text) == expected
        assert '"waiting":false' in text
        before = lease(world)["spec"]["renewTime"]
        await asyncio.sleep(RENEWED_S + 1)
        assert lease(world)["spec"]["renewTime"] > before


async def test_lease_is_written_again_when_the_api_server_fails():
    """One that is deleted while a coscheduler leads is not created again by it."""
    world = World(clock=VirtualClock())
    world.faults.status(500, resource="leases", name=keys.COSCHEDULER_LEASE, count=3)
    async with leading(world):
        await asyncio.sleep(30)
        assert lease(world) is not None
        world.delete("leases", keys.COSCHEDULER_LEASE)
        await asyncio.sleep(20)
        assert lease(world) is None
