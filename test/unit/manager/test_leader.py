"""Electing a leader, in virtual time, with an API server in memory that fails by script."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.meta import ObjectKey
from jobsetpy.controller import Controller, Result, Watch, enqueue_mapped, enqueue_self
from jobsetpy.errors import LeadershipLostError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings, Runnable
from jobsetpy.manager._leader import LeaderElector
from jobsetpy.testing import RecordingClient, World, make_job
from support.elections import Contender, contending, loop_time, within
from support.managers import started

pytestmark = pytest.mark.looptime

NAME = "6d4f6a47.jobset.x-k8s.io"


def election(identity, **times):
    return LeaderElectionSettings(namespace="default", name=NAME, identity=identity, **times)


def contender(world, identity, **times):
    """A process with a client of its own."""
    client = RecordingClient(world, qps=0)
    elector = LeaderElector(client.unpooled(), election(identity, **times), clock=loop_time)
    made = Contender(elector)
    made.client = client
    return made


def contenders(world, *names, **times):
    """Contenders that run within the block."""
    return contending([contender(world, name, **times) for name in names])


def record(world):
    return world.get("leases.coordination.k8s.io", NAME)["spec"]


async def test_the_first_one_makes_the_lease_and_leads():
    """A Lease that is missing is made, with the record that client-go's elections read."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)

        spec = record(world)
        assert spec["holderIdentity"] == a.elector.identity
        assert spec["holderIdentity"].startswith("a_")
        assert spec["leaseDurationSeconds"] == 15
        assert spec["leaseTransitions"] == 0
        assert spec["acquireTime"] == spec["renewTime"]
        assert spec["renewTime"].endswith("Z")
        assert len(spec["renewTime"]) == len("2026-01-01T00:00:00.000000Z")


async def test_a_leader_stays_one_and_the_other_stands_by():
    """Ten minutes with two contenders has one leader, one acquisition and a renewal every 2 s."""
    world = World()
    async with contenders(world, "a", "b") as (a, b):
        await asyncio.sleep(1)
        first, other = (a, b) if a.leads else (b, a)
        await asyncio.sleep(600)

        assert first.leads
        assert not other.leads
        assert record(world)["leaseTransitions"] == 0
        renewals = [one for one in world.requests.writes if one.verb == "patch"]
        assert 300 <= len(renewals) <= 385


async def test_a_leader_that_vanishes_is_followed():
    """Whoever stands by leads 15 s after the last sign of life, and at most 18 s."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        async with contenders(world, "b") as (b,):
            renew, signs_of_life = a.elector.attempt, []

            async def renew_noted():
                if renewed := await renew():
                    signs_of_life.append(loop_time())
                return renewed

            a.elector.attempt = renew_noted
            await asyncio.sleep(10)
            world.faults.status(503, verb="patch")
            a.elector.attempt = asyncio.Event().wait  # hangs: as good as dead
            await asyncio.sleep(2.1)
            world.faults.clear()
            seconds = await within(20, lambda: b.leads)

            assert loop_time() - signs_of_life[-1] >= 15
            assert seconds <= 18
            assert a.elector.fence.remaining_s() <= 0
            assert record(world)["leaseTransitions"] == 1


async def test_a_lease_is_given_back_on_the_way_out():
    """Whoever stops gives the Lease back, in client-go's way, and the next leads at once."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        async with contenders(world, "b") as (b,):
            await asyncio.sleep(5)
            a.stop.set()
            await asyncio.sleep(0.1)
            spec = record(world)
            seconds = await within(3, lambda: b.leads)

            assert spec["holderIdentity"] == ""
            assert spec["leaseDurationSeconds"] == 1
            assert seconds <= 2.4  # without the informer, which makes it at once
            assert record(world)["leaseDurationSeconds"] == 15


