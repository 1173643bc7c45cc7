"""What the coscheduler tells managers of its queue, by a Lease."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import Coscheduler, CoschedulerSettings
from jobsetpy.coscheduler._publication import RENEWED_S
from jobsetpy.domain.coscheduling.queue_state import Openings, queue_state
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod

pytestmark = pytest.mark.looptime

TEMPLATE = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def new_world(*cpus):
    """A cluster in memory, with nodes of so many CPUs."""
    world = World(clock=VirtualClock())
    world._dispatcher.bookmark_s = 1e6
    for at, cpu in enumerate(cpus):
        room = {"cpu": str(cpu), "pods": "110"}
        world.create("nodes", {"metadata": {"name": f"n{at}"}, "status": {"allocatable": room}})
    return world


@asynccontextmanager
async def leading(world, **settings):
    """A coscheduler that leads; it ends in order."""
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
    """The Lease, as it is."""
    return world.get("leases", keys.COSCHEDULER_LEASE)


def told(world):
    """What is told."""
    return queue_state(lease(world)["metadata"]["annotations"][keys.COSCHEDULER_QUEUE_ANNOTATION])


def fits(world, pods):
    """Whether so many pods of one CPU would be made without gates."""
    return Openings(told(world)).opens(TEMPLATE, pods)


def make_group(world, name, size, *, gated=True):
    """A group's pods, of one CPU each."""
    gates = [{"name": keys.COSCHEDULING_GATE}] if gated else []
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(size)}
    for index in range(size):
        pod = make_pod(f"{name}-{index}").labels(labels)
        spec = pod.spec(schedulingGates=gates, **TEMPLATE).phase("Pending").build()
        world.create("pods", spec)


async def test_room_is_told_while_nobody_waits():
    """Of the nodes as they are, less what groups on their way need; renewed when nothing changes."""
    world = new_world(4, 4)
    async with leading(world, scheduler_name="gangs", member_resource=True):
        assert (fits(world, 8), fits(world, 9)) == (True, False)
        assert (told(world).scheduler_name, told(world).member_resource) == ("gangs", True)
        make_group(world, "a", 3, gated=False)
        await asyncio.sleep(2)
        assert (fits(world, 5), fits(world, 6)) == (True, False)
        before = lease(world)["spec"]["renewTime"]
        await asyncio.sleep(RENEWED_S + 2)
        assert lease(world)["spec"]["renewTime"] > before
        assert len(world.requests.matching("patch", "leases")) < 20


async def test_that_a_group_waits_is_told_at_once():
    """And that none does any more."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5)
        await asyncio.sleep(0.3)
        assert told(world).waiting
        assert not fits(world, 1)
        for index in range(5):
            world.delete("pods", f"big-{index}")
        await asyncio.sleep(0.3)
        assert not told(world).waiting
        await asyncio.sleep(2)
        assert fits(world, 4)


async def test_without_the_capacity_check_room_does_not_matter():
    """Whoever makes room sees pods without gates only."""
    world = new_world()
    async with leading(world, capacity_check=False):
        assert fits(world, 1000)


async def test_the_next_leader_goes_on():
    """With what it sees; a Lease that is taken away while one leads is not made anew by it."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5)
        await asyncio.sleep(1)
    async with leading(world):
        assert told(world).waiting
        world.delete("leases", keys.COSCHEDULER_LEASE)
        await asyncio.sleep(20)
        assert lease(world) is None


async def test_an_api_server_that_fails_is_tried_again():
    """What could not be told is told later."""
    world = new_world(4)
    async with leading(world):
        world.faults.status(500, resource="leases", name=keys.COSCHEDULER_LEASE, count=3)
        make_group(world, "big", 5)
        await asyncio.sleep(30)
        assert told(world).waiting
