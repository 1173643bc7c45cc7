"""The coscheduling reconciler in a manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE
WAITING, DONE = keys.COSCHEDULING_IN_PROGRESS_CONDITION, keys.COSCHEDULING_COMPLETED_CONDITION
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


async def begin(rig, *jobs, scope="JobSet", pods=True, **spec):
    """Create a JobSet with coscheduling, by default of 2 Jobs of 2 pods; return its pods' names."""
    annotations = {keys.COSCHEDULING_ANNOTATION: scope}
    jobs = jobs or (replicated_job("w", 2, parallelism=2),)
    rig.create(*jobs, annotations=annotations, **spec)
    await rig.settle(0.5)
    return rig.make_pods(priority=0) if pods else []


def bind(rig, *names):
    """Bind pods as the scheduler does."""
    for name in names:
        rig.world.patch("pods", name, {"spec": {"nodeName": "n"}})


def labels(rig, name):
    """Return gang and minimum of a pod."""
    found = rig.world.get("pods", name)["metadata"]["labels"]
    return found.get(NAME), found.get(MIN)


def minima(rig):
    """Return the minimum of each pod by its name."""
    return {p["metadata"]["name"]: p["metadata"]["labels"].get(MIN) for p in rig.world.list("pods")}


def message(rig, kind):
    """Return the message of a condition."""
    conditions = rig.status()["conditions"]
    return next(item["message"] for item in conditions if item["type"] == kind)


def pod_writes(rig):
    """Return the number of writes of pods."""
    return len(rig.world.requests.matching("patch", "pods"))


async def test_pods_are_created_with_their_labels(rig):
    """The manager only writes the status once the gang is bound."""
    async with rig.manager(gangs=True):
        names = await begin(rig)
        await rig.settle(0.2)
        bind(rig, *names)
        await rig.settle(100)

        assert set(minima(rig).values()) == {"4"}
        assert pod_writes(rig) == 0
        assert rig.condition(DONE) == ("True", keys.POD_GROUPS_BOUND_REASON)
        assert rig.condition(WAITING) is None


async def test_lost_or_changed_label_is_restored(rig):
    """With one write for each pod."""
    async with rig.manager(gangs=True):
        first, second, *_ = await begin(rig)
        await rig.settle(0.5)
        before = labels(rig, first)
        rig.world.patch("pods", first, {"metadata": {"labels": {NAME: None, MIN: None}}})
        rig.world.patch("pods", second, {"metadata": {"labels": {NAME: "other"}}})
        await rig.settle(0.5)

        assert labels(rig, first) == labels(rig, second) == before
        assert pod_writes(rig) == 2


async def test_label_that_was_lost_while_no_manager_ran_is_restored(rig):
    """The first pass of a manager checks all pods."""
    async with rig.manager(gangs=True):
        first, *_ = await begin(rig)
        before = labels(rig, first)
    rig.world.patch("pods", first, {"metadata": {"labels": {NAME: None}}})
    async with rig.manager(gangs=True):
        await rig.settle(0.5)
        assert labels(rig, first) == before


@pytest.mark.parametrize("size", [1, 3])
async def test_running_pods_get_the_new_minimum_when_jobs_are_resized(rig, size):
    """Templates of running Jobs cannot change, but labels of their pods can."""
    async with rig.manager(gangs=True):
        bind(rig, *await begin(rig))
        await rig.settle(1)
        resized = replicated_job("w", 2, parallelism=size)
        rig.change(replicatedJobs=[resized])
        await rig.settle(2)
        rig.make_pods()
        await rig.settle(1)

        assert set(minima(rig).values()) == {str(2 * size)}


async def test_all_pods_get_the_minimum_when_its_annotation_changes(rig):
    """A change of annotations does not change the generation."""
    async with rig.manager(gangs=True):
        await begin(rig)
        await rig.settle(1)
        notes = {keys.COSCHEDULING_MIN_ANNOTATION: "3"}
        rig.world.patch(JobSet, "test-js", {"metadata": {"annotations": notes}})
        await rig.settle(1)

        assert set(minima(rig).values()) == {"3"}


async def test_state_of_gangs_is_reported(rig):
    """Members, minimum, waiting and bound pods, and the reason, in few writes over time."""
    async with rig.manager(gangs=True):
        names = await begin(rig, scope="Job")
        bind(rig, *names[:2])
        rig.world.set_status("pods", names[2], conditions=[UNSCHEDULABLE])
        await rig.settle(2)
        assert rig.condition(WAITING) == ("True", keys.POD_GROUPS_WAITING_REASON)
        expected = (
            "1 of 2 groups are bound; w-1: 2 of 2 members, 2 waiting, 0 bound (no node for 1)"
        )
        assert message(rig, WAITING) == expected

        before = len(rig.status_writes())
        for count in range(200):
            rig.world.set_status("pods", names[3], conditions=[UNSCHEDULABLE] * (count % 2))
            await rig.settle(1)
        assert len(rig.status_writes()) - before <= 8

        bind(rig, *names[2:])
        await rig.settle(1)
        assert rig.condition(WAITING)[0] == "False"
        assert rig.condition(DONE) == ("True", keys.POD_GROUPS_BOUND_REASON)


async def test_jobsets_without_coscheduling_cause_no_writes(rig):
    """They have no conditions either, and labels of their users stay."""
    mine = {"labels": {NAME: "mine", MIN: "7"}}
    async with rig.manager(gangs=True):
        rig.create(replicated_job("w", 2, parallelism=2, pod_metadata=mine))
        await rig.settle(0.5)
        names = rig.make_pods()
        await rig.settle(5)
        assert {labels(rig, name) for name in names} == {("mine", "7")}
        assert pod_writes(rig) == 0
        assert rig.condition(WAITING) is None
