"""The reconciler of restarts in place in a whole manager, on a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.testing import make_job, make_pod
from support.jobsets import replicated_job
from support.restarts.epoch_plans import policy
from support.restarts.managed_group import come, epoch_writes, started

pytestmark = pytest.mark.looptime


async def test_barrier_lifts_when_all_pods_have_started(rig):
    """By one write."""
    async with rig.manager():
        rig.create(replicated_job("w", 2, parallelism=2), failurePolicy=policy())
        await rig.settle()
        names = rig.run_pods(2)
        await come(rig, names[:-1], 1)
        assert rig.epochs() == (0, 0)

        await come(rig, names[-1:], 1)
        assert rig.epochs() == (1, 0)
        assert epoch_writes(rig) == [{"syncedEpoch": 1}]
        assert rig.events() == []


@pytest.mark.parametrize(
    "missing", [("syncedEpoch", "deprecatedEpoch", "inPlaceRestart"), ("deprecatedEpoch",)]
)
async def test_epochs_that_the_crd_does_not_have_are_written_when_it_is_renewed(rig, missing):
    """Not before, in any number of reconciles; nothing is reported or counted that is not stored."""
    async with rig.manager(missing=[f"status.{each}" for each in missing]):
        rig.create(replicated_job("w", 2, parallelism=2), failurePolicy=policy())
        await rig.settle()
        names = rig.run_pods(2)
        await come(rig, names, 1)
        await come(rig, names[:1], 2)
        for _ in range(5):
            rig.touch()
            await rig.settle()
        synced = [] if "syncedEpoch" in missing else [{"syncedEpoch": 1}]
        assert (epoch_writes(rig), rig.events(keys.IN_PLACE_RESTART_STARTED_REASON)) == (synced, [])
        assert rig.condition("OutdatedDefinition") == ("True", "OutdatedDefinition")
        assert rig.condition(keys.RESTARTING_IN_PLACE_CONDITION) is None

        rig.definition.missing = frozenset()
        rig.touch()
        await come(rig, names[1:], 2)
        assert rig.epochs() == (2, 1)
        assert rig.condition("OutdatedDefinition") == ("False", "OutdatedDefinition")


async def test_a_restart_costs_two_writes(rig):
    """One deprecates the epoch, one lifts the barrier, in whatever order the pods come."""
    async with rig.manager():
        names = await started(rig, jobs=5, pods=20)
        await come(rig, names[:1], 2)
        assert rig.epochs() == (1, 1)

        for name in names[1:-1]:
            rig.report(name, 2)
            await asyncio.sleep(0.001)
        await rig.settle()
        assert rig.epochs() == (1, 1)

        await come(rig, names[-1:], 2)
        assert rig.epochs() == (2, 1)
        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}, {"syncedEpoch": 2}]
        begun = (
            f"pod {names[0]!r} has restarted: restarting in place from epoch 1 to 2, "
            "99 pods to follow"
        )
        assert rig.events() == [
            (keys.IN_PLACE_RESTART_STARTED_REASON, begun, 1),
            (keys.IN_PLACE_RESTART_COMPLETED_REASON, "100 pods are at epoch 2: workers may run", 1),
        ]
        assert rig.status()["restarts"] == 0


async def test_epoch_is_not_written_again_when_the_jobset_cache_is_late(rig):
    """While the watch of JobSets sends nothing."""
    async with rig.manager():
        names = await started(rig)
        rule = rig.faults.stall(verb="watch", resource="jobsets")
        for name in names[:-1]:
            rig.report(name, 2)
            await asyncio.sleep(1)
        rule.lift()
        await rig.settle()

        assert epoch_writes(rig) == [{"deprecatedEpoch": 1}]


async def test_a_conflict_is_decided_again_immediately_on_a_fresh_read(rig):
    """Another writer in between costs a read and a second write, and nothing is lost."""
    async with rig.manager():
        names = await started(rig)
        rule = rig.faults.stall(verb="watch", resource="jobsets")
        rig.world.patch("jobsets", "test-js", {"status": {"foreign": 1}}, subresource="status")
        rig.report(names[0], 2)
        await asyncio.sleep(0.001)

        assert rig.epochs() == (1, 1)
        assert rig.status()["foreign"] == 1
        assert rig.world.requests.count("get", "jobsets") == 1
        rule.lift()


async def test_epochs_never_decrease(rig):
    """A manager with an old cache cannot undo the write of a newer one."""
    async with rig.manager():
        names = await started(rig)
        rule = rig.faults.stall(verb="watch", resource="jobsets")
        rig.world.patch(
            "jobsets", "test-js", {"status": {"deprecatedEpoch": 5}}, subresource="status"
        )
        rig.report(names[0], 2)
        await rig.settle(1)

        assert rig.epochs() == (1, 5)
        rule.lift()


async def test_reconcilers_of_jobs_and_epochs_keep_fields_of_each_other(rig):
    """Counters and epochs change at the same time, and neither erases the other."""
    async with rig.manager(counters_every_s=0.0):
        names = await started(rig, jobs=10, pods=2)
        for number in range(10):
            rig.world.set_status("jobs", f"test-js-w-{number}", active=2, ready=number % 3)
            rig.report(names[2 * number], 2)
            await asyncio.sleep(0)
        await come(rig, names, 2)

        (counters,) = rig.status()["replicatedJobsStatus"]
        assert rig.epochs() == (2, 1)
        assert (counters["active"], counters["ready"]) == (10, 3)


async def test_pods_outside_the_group_do_not_count(rig):
    """Neither a pod with the right labels and no Job, nor one of a made-up Job."""
    async with rig.manager():
        names = await started(rig)
        job = rig.world.get("jobs", "test-js-w-0")
        made_up = {**job, "metadata": {**job["metadata"], "uid": "made-up"}}
        orphan = make_pod("orphan").labels(job["metadata"]["labels"]).epoch(9)
        forged = make_pod("forged").of(made_up).epoch(9)
        rig.world.create("pods", orphan.build())
        rig.world.garbage_collect = False
        rig.world.create("pods", forged.build())
        foreign = make_job("foreign").labels({keys.JOBSET_NAME: "test-js"}).build()
        rig.world.create("jobs", foreign)
        foreign = rig.world.get("jobs", "foreign")
        rig.world.create("pods", make_pod("of-foreign").of(foreign).epoch(9).build())
        await rig.settle()

        assert rig.epochs() == (1, 0)
        await come(rig, names, 2)
        assert rig.epochs() == (2, 1)


async def test_a_new_manager_completes_a_restart(rig):
    """That another one began."""
    async with rig.manager():
        names = await started(rig)
        await come(rig, names[:1], 2)
    for name in names[1:]:
        rig.report(name, 2)
    assert rig.epochs() == (1, 1)
    async with rig.manager():
        await rig.settle()

        assert rig.epochs() == (2, 1)


async def test_counts_are_right_again_when_watches_and_history_were_lost(rig):
    """A pod was deleted meanwhile, and another one reported."""
    async with rig.manager():
        names = await started(rig)
        await come(rig, names[:1], 2)
        rig.faults.end_watches(resource="pods")
        rig.world.delete("pods", names[1])
        rig.report(names[2], 2)
        rig.world.expire()
        await rig.settle()
        rig.run_pods(2)
        await come(rig, names, 2)

        assert rig.epochs() == (2, 1)