async def test_news_of_a_free_lease_are_acted_on_at_once():
    """An informer's event that the Lease was given back cuts the pause short."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        async with contenders(world, "b") as (b,):
            await asyncio.sleep(5)
            a.stop.set()
            await asyncio.sleep(0.01)
            b.elector.on_update(Lease(), await b.client.get(Lease, "default", NAME))
            seconds = await within(1, lambda: b.leads)

            assert seconds <= 0.02


async def test_renewals_that_fail_end_leadership_before_another_can_begin():
    """The fence closes 10 s after the last renewal, and the process is told to end."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        await asyncio.sleep(5)
        world.faults.status(500, verb="patch")
        seconds = await within(11, lambda: a.lost is not None)

        assert 7.5 <= seconds <= 10.1
        assert "not renewed for 10 s" in str(a.lost)
        assert a.elector.fence.remaining_s() <= 0
        with pytest.raises(LeadershipLostError):
            a.elector.fence.check()


async def test_calls_that_hang_do_not_keep_leadership():
    """An API server that takes requests and never answers ends leadership in the same time."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        world.faults.latency(3600, resource="leases")
        seconds = await within(11, lambda: a.lost is not None)

        assert seconds <= 10.1


async def test_a_short_outage_does_no_harm():
    """Eight seconds without the API server cost nothing."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        await asyncio.sleep(3)
        world.faults.status(500, resource="leases")
        await asyncio.sleep(6)
        world.faults.clear()
        await asyncio.sleep(60)

        assert a.leads


async def test_a_renewal_whose_answer_was_lost_is_none():
    """Only an answer extends leadership; the next renewal finds what was stored."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        await asyncio.sleep(3)
        world.faults.lose_answer(verb="patch", count=2)
        await asyncio.sleep(30)

        assert a.leads
        assert record(world)["leaseTransitions"] == 0


async def test_a_lease_taken_by_another_ends_leadership_at_once():
    """A leader that reads another's name stops, however fresh its own claim is."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        await asyncio.sleep(5)
        world.patch("leases.coordination.k8s.io", NAME, {"spec": {"holderIdentity": "admin"}})
        seconds = await within(3, lambda: a.lost is not None)

        assert seconds <= 2.1
        assert "'admin'" in str(a.lost)
        assert record(world)["holderIdentity"] == "admin"


async def test_what_others_keep_in_the_lease_stays():
    """Labels and unknown fields survive renewals, and a change of them costs no leadership."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"strategy": "OldestEmulationVersion"}}
        world.patch("leases.coordination.k8s.io", NAME, patch)
        await asyncio.sleep(10)

        assert a.leads
        assert record(world)["strategy"] == "OldestEmulationVersion"
        lease = world.get("leases.coordination.k8s.io", NAME)
        assert lease["metadata"]["labels"] == {"x": "y"}


async def test_the_times_in_the_record_count_for_nothing():
    """A holder whose wall clock is years behind is waited for like any other."""
    world = World()
    spec = {
        "holderIdentity": "go",
        "leaseDurationSeconds": 20,
        "acquireTime": "2001-01-01T00:00:00.000000Z",
        "renewTime": "2001-01-01T00:00:00.000000Z",
        "leaseTransitions": 7,
    }
    world.create(
        "leases.coordination.k8s.io",
        {"metadata": {"name": NAME, "namespace": "default"}, "spec": spec},
    )
    async with contenders(world, "a") as (a,):
        seconds = await within(25, lambda: a.leads)

        assert 20 <= seconds <= 20.5
        assert record(world)["leaseTransitions"] == 8


async def test_two_of_one_name_exclude_each_other():
    """A name given twice by mistake makes no second leader, at no time of its leader's life."""
    world = World()
    async with contenders(world, "same", "same") as pair:
        await within(3, lambda: any(one.leads for one in pair))
        first, other = sorted(pair, key=lambda one: not one.leads)
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert not other.leads
        first.stop.set()
        await within(5, lambda: other.leads)

        assert not first.leads
        assert first.lost is None


