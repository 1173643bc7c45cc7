"""State of the coscheduler's queue, published to managers in a Lease."""

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
from jobsetpy.testing import RecordingClient, VirtualClock, World
from support.coscheduling.scheduler_kit import member_pod

pytestmark = pytest.mark.looptime


def new_world(*cpus):
    """A cluster in memory, with nodes of these numbers of CPUs."""
    world = World(clock=VirtualClock())
    for at, cpu in enumerate(cpus):
        amounts = {"cpu": str(cpu), "pods": "110"}
        world.create("nodes", {"metadata": {"name": f"n{at}"}, "status": {"allocatable": amounts}})
    return world


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


def published(world):
    """The published state."""
    return queue_state(lease(world)["metadata"]["annotations"][keys.COSCHEDULER_QUEUE_ANNOTATION])


def make_group(world, name, size, *gates):
    """Create a gang's pods of one CPU each."""
    containers = [{"resources": {"requests": {"cpu": "1"}}}]
    for index in range(size):
        world.create("pods", member_pod(f"{name}-{index}", size, *gates, containers=containers))


async def test_lease_is_renewed_when_nothing_changes():
    """It names the scheduler that is served; gangs that are being placed do not count as waiting."""
    world = new_world(4, 4)
    async with leading(world, scheduler_name="gangs", member_resource=True):
        expected = QueueState(waiting=False, scheduler_name="gangs", member_resource=True)
        assert published(world) == expected
        make_group(world, "a", 3)
        await asyncio.sleep(2)
        assert published(world) == expected
        before = lease(world)["spec"]["renewTime"]
        await asyncio.sleep(RENEWED_S + 2)
        assert lease(world)["spec"]["renewTime"] > before
        assert len(world.requests.matching("patch", "leases")) < 20


async def test_waiting_gangs_are_published_immediately():
    """An empty queue is published immediately as well."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5, keys.COSCHEDULING_GATE)
        await asyncio.sleep(0.3)
        assert published(world).waiting
        for index in range(5):
            world.delete("pods", f"big-{index}")
        await asyncio.sleep(0.3)
        assert not published(world).waiting


async def test_the_next_leader_publishes_its_own_state():
    """A Lease that is deleted while a coscheduler leads is not created again by it."""
    world = new_world(4)
    async with leading(world):
        make_group(world, "big", 5, keys.COSCHEDULING_GATE)
        await asyncio.sleep(1)
    async with leading(world):
        assert published(world).waiting
        world.delete("leases", keys.COSCHEDULER_LEASE)
        await asyncio.sleep(20)
        assert lease(world) is None


async def test_publishing_is_repeated_when_the_api_server_fails():
    """A state that could not be written is written later."""
    world = new_world(4)
    async with leading(world):
        world.faults.status(500, resource="leases", name=keys.COSCHEDULER_LEASE, count=3)
        make_group(world, "big", 5, keys.COSCHEDULING_GATE)
        await asyncio.sleep(30)
        assert published(world).waiting


async def test_lease_stays_small_when_nodes_have_many_labels():
    """Annotations of 256 KiB are refused; 100 GPU nodes with 62 labels each came to more."""
    world = new_world()
    for at in range(120):
        labels = {
            f"gpu.example.com/label-{n}": f"value-{n}-of-some-length-{at % 15}" for n in range(62)
        }
        amounts = {"cpu": str(64 + at), "memory": "512Gi", "pods": "110", "example.com/gpu": "8"}
        meta = {"name": f"g{at}", "labels": labels}
        node = {"metadata": meta, "status": {"allocatable": amounts}}
        world.create("nodes", node)
    async with leading(world):
        text = lease(world)["metadata"]["annotations"][keys.COSCHEDULER_QUEUE_ANNOTATION]
        assert len(text) < 1000
