"""Leader election in virtual time, with faults of an API server in memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import structlog

from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.meta import ObjectKey
from jobsetpy.controller import Controller, Result, Watch, enqueue_mapped, enqueue_self
from jobsetpy.errors import LeadershipLostError
from jobsetpy.manager import LeaderElectionSettings, Runnable
from jobsetpy.manager._leader import LeaderElector
from jobsetpy.testing import RecordingClient, World, make_job
from support.elections import Contender, contending, elected_manager, loop_time, within
from support.managers import started

pytestmark = pytest.mark.looptime

LEASES = "leases.coordination.k8s.io"
NAME = "6d4f6a47.jobset.x-k8s.io"


def election(identity, **times):
    return LeaderElectionSettings(namespace="default", name=NAME, identity=identity, **times)


def contender(world, identity, **times):
    """A process with its own client."""
    client = RecordingClient(world, qps=0)
    elector = LeaderElector(client.unpooled(), election(identity, **times), clock=loop_time)
    made = Contender(elector)
    made.client = client
    return made


def contenders(world, *names, **times):
    """Contenders that run within the block."""
    return contending([contender(world, name, **times) for name in names])


@asynccontextmanager
async def leading(world):
    """A contender that leads."""
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        yield a


@pytest.fixture
def world():
    """An API server in memory, without a Lease."""
    return World()


def record(world):
    return world.get(LEASES, NAME)["spec"]


def create_lease(world, **spec):
    world.create(LEASES, {"metadata": {"name": NAME, "namespace": "default"}, "spec": spec})


async def test_the_first_process_creates_the_lease_and_leads(world):
    """The Lease has the record that client-go's elections read."""
    async with leading(world) as a:
        spec = record(world)
        assert spec["holderIdentity"] == a.elector.identity
        assert spec["holderIdentity"].startswith("a_")
        assert spec["leaseDurationSeconds"] == 15
        assert spec["leaseTransitions"] == 0
        assert spec["acquireTime"] == spec["renewTime"]
        assert spec["renewTime"].endswith("Z")
        assert len(spec["renewTime"]) == len("2026-01-01T00:00:00.000000Z")


async def test_a_standby_leads_when_the_leader_disappears(world):
    """It leads from 15 s to 18 s after the leader's last renewal."""
    async with leading(world) as a, contenders(world, "b") as (b,):
        renew, renewals = a.elector.attempt, []

        async def recorded():
            if renewed := await renew():
                renewals.append(loop_time())
            return renewed

        a.elector.attempt = recorded
        await asyncio.sleep(10)
        world.faults.status(503, verb="patch")
        a.elector.attempt = asyncio.Event().wait  # hangs, which equals a crash
        await asyncio.sleep(2.1)
        world.faults.clear()
        seconds = await within(20, lambda: b.leads)

        assert loop_time() - renewals[-1] >= 15
        assert seconds <= 18
        assert a.elector.fence.remaining_s() <= 0
        assert record(world)["leaseTransitions"] == 1


async def test_a_leader_releases_its_lease_when_it_stops(world):
    """It does so in client-go's way, and a standby leads immediately."""
    async with leading(world) as a, contenders(world, "b") as (b,):
        await asyncio.sleep(5)
        a.stop.set()
        await asyncio.sleep(0.1)
        spec = record(world)
        seconds = await within(3, lambda: b.leads)

        assert spec["holderIdentity"] == ""
        assert spec["leaseDurationSeconds"] == 1
        assert seconds <= 2.4  # without the informer, which reports the release immediately
        assert record(world)["leaseDurationSeconds"] == 15


async def test_a_standby_reacts_immediately_to_the_event_of_a_released_lease(world):
    """The informer's event ends the pause."""
    async with leading(world) as a, contenders(world, "b") as (b,):
        await asyncio.sleep(5)
        a.stop.set()
        await asyncio.sleep(0.01)
        b.elector.on_update(Lease(), await b.client.get(Lease, "default", NAME))
        seconds = await within(1, lambda: b.leads)

        assert seconds <= 0.02


async def test_failed_renewals_end_leadership_before_another_can_begin(world):
    """The fence closes 10 s after the last renewal, and the process ends."""
    async with leading(world) as a:
        await asyncio.sleep(5)
        world.faults.status(500, verb="patch")
        seconds = await within(11, lambda: a.lost is not None)

        assert 7.5 <= seconds <= 10.1
        assert "not renewed for 10 s" in str(a.lost)
        assert a.elector.fence.remaining_s() <= 0
        with pytest.raises(LeadershipLostError):
            a.elector.fence.check()