@pytest.mark.parametrize("hours", [5, -5, 100_000])
async def test_wall_clocks_that_jump_change_nothing(hours):
    """Neither a leader's nor a follower's: no leadership is lost, and none is taken early."""
    world = World()
    async with contenders(world, "a", "b") as pair:
        await within(3, lambda: any(one.leads for one in pair))
        first, other = sorted(pair, key=lambda one: not one.leads)
        for one in pair:
            await asyncio.sleep(10)
            one.elector._now = lambda: datetime.now(UTC) + timedelta(hours=hours)
        await asyncio.sleep(60)
        assert first.leads
        assert record(world)["leaseTransitions"] == 0
        first.elector.attempt = asyncio.Event().wait  # hangs: as good as dead
        seconds = await within(20, lambda: other.leads)

        assert 12 <= seconds <= 18


async def test_a_lease_that_is_deleted_is_made_again():
    """The leader makes its Lease anew and goes on."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        world.delete("leases.coordination.k8s.io", NAME)
        await asyncio.sleep(5)

        assert a.leads
        assert record(world)["holderIdentity"] == a.elector.identity


@pytest.mark.parametrize("after", [0.1, 0.7, 1.3, 1.9])
async def test_a_deleted_lease_has_no_second_leader(after):
    """Who stands by waits until the claim that it saw must have lapsed; the leader goes on."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        async with contenders(world, "b") as (b,):
            await asyncio.sleep(7 + after)
            world.delete("leases.coordination.k8s.io", NAME)
            b.elector.on_delete(None, final_state_known=True)
            for _ in range(4000):
                await asyncio.sleep(0.01)
                assert not (a.elector.fence.remaining_s() > 0 and b.elector.fence.remaining_s() > 0)

            assert a.leads
            assert record(world)["holderIdentity"] == a.elector.identity


