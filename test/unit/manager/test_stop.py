"""Stop of a manager, and the problems that it reports, in virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.errors import StopTimedOutError
from jobsetpy.manager import Manager, ManagerSettings, Runnable
from jobsetpy.testing import RecordingClient, World, make_job
from support.elections import elected_manager, loop_time
from support.managers import started

pytestmark = pytest.mark.looptime

LEASE = "x"


def holder(world):
    return world.get("leases.coordination.k8s.io", LEASE)["spec"]["holderIdentity"]


class Timeline:
    """Steps of a stop with their times, in seconds since its begin."""

    def __init__(self):
        self.began = 0.0
        self.steps = {}

    def note(self, step):
        self.steps[step] = round(loop_time() - self.began, 1)


class Work(Runnable):
    """A runnable of the leader that takes a second to end."""

    name = "work"

    def __init__(self, timeline):
        self.timeline = timeline

    @asynccontextmanager
    async def running(self):
        try:
            yield
        finally:
            await asyncio.sleep(1)
            self.timeline.note("work ended")


class Server(Runnable):
    """A server of every replica."""

    name = "server"
    on_every_replica = True

    def __init__(self, timeline, drain_s):
        self.timeline = timeline
        self.drain_s = drain_s

    def drain(self):
        self.timeline.note("drain began")
        return self.drain_s

    @asynccontextmanager
    async def running(self):
        try:
            yield
        finally:
            self.timeline.note("server ended")


async def test_the_lease_is_released_while_the_server_drains():
    """The next leader waits for the last write, but not for clients of this server."""
    world, timeline = World(), Timeline()
    manager = elected_manager(world, LEASE)
    jobs = manager.informer(Job)
    manager.add(Server(timeline, 5.0))
    manager.add(Work(timeline))
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await manager.leading.wait()
        await asyncio.sleep(10)
        timeline.began = loop_time()
        stop.set()
        while holder(world):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        timeline.note("lease free")
        world.create("jobs", make_job("late").build())
        await asyncio.sleep(0.5)
        seen = len(jobs.store.list())
        await running

    assert timeline.steps == {
        "drain began": 0.0,
        "work ended": 1.0,
        "lease free": 1.0,
        "server ended": 5.0,
    }
    assert seen == 1  # the server's caches are kept up to its end


async def test_a_standby_drains_as_well():
    """Webhooks are called on every replica, so each has to serve for some time."""
    world, timeline = World(), Timeline()
    leader, standby = elected_manager(world, LEASE), elected_manager(world, LEASE)
    standby.add(Server(timeline, 5.0))
    stops = asyncio.Event(), asyncio.Event()
    async with aio.supervise() as tasks:
        tasks.start(leader.run(stops[0]), name="leader")
        await leader.leading.wait()
        running = tasks.start(standby.run(stops[1]), name="standby")
        await standby.ready.wait()
        timeline.began = loop_time()
        stops[1].set()
        await running
        held = holder(world)
        stops[0].set()

    assert timeline.steps == {"drain began": 0.0, "server ended": 5.0}
    assert held == leader._elector.identity


async def test_draining_is_bounded():
    """A drain that exceeds the time for the whole stop is cut short, and an error is raised."""
    timeline = Timeline()
    manager = Manager(RecordingClient(qps=0), settings=ManagerSettings(stop_timeout_s=3))
    manager.add(Server(timeline, 1000.0))
    with pytest.raises(StopTimedOutError):
        async with started(manager):
            timeline.began = loop_time()

    assert timeline.steps["server ended"] == 3.0


async def test_a_manager_stops_before_its_caches_are_complete():
    """A pod that is deleted while it starts does not wait for an API server that hangs."""
    world, timeline = World(), Timeline()
    world.faults.latency(1000, verb="list", resource="jobs")
    manager = elected_manager(world, LEASE)
    manager.informer(Job)
    manager.add(Work(timeline))
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await asyncio.sleep(20)
        problems = manager.problems()
        began = loop_time()
        stop.set()
        await running

    assert [line.partition(" has not")[0] for line in problems] == [
        "caches: not started yet, or stopping",
        "caches: the watch of Job",
    ]
    assert loop_time() - began < 1
    assert timeline.steps == {}  # never began
    assert world.requests.writes == []


async def test_watches_that_fail_for_long_are_problems_until_they_work_again():
    """A process whose caches are outdated is not ready, although it runs and serves."""
    world = World()
    manager = Manager(RecordingClient(world, qps=0))
    manager.informer(Job)
    async with started(manager):
        await asyncio.sleep(600)
        quiet = manager.problems()
        for verb in ("list", "watch"):
            world.faults.status(500, verb=verb, resource="jobs")
        world.faults.end_watches(resource="jobs")
        await asyncio.sleep(30)
        short = manager.problems()
        await asyncio.sleep(50)
        long = manager.problems()
        world.faults.clear()
        await asyncio.sleep(40)
        after = manager.problems()

    assert quiet == short == after == []
    (line,) = long
    assert line.startswith("caches: the watch of Job")
    assert "silent for long" in line