async def test_leadership_ends_immediately_when_another_holds_the_lease(world):
    """A leader that reads another holder stops, independent of its last renewal."""
    async with leading(world) as a:
        await asyncio.sleep(5)
        world.patch(LEASES, NAME, {"spec": {"holderIdentity": "admin"}})
        seconds = await within(3, lambda: a.lost is not None)

        assert seconds <= 2.1
        assert "'admin'" in str(a.lost)
        assert record(world)["holderIdentity"] == "admin"


async def test_other_fields_of_the_lease_are_kept(world):
    """Labels and unknown fields survive renewals, and changing them does not end leadership."""
    async with leading(world) as a:
        patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"strategy": "OldestEmulationVersion"}}
        world.patch(LEASES, NAME, patch)
        await asyncio.sleep(10)

        assert a.leads
        assert record(world)["strategy"] == "OldestEmulationVersion"
        assert world.get(LEASES, NAME)["metadata"]["labels"] == {"x": "y"}


async def test_times_in_the_record_are_ignored(world):
    """A holder whose wall clock is years behind is waited for like any other."""
    create_lease(
        world,
        holderIdentity="go",
        leaseDurationSeconds=20,
        acquireTime="2001-01-01T00:00:00.000000Z",
        renewTime="2001-01-01T00:00:00.000000Z",
        leaseTransitions=7,
    )
    async with contenders(world, "a") as (a,):
        seconds = await within(25, lambda: a.leads)

        assert 20 <= seconds <= 20.5
        assert record(world)["leaseTransitions"] == 8


async def test_a_leader_creates_its_deleted_lease_again(world):
    """It continues to lead."""
    async with leading(world) as a:
        world.delete(LEASES, NAME)
        await asyncio.sleep(5)

        assert a.leads
        assert record(world)["holderIdentity"] == a.elector.identity


@pytest.mark.parametrize("after", [0.1, 0.7, 1.3, 1.9])
async def test_a_deleted_lease_has_no_second_leader(world, after):
    """A standby waits until the last renewal that it saw has expired; the leader continues."""
    async with leading(world) as a, contenders(world, "b") as (b,):
        await asyncio.sleep(7 + after)
        world.delete(LEASES, NAME)
        b.elector.on_delete(None, final_state_known=True)
        for _ in range(1500):
            await asyncio.sleep(0.02)
            assert not (a.elector.fence.remaining_s() > 0 and b.elector.fence.remaining_s() > 0)

        assert a.leads
        assert record(world)["holderIdentity"] == a.elector.identity


async def test_a_standby_creates_the_deleted_lease_of_a_leader_that_is_gone(world):
    """It does so soon after the last leader can no longer lead."""
    async with leading(world) as a, contenders(world, "b") as (b,):
        await asyncio.sleep(5)
        a.elector.attempt = asyncio.Event().wait  # hangs, which equals a crash
        await asyncio.sleep(0.1)
        world.delete(LEASES, NAME)
        seconds = await within(20, lambda: b.leads)

        assert 15 <= seconds <= 18
        assert a.elector.fence.remaining_s() <= 0


async def test_a_process_that_starts_after_the_deletion_waits_as_well(world):
    """It leads only after an unknown leader can no longer lead.

    The first start of an installation, with two processes, does not wait.
    """
    async with contenders(world, "a", "b") as (a, b):
        assert await within(1, lambda: a.leads or b.leads) < 1
        leader = a if a.leads else b
        leader.elector.attempt = asyncio.Event().wait  # hangs, which equals a crash
        (a if leader is b else b).stop.set()
        await asyncio.sleep(1)
        world.delete(LEASES, NAME)
        async with contenders(world, "c") as (c,):
            seconds = await within(20, lambda: c.leads)

            assert 15 <= seconds <= 18
            assert leader.elector.fence.remaining_s() <= 0


async def test_a_leader_is_elected_when_the_mark_is_forbidden(world):
    """Roles of earlier versions do not allow it."""
    create_lease(world, holderIdentity="")
    world.faults.status(403, verb="create", resource="leases")
    async with contenders(world, "a") as (a,):
        assert await within(1, lambda: a.leads) < 1


