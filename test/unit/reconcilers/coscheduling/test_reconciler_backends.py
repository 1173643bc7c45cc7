"""The backends of the coscheduling reconciler, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import POD_GROUP_FINALIZER, SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling.backends import GATE, SchedulerFields
from jobsetpy.reconcilers.coscheduling.reconciler import CoschedulingSettings
from jobsetpy.testing import make_pod
from jobsetpy.testing.jobsets import jobset_json, replicated_job

pytestmark = pytest.mark.looptime

PODGROUP, COSCHEDULER = SchedulerFields(backend="podgroup"), SchedulerFields(backend="coscheduler")
POD_GROUPS, WORKLOADS = SchedulingPodGroup, SchedulingWorkload
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
OTHER = {"name": "example.com/quota"}


@pytest.fixture
def served(rig):
    """The cluster of a rig serves the API server's own groups."""
    rig.world.register(POD_GROUPS)
    rig.world.register(WORKLOADS)
    return rig


def manager(rig, marks, **more):
    """A manager with that backend."""
    return rig.manager(gangs=CoschedulingSettings(marks=marks, **more), marks=marks)


def begin(rig, *jobs, scope="JobSet", notes=None, **spec):
    """Create a JobSet that asks for coscheduling; 2 Jobs of 2 pods if it is not said of what."""
    body = jobset_json(*(jobs or (replicated_job("w", 2, parallelism=2),)), **spec)
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    body.pop("status", None)
    body["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: scope, **(notes or {})}
    return rig.world.create(JobSet, body)


def minima(rig):
    """What the groups that are there have as their minimum, by the end of their names."""
    return {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for each in rig.world.list(POD_GROUPS)
    }  # fmt: skip


def protect(rig):
    """The API server's finalizer on all groups; their UIDs."""
    for each in rig.world.list(POD_GROUPS):
        patch = {"metadata": {"finalizers": [POD_GROUP_FINALIZER]}}
        rig.world.patch(POD_GROUPS, each["metadata"]["name"], patch)
    return {each["metadata"]["uid"] for each in rig.world.list(POD_GROUPS)}


def writes(rig):
    """How many of the API server's groups were written."""
    requests = rig.world.requests
    return sum(
        len(requests.matching(verb, kind))
        for verb in ("create", "patch", "delete")
        for kind in ("podgroups", "workloads")
    )


async def test_groups_come_with_the_jobset_and_go_with_its_end(served):
    """One write each, with their owner; none when nothing changes."""
    async with manager(served, PODGROUP):
        made = begin(served, scope="Job")
        await served.settle(1)
        (above,) = served.world.list(WORKLOADS)
        groups = served.world.list(POD_GROUPS)
        assert len(groups) == 2
        for each in (above, *groups):
            assert each["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        named = {
            job["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"]
            for job in served.world.list("jobs")
        }
        assert named == {each["metadata"]["name"] for each in groups}
        served.touch()
        await served.settle(100)
        assert writes(served) == 3

        for name in ("test-js-w-0", "test-js-w-1"):
            served.finish(name)
        await served.settle(2)
        assert served.world.list(POD_GROUPS) == served.world.list(WORKLOADS) == []


async def test_another_minimum_is_another_object(served):
    """Of the same name, although pods keep the old one from going."""
    async with manager(served, PODGROUP):
        begin(served)
        await served.settle(1)
        before = protect(served)
        notes = {keys.COSCHEDULING_MIN_ANNOTATION: "3"}
        served.world.patch(JobSet, "test-js", {"metadata": {"annotations": notes}})
        await served.settle(2)
        assert minima(served) == {"0": 3}
        assert protect(served).isdisjoint(before)
        (above,) = served.world.list(WORKLOADS)
        assert above["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] == 3


async def test_a_group_is_away_until_its_jobs_have_their_new_size(served):
    """The API server would not resize them; when it has, the group comes back."""
    async with manager(served, PODGROUP):
        begin(served)
        await served.settle(1)
        protect(served)
        refuse = served.faults.status(403, verb="patch", resource="jobs")
        resized = replicated_job("w", 2, parallelism=3)
        served.world.patch(JobSet, "test-js", {"spec": {"replicatedJobs": [resized]}})
        await served.settle(1)
        assert minima(served) == {}
        refuse.lift()
        await served.settle(60)
        assert {job["spec"]["parallelism"] for job in served.world.list("jobs")} == {3}
        assert minima(served) == {"0": 6}


async def test_a_restart_has_groups_of_its_own(served):
    """Pods of the attempt before do not count for them; the old ones go when those have gone."""
    async with manager(served, PODGROUP):
        begin(served, failurePolicy={"maxRestarts": 3})
        await served.settle(1)
        protect(served)
        served.finish("test-js-w-0", "Failed")
        await served.settle(5)
        assert minima(served) == {"0": 4, "1": 4}
        # At no moment with less, while Jobs of both attempts are there.
        assert len(served.world.requests.matching("create", "podgroups")) == 2
        old, new = sorted(served.world.list(POD_GROUPS), key=lambda each: each["metadata"]["name"])
        assert "deletionTimestamp" in old["metadata"]
        assert "deletionTimestamp" not in new["metadata"]


async def test_a_group_that_somebody_deletes_is_made_again(served):
    """Its pods could not be scheduled without it."""
    async with manager(served, PODGROUP):
        begin(served)
        await served.settle(1)
        (group,) = served.world.list(POD_GROUPS)
        served.world.delete(POD_GROUPS, group["metadata"]["name"])
        (above,) = served.world.list(WORKLOADS)
        served.world.delete(WORKLOADS, above["metadata"]["name"])
        await served.settle(1)
        assert minima(served) == {"0": 4}
        assert len(served.world.list(WORKLOADS)) == 1


async def test_failed_writes_are_made_up_for(served):
    """Each pass makes what is missing."""
    async with manager(served, PODGROUP):
        served.faults.status(500, verb="create", resource="podgroups", count=3)
        begin(served, scope="Job")
        await served.settle(30)
        assert len(served.world.list(POD_GROUPS)) == 2


async def test_a_suspended_jobset_keeps_its_groups(served):
    """Its Jobs name them when they are resumed."""
    async with manager(served, PODGROUP):
        begin(served)
        await served.settle(1)
        served.change(suspend=True)
        await served.settle(2)
        assert minima(served) == {"0": 4}


async def test_jobs_of_another_backend_are_none_of_the_group(served):
    """It waits only for pods that name it."""
    async with manager(served, COSCHEDULER):
        begin(served)
        await served.settle(1)
    async with manager(served, PODGROUP):
        await served.settle(1)
        assert minima(served) == {"0": 1}
        served.world.delete("jobs", "test-js-w-0")
        await served.settle(2)
        (job,) = [j for j in served.world.list("jobs") if j["metadata"]["name"] == "test-js-w-0"]
        assert "schedulingGroup" in job["spec"]["template"]["spec"]
        assert minima(served) == {"0": 2}


def make_gated_pods(rig):
    """The pods of all Jobs, as their templates say, and as the scheduler sees them."""
    names = []
    for job in rig.world.list("jobs"):
        template = job["spec"]["template"]
        for index in range(job["spec"]["parallelism"]):
            name = f"{job['metadata']['name']}-{index}"
            gates = template["spec"].get("schedulingGates", [])
            pod = make_pod(name).of(job, index).phase("Pending").spec(schedulingGates=gates)
            pod.labels(template["metadata"]["labels"])
            pod.annotations(template["metadata"]["annotations"])
            rig.world.create("pods", pod.build())
            rig.world.set_status("pods", name, conditions=[GATED] if gates else [])
            names.append(name)
    return names


def gates(rig):
    """The gates of all pods."""
    return [pod["spec"].get("schedulingGates") for pod in rig.world.list("pods")]


async def test_pods_wait_for_the_coscheduler_only_while_it_is_in_charge(rig):
    """Another backend lets go what was made for it, and leaves other gates alone."""
    async with manager(rig, COSCHEDULER):
        begin(rig)
        await rig.settle(1)
        first, *_ = make_gated_pods(rig)
        await rig.settle(6)
        assert gates(rig) == [[GATE]] * 4
        assert "gates" in rig.jobset()["status"]["conditions"][0]["message"]
    rig.world.patch("pods", first, {"spec": {"schedulingGates": [OTHER, GATE]}})
    async with manager(rig, SchedulerFields()):
        await rig.settle(2)
        assert sorted(map(str, gates(rig))) == sorted(map(str, [[OTHER], None, None, None]))
        # Templates of running Jobs stay as they are, so it goes on.
        rig.world.delete("pods", "test-js-w-1-1")
        pod = make_pod("test-js-w-1-1").of(rig.world.get("jobs", "test-js-w-1"), 1)
        template = rig.world.get("jobs", "test-js-w-1")["spec"]["template"]
        pod.phase("Pending").spec(schedulingGates=[GATE])
        pod.labels(template["metadata"]["labels"]).annotations(template["metadata"]["annotations"])
        rig.world.create("pods", pod.build())
        rig.world.set_status("pods", "test-js-w-1-1", conditions=[GATED])
        await rig.settle(2)
        assert rig.world.get("pods", "test-js-w-1-1")["spec"].get("schedulingGates") is None


async def test_a_job_that_is_resumed_keeps_its_gate(rig):
    """Next to what the template has of its own by then."""
    own = replicated_job("w", 1, pod_spec={"schedulingGates": [OTHER]})
    async with manager(rig, COSCHEDULER):
        begin(rig, own, suspend=True)
        await rig.settle(1)
        more = {"name": "example.com/second"}
        changed = replicated_job("w", 1, pod_spec={"schedulingGates": [OTHER, more]})
        rig.change(suspend=False, replicatedJobs=[changed])
        await rig.settle(2)
        (job,) = rig.world.list("jobs")
        assert job["spec"]["suspend"] is False
        found = job["spec"]["template"]["spec"]["schedulingGates"]
        assert found == [OTHER, GATE, more]


async def test_gates_that_others_put_on_labelled_pods_stay(rig):
    """With labels alone, whoever gates pods by admission also takes the gates off."""
    async with manager(rig, SchedulerFields()):
        begin(rig)
        await rig.settle(1)
        names = make_gated_pods(rig)
        rig.world.patch("pods", names[0], {"spec": {"schedulingGates": [GATE]}})
        rig.world.set_status("pods", names[0], conditions=[GATED])
        await rig.settle(5)
        assert gates(rig).count([GATE]) == 1


async def test_jobsets_say_when_groups_are_not_served(rig):
    """Once for each that asks."""
    async with manager(rig, SchedulerFields(), not_served="nobody serves them"):
        begin(rig)
        await rig.settle(1)
        rig.touch()
        await rig.settle(5)
        (event,) = rig.events(keys.POD_GROUPS_NOT_SERVED_REASON)
        assert event[1] == "nobody serves them"
