"""Processes that share the work, each with its Lease, in virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import structlog

from jobsetpy.api.batch import Job
from jobsetpy.errors import LeadershipLostError
from jobsetpy.manager import LeaderElectionSettings, ManagerSettings, Shards
from jobsetpy.manager._leader import LeaderElector
from jobsetpy.manager._shards import ShardElector, lease_of
from jobsetpy.observability import metrics
from jobsetpy.testing import RecordingClient, World, make_job
from support.elections import Contender, contending, loop_time, within

pytestmark = pytest.mark.looptime

LEASES = "leases.coordination.k8s.io"
NAME = "jobset"


class ShardContender(Contender):
    """A process with ``count`` shards, or without sharding if that is 1."""

    def __init__(self, world, count, identity="same"):
        settings = LeaderElectionSettings(namespace="default", name=NAME, identity=identity)
        client = RecordingClient(world, qps=0).unpooled()
        if count == 1:
            super().__init__(LeaderElector(client, settings, clock=loop_time))
        else:
            super().__init__(ShardElector(client, settings, count, clock=loop_time))
        self.count = count

    @property
    def index(self):
        return self.elector.assignment.index

    def hang(self):
        """Hang without renewing, which equals a crash."""
        for one in self.elector.electors:
            one.attempt = asyncio.Event().wait


def contenders(world, *counts):
    """Contenders that run within the block."""
    return contending([ShardContender(world, count) for count in counts])


@pytest.fixture
def world():
    """An API server in memory, without Leases."""
    return World()


@asynccontextmanager
async def leading_pair(world):
    """Two processes that lead a shard each."""
    async with contenders(world, 2, 2) as pair:
        await within(3, lambda: all(one.leads for one in pair))
        yield pair


def holder(world, name=NAME):
    return world.get(LEASES, name)["spec"]["holderIdentity"]


async def test_each_shard_has_one_process_and_the_rest_stand_by(world):
    """Two of three processes get and keep a shard; they hold the Lease of managers without shards."""
    async with contenders(world, 2, 2, 2) as processes:
        await within(3, lambda: sum(one.leads for one in processes) == 2)
        working = [one for one in processes if one.leads]
        await asyncio.sleep(120)

        assert [one.leads for one in working] == [True, True]
        assert sorted(one.index for one in working) == [0, 1]
        assert {holder(world, lease_of(NAME, one.index, 2)) for one in working} == {
            one.elector.identity for one in working
        }
        assert holder(world) == "2 shards"


async def test_a_standby_takes_the_shard_of_a_killed_process(world):
    """It has the shard within the time of an election; the other process continues."""
    async with leading_pair(world) as pair, contenders(world, 2) as (standby,):
        await asyncio.sleep(5)
        pair[0].hang()
        seconds = await within(20, lambda: standby.leads)

        assert 12 <= seconds <= 20
        assert standby.index == pair[0].index
        assert pair[0].elector.fence.remaining_s() <= 0
        assert pair[1].leads
        assert world.get(LEASES, lease_of(NAME, pair[1].index, 2))["spec"]["leaseTransitions"] == 0
        assert world.get(LEASES, NAME)["spec"]["leaseTransitions"] == 0


async def test_a_released_shard_is_taken_immediately(world):
    """A standby takes it at its next attempt; the shard count stays."""
    async with leading_pair(world) as pair, contenders(world, 2) as (standby,):
        await asyncio.sleep(5)
        pair[0].stop.set()
        seconds = await within(5, lambda: standby.leads)

        assert seconds <= 2.5  # without the informers, which report the release immediately
        assert holder(world) == "2 shards"


async def test_only_one_of_two_processes_with_a_shard_can_write(world):
    """Writes of the former holder are refused, although its common Lease is renewed."""
    async with leading_pair(world) as pair:
        first = pair[0]
        async with contenders(world, 2) as (standby,):
            first.elector.shards[first.index].attempt = asyncio.Event().wait  # hangs
            await within(20, lambda: standby.leads)
            assert standby.index == first.index
            assert first.leads  # by its own state
            assert first.elector.number.fence.remaining_s() > 0
            old, new = (
                RecordingClient(world, qps=0).fenced_by(one.elector.fence)
                for one in (first, standby)
            )
            with pytest.raises(LeadershipLostError):
                await old.create(Job, "default", make_job("j").build())
            await new.create(Job, "default", make_job("j").build())


@pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2), (1, 2), (2, 1)])
async def test_another_shard_count_begins_when_the_last_process_has_ended(world, old, new):
    """It begins immediately then; a process that has a shard before logs what it waits for."""
    with structlog.testing.capture_logs() as lines:
        async with contenders(world, *[old] * old) as before:
            await within(3, lambda: all(one.leads for one in before))
            async with contenders(world, *[new] * new) as after:
                for one in before:
                    await asyncio.sleep(10)
                    assert not any(other.leads for other in after)
                    one.stop.set()
                seconds = await within(10, lambda: all(one.leads for one in after))

    assert seconds <= 3
    assert {one.lost for one in (*before, *after)} == {None}
    if new > 1:
        held = [line["held_by"][NAME] for line in lines if "different shard count" in line["event"]]
        assert held
        assert all(
            ("shards since 20" in each) == (old > 1) for each in held if "no manager" not in each
        )


async def test_another_shard_count_waits_for_the_lease_of_a_killed_process(world):
    """A Lease that was not released has to expire."""
    async with contenders(world, 2, 2) as before, contenders(world, 3, 3, 3) as after:
        await within(20, lambda: any(one.leads for one in (*before, *after)))
        first, second = (before, after) if before[0].leads else (after, before)
        await within(3, lambda: all(one.leads for one in first))
        first[0].hang()
        await asyncio.sleep(1)
        for one in first[1:]:
            one.stop.set()
        seconds = await within(25, lambda: all(one.leads for one in second))

        assert seconds >= 10
        assert first[0].elector.fence.remaining_s() <= 0


async def test_a_process_ends_when_it_loses_the_common_lease(world):
    """A shard cannot be used without it."""
    async with leading_pair(world) as pair:
        world.patch(LEASES, NAME, {"spec": {"holderIdentity": "admin"}})
        await within(3, lambda: all(one.lost for one in pair))

        assert {"'admin'" in str(one.lost) for one in pair} == {True}
        assert not any(one.elector.fence.remaining_s() > 0 for one in pair)
        assert holder(world) == "admin"


async def test_the_metric_is_1_only_for_the_own_shard(world):
    """It is 0 for other Leases, so that alerts about Leases without a holder stay correct."""

    def value(index):
        name = lease_of(NAME, index, 2)
        return metrics.REGISTRY.get_sample_value("leader_election_master_status", {"name": name})

    async with contenders(world, 2) as (one,):
        await within(3, lambda: one.leads)
        assert (value(one.index), value(1 - one.index)) == (1, 0)
        one.stop.set()
        await asyncio.sleep(1)
        assert (value(0), value(1)) == (0, 0)


@pytest.mark.parametrize("count", [-1, 0, 1, 65])
async def test_invalid_shard_counts_are_refused(count):
    """The count is from 2 to 64."""
    with pytest.raises(ValueError, match="from 2 to 64"):
        Shards(count, lambda _: str)


async def test_shards_need_an_election():
    """Without one, two processes would have the same shard."""
    with pytest.raises(ValueError, match="need leader_election"):
        ManagerSettings(shards=Shards(2, lambda _: str))
