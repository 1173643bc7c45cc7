"""Complete managers that share JobSets on one API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from jobsetpy import admission, aio
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.wiring import add_jobset_controllers, shards
from jobsetpy.informers._keyed_shard import place_of
from jobsetpy.testing import VirtualClock, World, make_pod
from support.cluster.objects import in_place_jobset
from support.elections import elected_manager, loop_time, within

pytestmark = pytest.mark.looptime

NAMES = [f"gang-{number}" for number in range(6)]
PODS = 2


class Cluster:
    """An API server with JobSets; the test is its Job controller and the agents."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.world.garbage_collect = True
        for name in NAMES:
            self.world.create(JobSet, in_place_jobset(name, jobs=1, pods=PODS))

    @asynccontextmanager
    async def manager(self, count, webhooks=False):
        """A manager of ``count`` shards; leaving the block stops it."""
        configuration = Configuration(values={"shards.count": count})
        shared = shards(configuration, elected=True)
        manager = elected_manager(self.world, "x", clock=VirtualClock(), shards=shared)
        add_jobset_controllers(manager, configuration)
        if webhooks:
            admission.setup(manager)
            manager._runnables.pop()  # only its caches matter here
            del manager._ready_checks["webhooks"]
        manager.stop = asyncio.Event()
        async with aio.supervise() as tasks:
            manager.task = tasks.start(manager.run(manager.stop), name="manager")
            await within(30, manager.ready.is_set)
            yield manager
            manager.stop.set()
            await asyncio.wait([manager.task])

    def pods(self):
        """Create the pods of each Job."""
        for job in self.world.list("jobs"):
            for index in range(PODS):
                name = f"{job['metadata']['name']}-{index}"
                if self.world.get("pods", name) is None:
                    pod = make_pod(name).of(job, index).phase("Running").build()
                    pod["metadata"]["labels"][keys.COMPLETION_INDEX_LABEL] = str(index)
                    self.world.create("pods", pod)

    def report(self, jobset, epoch, pods=None):
        """Report an epoch, as agents do."""
        selector = f"{keys.JOBSET_NAME}={jobset}"
        for pod in self.world.list("pods", labels=selector)[:pods]:
            annotations = {keys.EPOCH_ANNOTATION: str(epoch)}
            self.world.patch(
                "pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}}
            )

    def epochs(self):
        """Both epochs of each JobSet."""
        found = [(self.world.get(JobSet, name) or {}).get("status", {}) for name in NAMES]
        return [(one.get("syncedEpoch", 0), one.get("deprecatedEpoch", 0)) for one in found]

    def epoch_writes(self):
        """Writes of epochs, by JobSet."""
        writes = {}
        for request in self.world.requests.writes:
            status = request.json.get("status", {}) if request.resource == "jobsets/status" else {}
            change = {
                key: status[key] for key in ("syncedEpoch", "deprecatedEpoch") if key in status
            }
            if change:
                writes.setdefault(request.name, []).append(change)
        return writes


async def kill(manager):
    """End a manager without releasing its Leases."""
    for one in manager._elector.electors:
        one.leading.clear()
    manager.task.cancel()
    await asyncio.wait([manager.task])


def jobsets_of(manager):
    return {one.metadata.name for one in manager.informer(JobSet).store.list()}


async def test_each_jobset_has_one_manager():
    """Caches are disjoint and together complete; each Job is created once."""
    cluster = Cluster()
    async with cluster.manager(2) as one, cluster.manager(2) as two:
        await within(60, lambda: one.leading.is_set() and two.leading.is_set())
        await asyncio.sleep(2)
        cluster.pods()
        await asyncio.sleep(2)

        assert len(cluster.world.list("jobs")) == len(NAMES)
        assert sum(
            each.verb == "create" and each.resource == "jobs"
            for each in cluster.world.requests.writes
        ) == len(NAMES)
        shares = [jobsets_of(one), jobsets_of(two)]
        assert shares[0] | shares[1] == set(NAMES)
        assert not shares[0] & shares[1]
        for manager, share in zip((one, two), shares, strict=True):
            index = manager._elector.assignment.index
            assert share == {name for name in NAMES if place_of("default", name, 2) == index}
            for cls in (Job, ChildPod):
                store = manager.informer(cls, label_selector=keys.JOBSET_NAME).store
                found = {
                    labels[keys.JOBSET_NAME] if cls is Job else labels.jobset_name
                    for labels in (each.metadata.labels for each in store.list())
                }
                assert found == share