async def test_an_interrupted_claim_is_released(world):
    """A process that is stopped during its first claim holds no Lease afterwards."""
    world.faults.latency(1, verb="create", resource="leases")
    async with contenders(world, "a") as (a,):
        await asyncio.sleep(1.5)  # the mark is created before
        create_lease(world, holderIdentity=a.elector.identity)  # as if the request had arrived
        a.stop.set()
        await asyncio.sleep(1)

        assert record(world)["holderIdentity"] == ""


async def test_the_same_problem_is_reported_once(world):
    """A forbidden Lease is one warning, not one every 2 s."""
    world.faults.status(403, resource="leases")
    with structlog.testing.capture_logs() as lines:
        async with contenders(world, "a"):
            await asyncio.sleep(60)

    assert [line["log_level"] for line in lines if "error" in line] == ["warning"]


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 10, 9), (15, 10, 0)])
async def test_unsafe_times_are_refused(times):
    """Lease duration, renew deadline and retry period need enough distance."""
    lease, renew, retry = times
    with pytest.raises(ValueError, match="leader election needs"):
        election("a", lease_duration_s=lease, renew_deadline_s=renew, retry_period_s=retry)


class Worker(Runnable):
    """A runnable of the leader."""

    name = "worker"

    def __init__(self):
        self.runs = False

    @asynccontextmanager
    async def running(self):
        self.runs = True
        try:
            yield
        finally:
            self.runs = False


class Server(Worker):
    """A runnable of every replica."""

    name = "server"
    on_every_replica = True


async def test_a_standby_is_ready_and_writes_nothing(world):
    """Caches and servers run; runnables of the leader do not run, and may not write."""
    world.create("jobs", make_job("j").build())
    async with leading(world) as a:
        manager = elected_manager(world, NAME, identity="b")
        worker, server = Worker(), Server()
        jobs = manager.informer(Job)
        manager.add(worker)
        manager.add(server)
        async with started(manager):
            standby = (server.runs, worker.runs, len(jobs.store.list()), manager.leading.is_set())
            with pytest.raises(LeadershipLostError):
                await manager.client.delete(Job, "default", "j")
            await manager.replica_client.merge_patch(
                Job, "default", "j", {"metadata": {"labels": {"a": "b"}}}
            )
            a.stop.set()
            await manager.leading.wait()
            await manager.client.delete(Job, "default", "j")
            leader = (server.runs, worker.runs)

    assert standby == (True, False, 1, False)
    assert leader == (True, True)
    assert (server.runs, worker.runs) == (False, False)
    assert record(world)["holderIdentity"] == ""


class KeyLog:
    """A reconciler that records the names of its requests."""

    def __init__(self):
        self.keys = []

    async def reconcile(self, request):
        self.keys.append(request.key.name)
        return Result.done()


async def test_a_standby_queues_nothing_until_it_leads(world):
    """Then all existing objects are reconciled, and no object that was deleted before."""
    async with leading(world) as a:
        manager = elected_manager(world, NAME, identity="b")
        log, extra = KeyLog(), ObjectKey("default", "extra")
        controller = Controller(
            name="log",
            reconciler=log,
            watches=[
                Watch(manager.informer(Job), enqueue_self),
                Watch(manager.informer(Job), enqueue_mapped(lambda _: [extra]), standby=True),
            ],
        )
        manager.add(controller)
        async with started(manager):
            for name in ("x", "y", "z"):
                world.create("jobs", make_job(name).build())
            await asyncio.sleep(1)
            world.delete("jobs", "y")
            await asyncio.sleep(1)
            waiting = len(controller.queue)
            a.stop.set()
            await manager.leading.wait()
            await asyncio.sleep(1)

    assert waiting == 0
    assert sorted(log.keys) == ["x", "z"]


async def test_a_manager_ends_when_it_loses_leadership(world):
    """``run`` raises after everything was stopped; the Lease is no longer its own to release."""
    manager = elected_manager(world, NAME, identity="a")
    worker = Worker()
    manager.add(worker)
    async with aio.supervise() as tasks:
        running = tasks.start(_ended(manager), name="manager")
        await manager.leading.wait()
        assert worker.runs
        world.faults.status(500, resource="leases", verb="patch")
        error = await running

    assert isinstance(error, LeadershipLostError)
    assert not worker.runs
    assert not manager.ready.is_set()
    assert record(world)["holderIdentity"].startswith("a_")  # not released


async def _ended(manager):
    try:
        await manager.run(asyncio.Event())
    except LeadershipLostError as error:
        return error
