"""The coscheduling reconciler in a whole manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import make_pod
from jobsetpy.testing.jobsets import jobset_json, replicated_job

pytestmark = pytest.mark.looptime

NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE
WAITING, DONE = keys.COSCHEDULING_IN_PROGRESS_CONDITION, keys.COSCHEDULING_COMPLETED_CONDITION
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def begin(rig, *jobs, scope="JobSet", notes=None, **spec):
    """Create a JobSet that asks for coscheduling; 2 Jobs of 2 pods if it is not said of what."""
    body = jobset_json(*(jobs or (replicated_job("w", 2, parallelism=2),)), **spec)
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    body.pop("status", None)
    body["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: scope, **(notes or {})}
    return rig.world.create(JobSet, body)


def make_pods(rig, *, priority=0):
    """The pods that Jobs lack, as the Job controller makes them; their names."""
    names = []
    for job in rig.world.list("jobs"):
        template = job["spec"]["template"]["metadata"]
        for index in range(job["spec"]["parallelism"]):
            name = f"{job['metadata']['name']}-{index}"
            if job["spec"]["suspend"] or rig.world.get("pods", name) is not None:
                continue
            pod = make_pod(name).of(job, index).phase("Pending").spec(priority=priority)
            pod.labels(template["labels"]).annotations(template["annotations"])
            rig.world.create("pods", pod.build())
            names.append(name)
    return names


def bind(rig, *names):
    """The scheduler binds pods."""
    for name in names:
        rig.world.patch("pods", name, {"spec": {"nodeName": "n"}})


def labels(rig, name):
    """Group and minimum of a pod."""
    found = rig.world.get("pods", name)["metadata"]["labels"]
    return found.get(NAME), found.get(MIN)


def minima(rig):
    """The minimum that each pod has, by the pod's name."""
    return {p["metadata"]["name"]: p["metadata"]["labels"].get(MIN) for p in rig.world.list("pods")}


def message(rig, kind):
    """What a condition says."""
    conditions = rig.status()["conditions"]
    return next(item["message"] for item in conditions if item["type"] == kind)


def pod_writes(rig):
    """How many pods' labels were written."""
    return len(rig.world.requests.matching("patch", "pods"))


async def test_pods_are_born_with_their_labels(rig):
    """Nothing is left to write but what is told when the group is bound."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        names = make_pods(rig)
        await rig.settle(0.2)
        bind(rig, *names)
        await rig.settle(100)

        assert set(minima(rig).values()) == {"4"}
        assert pod_writes(rig) == 0
        assert rig.condition(DONE) == ("True", keys.POD_GROUPS_BOUND_REASON)
        assert rig.condition(WAITING) is None


async def test_a_lost_or_changed_label_comes_back(rig):
    """By one write for each pod."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        first, second, *_ = make_pods(rig)
        await rig.settle(0.5)
        before = labels(rig, first)
        rig.world.patch("pods", first, {"metadata": {"labels": {NAME: None, MIN: None}}})
        rig.world.patch("pods", second, {"metadata": {"labels": {NAME: "other"}}})
        await rig.settle(0.5)

        assert labels(rig, first) == labels(rig, second) == before
        assert pod_writes(rig) == 2


async def test_labels_that_were_lost_while_no_manager_ran(rig):
    """The first pass of a manager looks at all pods."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        first, *_ = make_pods(rig)
        before = labels(rig, first)
    rig.world.patch("pods", first, {"metadata": {"labels": {NAME: None}}})
    async with rig.manager(gangs=True):
        await rig.settle(0.5)
        assert labels(rig, first) == before


@pytest.mark.parametrize("size", [1, 3])
async def test_a_resize_reaches_pods_that_run(rig, size):
    """The templates of running Jobs cannot change; their pods' labels can."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        bind(rig, *make_pods(rig))
        await rig.settle(1)
        resized = replicated_job("w", 2, parallelism=size)
        rig.world.patch(JobSet, "test-js", {"spec": {"replicatedJobs": [resized]}})
        await rig.settle(2)
        make_pods(rig)
        await rig.settle(1)

        assert set(minima(rig).values()) == {str(2 * size)}