@asynccontextmanager
async def restarting(cluster, *managers):
    """A block in the middle of a restart of all JobSets: one of two agents has restarted."""
    await within(60, lambda: all(one.leading.is_set() for one in managers))
    await asyncio.sleep(2)
    cluster.pods()
    for name in NAMES:
        cluster.report(name, 1)
    await within(60, lambda: set(cluster.epochs()) == {(1, 0)})
    cluster.world.requests.clear()
    for name in NAMES:
        cluster.report(name, 2, pods=1)
    await within(60, lambda: set(cluster.epochs()) == {(1, 1)})
    yield
    for name in NAMES:
        cluster.report(name, 2)
    await within(60, lambda: set(cluster.epochs()) == {(2, 1)})
    await asyncio.sleep(5)

    two_writes = [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
    assert cluster.epoch_writes() == dict.fromkeys(NAMES, two_writes)
    assert len(cluster.world.list("jobs")) == len(NAMES)
    assert not [each for each in cluster.world.requests.writes if each.resource == "jobs"]


async def test_a_restart_continues_when_a_manager_is_killed():
    """A standby fills its caches and completes the restart; the other shard is not affected."""
    cluster = Cluster()
    async with cluster.manager(2) as one, cluster.manager(2) as two:
        await within(60, lambda: one.leading.is_set() and two.leading.is_set())
        async with cluster.manager(2) as standby, restarting(cluster, one, two):
            await asyncio.sleep(5)
            assert (standby.ready.is_set(), standby.leading.is_set()) == (True, False)
            assert standby._shared.sizes()["JobSet"] == 0
            killed, began = one._elector.assignment.index, loop_time()
            await kill(one)
            name = next(iter(jobsets_of(two)))
            cluster.report(name, 2)
            await within(1, lambda: cluster.epochs()[NAMES.index(name)] == (2, 1))
            await within(25, standby.leading.is_set)
            assert standby._elector.assignment.index == killed
            assert loop_time() - began >= 10
            assert two.leading.is_set()


async def test_the_shard_count_grows_from_two_to_three_during_a_restart():
    """New managers wait with full caches for the last old one; there are two writes and no new Job."""
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        old = [await stack.enter_async_context(cluster.manager(2)) for _ in range(2)]
        async with restarting(cluster, *old):
            new = [await stack.enter_async_context(cluster.manager(3)) for _ in range(3)]
            await within(60, lambda: all(one.filled.is_set() for one in new))
            for one in old:
                await asyncio.sleep(5)
                assert not any(each.leading.is_set() for each in new)
                one.stop.set()
                await one.task
            began = loop_time()
            await within(60, lambda: all(one.leading.is_set() for one in new))
            assert loop_time() - began <= 3
            assert sorted(one._elector.assignment.index for one in new) == [0, 1, 2]
            shares = [jobsets_of(one) for one in new]
            assert sorted(name for share in shares for name in share) == sorted(NAMES)


async def test_every_manager_caches_all_leaders_for_its_webhooks():
    """Standbys too have the pods with index 0 of all JobSets, and all Jobs, but no followers."""
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(cluster.manager(2, webhooks=True)) for _ in range(3)
        ]
        await within(60, lambda: sum(one.leading.is_set() for one in made) == 2)
        await asyncio.sleep(1)
        cluster.pods()
        await asyncio.sleep(1)
        for one in made:
            sizes = one._cache.sizes()
            assert (sizes["Pod"], sizes["Job"]) == (len(NAMES), len(NAMES))
