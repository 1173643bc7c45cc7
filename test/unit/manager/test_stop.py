"""The ends of a manager's life, and what it says of itself meanwhile; in virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.errors import StopTimedOutError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings, Runnable
from jobsetpy.testing import RecordingClient, World, make_job
from support.managers import started

pytestmark = pytest.mark.looptime

LEASE = "x"


def loop_time():
    return asyncio.get_running_loop().time()


def contending(world, **settings):
    """A manager that stands for election in virtual time."""
    election = LeaderElectionSettings(namespace="default", name=LEASE, identity="m")
    manager = Manager(
        RecordingClient(world, qps=0),
        settings=ManagerSettings(leader_election=election, **settings),
    )
    manager._elector._clock = manager._elector.fence._clock = loop_time
    return manager


def holder(world):
    return world.get("leases.coordination.k8s.io", LEASE)["spec"]["holderIdentity"]


class Course:
    """When what happened, in seconds since the stop."""

    def __init__(self):
        self.began = 0.0
        self.steps = {}

    def note(self, step):
        self.steps[step] = round(loop_time() - self.began, 1)


class Work(Runnable):
    """Something that only a leader does, and that takes a second to end."""

    name = "work"

    def __init__(self, course):
        self.course = course

    @asynccontextmanager
    async def running(self):
        try:
            yield
        finally:
            await asyncio.sleep(1)
            self.course.note("work ended")


class Server(Runnable):
    """Something that others call on every replica."""

    name = "server"
    on_every_replica = True

    def __init__(self, course, drain_s):
        self.course = course
        self.drain_s = drain_s

    def drain(self):
        self.course.note("server told")
        return self.drain_s

    @asynccontextmanager
    async def running(self):
        try:
            yield
        finally:
            self.course.note("server ended")


async def test_the_lease_is_free_while_the_server_drains():
    """The next leader waits for the last write, and not for those that still call this one."""
    world, course = World(), Course()
    manager = contending(world)
    jobs = manager.informer(Job)
    manager.add(Server(course, 5.0))
    manager.add(Work(course))
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await manager.leading.wait()
        await asyncio.sleep(10)
        course.began = loop_time()
        stop.set()
        while holder(world):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)
        course.note("lease free")
        world.create("jobs", make_job("late").build())
        await asyncio.sleep(0.5)
        seen = len(jobs.store.list())
        await running

    assert course.steps == {
        "server told": 0.0,
        "work ended": 1.0,
        "lease free": 1.0,
        "server ended": 5.0,
    }
    assert seen == 1  # the server's caches are kept up to its end


async def test_a_standby_drains_as_well():
    """Webhooks are called on every replica, so each has to serve on for a while."""
    world, course = World(), Course()
    leader, standby = contending(world), contending(world)
    standby.add(Server(course, 5.0))
    stops = asyncio.Event(), asyncio.Event()
    async with aio.supervise() as tasks:
        tasks.start(leader.run(stops[0]), name="leader")
        await leader.leading.wait()
        running = tasks.start(standby.run(stops[1]), name="standby")
        await standby.ready.wait()
        course.began = loop_time()
        stops[1].set()
        await running
        held = holder(world)
        stops[0].set()

    assert course.steps == {"server told": 0.0, "server ended": 5.0}
    assert held == leader._elector.identity


async def test_draining_has_its_limit():
    """Whoever asks for more than the whole stop may take is cut short, and that is told."""
    course = Course()
    manager = Manager(RecordingClient(qps=0), settings=ManagerSettings(stop_timeout_s=3))
    manager.add(Server(course, 1000.0))
    with pytest.raises(StopTimedOutError):
        async with started(manager):
            course.began = loop_time()

    assert course.steps["server ended"] == 3.0


async def test_a_stop_is_obeyed_before_the_caches_are_complete():
    """A pod that is deleted while it starts does not wait for an API server that hangs."""
    world, course = World(), Course()
    world.faults.latency(1000, verb="list", resource="jobs")
    manager = contending(world)
    manager.informer(Job)
    manager.add(Work(course))
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await asyncio.sleep(20)
        told = manager.problems()
        began = loop_time()
        stop.set()
        await running

    assert [line.partition(" has not")[0] for line in told] == [
        "caches: not started yet, or stopping",
        "caches: the watch of Job",
    ]
    assert loop_time() - began < 1
    assert course.steps == {}  # never began
    assert world.requests.writes == []


async def test_watches_that_fail_for_long_are_shown_until_they_work_again():
    """A process whose view of the world is old is not ready, though it serves and runs."""
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
