"""Managers that share the JobSets, whole ones on one API server in memory, in virtual time."""

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
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from support.cluster.objects import in_place_jobset

pytestmark = pytest.mark.looptime

NAMES = [f"gang-{number}" for number in range(6)]
PODS = 2


def loop_time():
    return asyncio.get_running_loop().time()


class Cluster:
    """The API server, with the test as Job controller and agents."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.world.garbage_collect = True

    @asynccontextmanager
    async def manager(self, count, webhooks=False):
        """A manager of ``count`` shards; leaving the block stops it."""
        values = {"shards.count": count}
        configuration = Configuration(values=values)
        election = LeaderElectionSettings(namespace="default", name="x")
        settings = ManagerSettings(
            leader_election=election, shards=shards(configuration, elected=True)
        )
        client = RecordingClient(self.world, qps=0)
        manager = Manager(client, settings=settings, clock=VirtualClock())
        elector = manager._elector
        for one in getattr(elector, "electors", [elector]):
            one._clock = one.fence._clock = loop_time
        add_jobset_controllers(manager, configuration)
        if webhooks:
            admission.setup(manager)
            manager._runnables.pop()  # its caches are what matters here
            del manager._ready_checks["webhooks"]
        manager.stop = asyncio.Event()
        async with aio.supervise() as tasks:
            manager.task = tasks.start(manager.run(manager.stop), name="manager")
            async with asyncio.timeout(30):
                await manager.ready.wait()
            yield manager
            manager.stop.set()
            await asyncio.wait([manager.task])

    def pods(self):
        """Have each Job run its pods."""
        for job in self.world.list("jobs"):
            for index in range(PODS):
                name = f"{job['metadata']['name']}-{index}"
                if self.world.get("pods", name) is None:
                    pod = make_pod(name).of(job, index).phase("Running").build()
                    pod["metadata"]["labels"][keys.COMPLETION_INDEX_LABEL] = str(index)
                    self.world.create("pods", pod)

    def report(self, jobset, epoch, pods=None):
        """Have agents come to an epoch."""
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


async def until(condition, seconds=60):
    """Wait in virtual time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.05)


async def kill(manager):
    """End it without a word: its Leases stay as they are."""
    for one in manager._elector.electors:
        one.leading.clear()
    manager.task.cancel()
    await asyncio.wait([manager.task])


def jobsets_of(manager):
    return {one.metadata.name for one in manager.informer(JobSet).store.list()}


async def test_each_jobset_has_one_manager_and_all_its_objects_are_there():
    """Caches are disjoint and complete together; the Jobs of all are made, each once."""
    cluster = Cluster()
    for name in NAMES:
        cluster.world.create(JobSet, in_place_jobset(name, jobs=1, pods=PODS))
    async with cluster.manager(2) as one, cluster.manager(2) as two:
        await until(lambda: one.leading.is_set() and two.leading.is_set())
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
    """All JobSets run, and of each one agent has come to the next epoch; then the other."""
    await until(lambda: all(one.leading.is_set() for one in managers))
    await asyncio.sleep(2)
    cluster.pods()
    for name in NAMES:
        cluster.report(name, 1)
    await until(lambda: set(cluster.epochs()) == {(1, 0)})
    cluster.world.requests.clear()
    for name in NAMES:
        cluster.report(name, 2, pods=1)
    await until(lambda: set(cluster.epochs()) == {(1, 1)})
    yield
    for name in NAMES:
        cluster.report(name, 2)
    await until(lambda: set(cluster.epochs()) == {(2, 1)})
    await asyncio.sleep(5)

    two_writes = [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
    assert cluster.epoch_writes() == dict.fromkeys(NAMES, two_writes)
    assert len(cluster.world.list("jobs")) == len(NAMES)
    assert not [each for each in cluster.world.requests.writes if each.resource == "jobs"]


async def test_a_restart_continues_where_a_manager_is_killed():
    """A standby fills its caches and ends the restart, while the other shard goes on by itself."""
    cluster = Cluster()
    for name in NAMES:
        cluster.world.create(JobSet, in_place_jobset(name, jobs=1, pods=PODS))
    async with cluster.manager(2) as one, cluster.manager(2) as two:
        await until(lambda: one.leading.is_set() and two.leading.is_set())
        async with cluster.manager(2) as standby, restarting(cluster, one, two):
            await asyncio.sleep(5)
            assert (standby.ready.is_set(), standby.leading.is_set()) == (True, False)
            assert standby._cache_sizes()["JobSet"] == 0
            killed, began = one._elector.assignment.index, loop_time()
            await kill(one)
            name = next(iter(jobsets_of(two)))
            cluster.report(name, 2)
            await until(lambda: cluster.epochs()[NAMES.index(name)] == (2, 1), 1)
            await until(standby.leading.is_set, 25)
            assert standby._elector.assignment.index == killed
            assert loop_time() - began >= 10
            assert two.leading.is_set()


async def test_growing_from_two_to_three_under_a_restart():
    """The new ones wait with full caches until the last old one has ended; two writes, no new Job."""
    cluster = Cluster()
    for name in NAMES:
        cluster.world.create(JobSet, in_place_jobset(name, jobs=1, pods=PODS))
    async with AsyncExitStack() as stack:
        old = [await stack.enter_async_context(cluster.manager(2)) for _ in range(2)]
        async with restarting(cluster, *old):
            new = [await stack.enter_async_context(cluster.manager(3)) for _ in range(3)]
            await until(lambda: all(one.filled.is_set() for one in new))
            for one in old:
                await asyncio.sleep(5)
                assert not any(each.leading.is_set() for each in new)
                one.stop.set()
                await one.task
            began = loop_time()
            await until(lambda: all(one.leading.is_set() for one in new))
            assert loop_time() - began <= 3
            assert sorted(one._elector.assignment.index for one in new) == [0, 1, 2]
            shares = [jobsets_of(one) for one in new]
            assert sorted(name for share in shares for name in share) == sorted(NAMES)


async def test_every_manager_knows_all_leaders_for_its_webhooks():
    """One that stands by, too: the pods with index 0 of all JobSets, and all Jobs; no followers."""
    cluster = Cluster()
    for name in NAMES:
        cluster.world.create(JobSet, in_place_jobset(name, jobs=1, pods=PODS))
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(cluster.manager(2, webhooks=True)) for _ in range(3)
        ]
        await until(lambda: sum(one.leading.is_set() for one in made) == 2)
        await asyncio.sleep(1)
        cluster.pods()
        await asyncio.sleep(1)
        for one in made:
            sizes = one._cache.sizes()
            assert (sizes["Pod"], sizes["Job"]) == (len(NAMES), len(NAMES))