async def test_a_deleted_lease_of_a_leader_that_is_gone_is_made_in_time():
    """Who stands by makes it when the last leader can lead no more, and not much later."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        async with contenders(world, "b") as (b,):
            await asyncio.sleep(5)
            a.elector.attempt = asyncio.Event().wait  # hangs: as good as dead
            await asyncio.sleep(0.1)
            world.delete("leases.coordination.k8s.io", NAME)
            seconds = await within(20, lambda: b.leads)

            assert 15 <= seconds <= 18
            assert a.elector.fence.remaining_s() <= 0


async def test_who_never_saw_a_deleted_lease_waits_as_well():
    """A process that starts in the gap leads only when the leader that it cannot know of does not.

    The first start of an installation, with two processes at once, waits for nothing.
    """
    world = World()
    async with contenders(world, "a", "b") as (a, b):
        assert await within(1, lambda: a.leads or b.leads) < 1
        leader = a if a.leads else b
        leader.elector.attempt = asyncio.Event().wait  # hangs: as good as dead
        (a if leader is b else b).stop.set()
        await asyncio.sleep(1)
        world.delete("leases.coordination.k8s.io", NAME)
        async with contenders(world, "c") as (c,):
            seconds = await within(20, lambda: c.leads)

            assert 15 <= seconds <= 18
            assert leader.elector.fence.remaining_s() <= 0


async def test_a_mark_that_may_not_be_made_prevents_no_leader():
    """Roles of before may not allow it."""
    world = World()
    lease = {"metadata": {"name": NAME, "namespace": "default"}, "spec": {"holderIdentity": ""}}
    world.create("leases.coordination.k8s.io", lease)
    world.faults.status(403, verb="create", resource="leases")
    async with contenders(world, "a") as (a,):
        assert await within(1, lambda: a.leads) < 1


async def test_a_claim_cut_short_is_given_back():
    """Whoever is stopped while its first claim is under way leaves no Lease behind."""
    world = World()
    world.faults.latency(1, verb="create", resource="leases")
    async with contenders(world, "a") as (a,):
        await asyncio.sleep(1.5)  # the mark is made before
        world.create(
            "leases.coordination.k8s.io",
            {
                "metadata": {"name": NAME, "namespace": "default"},
                "spec": {"holderIdentity": a.elector.identity},
            },
        )  # as if the API server had got it
        a.stop.set()
        await asyncio.sleep(1)

        assert record(world)["holderIdentity"] == ""


async def test_the_same_problem_is_reported_once():
    """A forbidden Lease is one warning, not one every 2 s."""
    world = World()
    world.faults.status(403, resource="leases")
    with structlog.testing.capture_logs() as lines:
        async with contenders(world, "a"):
            await asyncio.sleep(60)

    assert [line["log_level"] for line in lines if "error" in line] == ["warning"]


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 10, 9), (15, 10, 0)])
async def test_times_that_are_not_safe_are_refused(times):
    """Lease duration, renew deadline and retry period have to leave room for each other."""
    lease, renew, retry = times
    with pytest.raises(ValueError, match="leader election needs"):
        election("a", lease_duration_s=lease, renew_deadline_s=renew, retry_period_s=retry)


class Worker(Runnable):
    """Something that only a leader runs."""

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
    """Something that every replica runs."""

    name = "server"
    on_every_replica = True


async def test_a_standby_is_warm_and_writes_nothing():
    """Caches and servers run and it is ready; what leads does not run, and may not write."""
    world = World()
    world.create("jobs", make_job("j").build())
    settings = ManagerSettings(leader_election=election("b"))
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        manager = Manager(RecordingClient(world, qps=0), settings=settings)
        manager._elector._clock = loop_time
        manager._elector.fence._clock = loop_time
        worker, server = Worker(), Server()
        jobs = manager.informer(Job)
        manager.add(worker)
        manager.add(server)
        async with started(manager):
            standby = (server.runs, worker.runs, len(jobs.store.list()), manager.leading.is_set())
            with pytest.raises(LeadershipLostError):
                await manager.client.delete(Job, "default", "j")
            await manager.replica_client.apply_labels(
                Job, jobs.store.list()[0].metadata.key, {"a": "b"}, owner="x"
            )
            a.stop.set()
            await manager.leading.wait()
            await manager.client.delete(Job, "default", "j")
            leader = (server.runs, worker.runs)

    assert standby == (True, False, 1, False)
    assert leader == (True, True)
    assert (server.runs, worker.runs) == (False, False)
    assert record(world)["holderIdentity"] == ""


class Noting:
    """A reconciler that notes what it is asked to do."""

    def __init__(self):
        self.keys = []

    async def reconcile(self, request):
        self.keys.append(request.key.name)
        return Result.done()


async def test_a_standby_queues_nothing_and_then_sees_all():
    """What comes and goes meanwhile leaves no trace in the queue; what is there is reconciled."""
    world = World()
    async with contenders(world, "a") as (a,):
        await within(1, lambda: a.leads)
        manager = Manager(
            RecordingClient(world, qps=0), settings=ManagerSettings(leader_election=election("b"))
        )
        manager._elector._clock = manager._elector.fence._clock = loop_time
        noting, extra = Noting(), ObjectKey("default", "extra")
        controller = Controller(
            name="noting",
            reconciler=noting,
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
    assert sorted(noting.keys) == ["x", "z"]


async def test_a_manager_that_loses_leadership_ends_with_that():
    """``run`` raises, everything was stopped, and nothing can be written any more."""
    world = World()
    manager = Manager(
        RecordingClient(world, qps=0), settings=ManagerSettings(leader_election=election("a"))
    )
    manager._elector._clock = loop_time
    manager._elector.fence._clock = loop_time
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
    assert record(world)["holderIdentity"].startswith(
        "a_"
    )  # not given back: it was not his any more


async def _ended(manager):
    try:
        await manager.run(asyncio.Event())
    except LeadershipLostError as error:
        return error