async def test_another_minimum_reaches_all_pods(rig):
    """Annotations do not change the generation."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        make_pods(rig)
        await rig.settle(1)
        notes = {keys.COSCHEDULING_MIN_ANNOTATION: "3"}
        rig.world.patch(JobSet, "test-js", {"metadata": {"annotations": notes}})
        await rig.settle(1)

        assert set(minima(rig).values()) == {"3"}


async def test_a_group_does_not_wait_for_pods_that_do_not_come_again(rig):
    """A pod that is replaced late is told what is left; those that run are left alone."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        names = make_pods(rig)
        bind(rig, *names)
        await rig.settle(1)
        rig.finish("test-js-w-0")
        for name in names[:2]:
            rig.world.set_status("pods", name, phase="Succeeded")
        await rig.settle(1)
        assert pod_writes(rig) == 0

        rig.world.delete("pods", names[3])
        make_pods(rig)
        await rig.settle(1)
        assert minima(rig) == {names[0]: "4", names[1]: "4", names[2]: "4", names[3]: "2"}


async def test_a_partial_restart_keeps_the_group(rig):
    """Pods of the Job that is made anew are in the group of those that stayed."""
    policy = {"maxRestarts": 3, "rules": [{"name": "r", "action": "RestartJob"}]}
    async with rig.manager(gangs=True):
        begin(rig, failurePolicy=policy)
        await rig.settle(0.5)
        names = make_pods(rig)
        before = labels(rig, names[0])
        for name in names[:2]:
            rig.world.delete("pods", name)
        rig.finish("test-js-w-0", "Failed")
        await rig.settle(5)
        make_pods(rig)
        await rig.settle(1)

        assert {labels(rig, name) for name in names} == {before}


async def test_a_jobset_recreated_has_another_group(rig):
    """Pods of the old one, which still end, are none of the new group's."""
    async with rig.manager(gangs=True):
        names = []
        groups = set()
        for _ in range(2):
            begin(rig)
            await rig.settle(1)
            names = make_pods(rig)
            await rig.settle(1)
            groups.add(labels(rig, names[0])[0])
            rig.world.delete(JobSet, "test-js")
            await rig.settle(2)
        assert len(groups) == 2


async def test_where_groups_stand_is_reported(rig):
    """Members, minimum, waiting, bound, and why; a few writes however long it lasts."""
    async with rig.manager(gangs=True):
        begin(rig, scope="Job")
        await rig.settle(0.5)
        names = make_pods(rig)
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


async def test_missing_members_are_reported(rig):
    """The scheduler is not at fault."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(3)
        assert message(rig, WAITING) == (
            "the group: 0 of 4 members, 0 waiting, 0 bound (4 pods are missing)"
        )


async def test_suspending_ends_the_wait(rig):
    """There is no group to wait for."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(3)
        rig.change(suspend=True)
        await rig.settle(3)
        assert rig.condition(WAITING) == ("False", keys.POD_GROUPS_SUSPENDED_REASON)


async def test_different_priorities_are_warned_of_once(rig):
    """Where admission cannot see them."""
    async with rig.manager(gangs=True):
        begin(rig)
        await rig.settle(0.5)
        first, *_ = make_pods(rig)
        rig.world.delete("pods", first)
        make_pods(rig, priority=7)
        await rig.settle(60)
        (event,) = rig.events(keys.POD_GROUP_PRIORITIES_REASON)
        assert "have different priorities (0, 7)" in event[1]


async def test_a_scope_that_does_not_exist_is_warned_of(rig):
    """Only possible without the webhook; the pods start one by one."""
    async with rig.manager(gangs=True):
        begin(rig, scope="Rack")
        await rig.settle(0.5)
        names = make_pods(rig)
        rig.touch()
        await rig.settle(2)
        assert len(rig.events(keys.COSCHEDULING_INVALID_REASON)) == 1
        assert labels(rig, names[0]) == (None, None)


async def test_other_jobsets_cost_nothing(rig):
    """Neither writes nor conditions, and their users' own labels stay."""
    mine = {"labels": {NAME: "mine", MIN: "7"}}
    async with rig.manager(gangs=True):
        rig.create(replicated_job("w", 2, parallelism=2, pod_metadata=mine))
        await rig.settle(0.5)
        names = make_pods(rig)
        await rig.settle(5)
        assert {labels(rig, name) for name in names} == {("mine", "7")}
        assert pod_writes(rig) == 0
        assert rig.condition(WAITING) is None
