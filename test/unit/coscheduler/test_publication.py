"""What the coscheduler tells managers of its queue, by a Lease."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import Coscheduler, CoschedulerSettings
from jobsetpy.coscheduler._publication import RENEWED_S
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState, queue_state
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod

pytestmark = pytest.mark.looptime

TEMPLATE = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def new_world(*cpus):
    """A cluster in memory, with nodes of so many CPUs."""
    world = World(clock=VirtualClock())
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


def make_group(world, name, size, *, gated=True):
    """A group's pods, of one CPU each."""
    gates = [{"name": keys.COSCHEDULING_GATE}] if gated else []
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(size)}
    for index in range(size):
        pod = make_pod(f"{name}-{index}").labels(labels)
        spec = pod.spec(schedulingGates=gates, **TEMPLATE).phase("Pending").build()
        world.create("pods", spec)


async def test_lease_is_renewed_when_nothing_changes():
    """With the scheduler that it serves; gangs that are being placed do not count as waiting."""
    world = new_world(4, 4)
    async with leading(world, scheduler_name="gangs", member_resource=True):
        expected = QueueState(empty=True, scheduler_name="gangs", member_resource=True)
        assert told(world) == expected
        make_group(world, "a", 3, gated=False)
        await asyncio.sleep(2)
        assert told(world) == expected
        before = lease(world)["spec"]["renewTime"]
        await asyncio.sleep(RENEWED_S + 2)
        assert lease(world)["spec"]["renewTime"] > before
        assert len(world.requests.matching("patch", "leases")) < 20


async def test_that_a_group_waits_is_reported_immediately():
    """And that none does any more."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5)
        await asyncio.sleep(0.3)
        assert not told(world).empty
        for index in range(5):
            world.delete("pods", f"big-{index}")
        await asyncio.sleep(0.3)
        assert told(world).empty


async def test_the_next_leader_continues():
    """With what it sees; a Lease that is taken away while one leads is not made anew by it."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5)
        await asyncio.sleep(1)
    async with leading(world):
        assert not told(world).empty
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
        assert not told(world).empty


async def test_lease_stays_small_when_nodes_have_many_labels():
    """Annotations of 256 KiB are refused; 100 GPU nodes with 62 labels each came to more."""
    world = new_world()
    for at in range(120):
        labels = {
            f"gpu.example.com/label-{n}": f"value-{n}-of-some-length-{at % 15}" for n in range(62)
        }
        room = {"cpu": str(64 + at), "memory": "512Gi", "pods": "110", "example.com/gpu": "8"}
        node = {"metadata": {"name": f"g{at}", "labels": labels}, "status": {"allocatable": room}}
        world.create("nodes", node)
    async with leading(world):
        text = lease(world)["metadata"]["annotations"][keys.COSCHEDULER_QUEUE_ANNOTATION]
        assert len(text) < 1000
