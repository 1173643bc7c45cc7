"""The backends of the coscheduling reconciler, on a cluster in memory and in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import (
    NATIVE_APIS,
    POD_GROUP_FINALIZER,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

PODGROUP, COSCHEDULER = SchedulerFields(backend="podgroup"), SchedulerFields(backend="coscheduler")
POD_GROUPS, WORKLOADS = SchedulingPodGroup, SchedulingWorkload
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
OTHER = {"name": "example.com/quota"}


@pytest.fixture
def served(rig):
    """Return a rig whose API server serves PodGroups and Workloads."""
    serve(rig, "v1beta1")
    return rig


@pytest.fixture
def alpha(rig):
    """Return a rig whose API server serves only the oldest version."""
    serve(rig, "v1alpha2")
    return rig


def serve(rig, version):
    """Serve PodGroups and Workloads in this version."""
    api = next(each for each in NATIVE_APIS if each.version == version)
    rig.world.register(api.pod_group)
    rig.world.register(api.workload)


def manager(rig, marks):
    """Return a manager with this backend."""
    return rig.manager(watched=marks)


async def begin(rig, *jobs, scope="JobSet", **spec):
    """Create a JobSet with coscheduling, by default of 2 Jobs of 2 pods."""
    jobs = jobs or (replicated_job("w", 2, parallelism=2),)
    rig.create(*jobs, annotations={keys.COSCHEDULING_ANNOTATION: scope}, **spec)
    await rig.settle(1)


def minima(rig):
    """Return the minimum of each PodGroup by the end of its name."""
    return {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for each in rig.world.list(POD_GROUPS)
    }  # fmt: skip


def protect(rig):
    """Set the API server's finalizer on all PodGroups; return their UIDs."""
    for each in rig.world.list(POD_GROUPS):
        patch = {"metadata": {"finalizers": [POD_GROUP_FINALIZER]}}
        rig.world.patch(POD_GROUPS, each["metadata"]["name"], patch)
    return {each["metadata"]["uid"] for each in rig.world.list(POD_GROUPS)}


def bound_pods(rig):
    """Create all pods with a node; return their names."""
    return rig.make_pods(nodeName="n")


def writes(rig):
    """Return the number of writes of PodGroups and Workloads."""
    requests = rig.world.requests
    return sum(
        len(requests.matching(verb, kind))
        for verb in ("create", "patch", "delete")
        for kind in ("podgroups", "workloads")
    )


async def test_pod_groups_are_created_and_deleted_with_their_jobset(served):
    """With one write each and an owner; there is no write when nothing changes."""
    async with manager(served, PODGROUP):
        await begin(served, scope="Job")
        (parent,) = served.world.list(WORKLOADS)
        groups = served.world.list(POD_GROUPS)
        assert len(groups) == 2
        for each in (parent, *groups):
            owner = each["metadata"]["ownerReferences"][0]
            assert owner["uid"] == served.jobset()["metadata"]["uid"]
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


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha2"])
async def test_pod_group_has_the_minimum_when_it_changes(rig, version):
    """It is patched; in the alpha version it is replaced by one of the same name, despite its pods."""
    serve(rig, version)
    async with manager(rig, PODGROUP):
        await begin(rig)
        before = protect(rig)
        notes = {keys.COSCHEDULING_MIN_ANNOTATION: "3"}
        rig.world.patch(JobSet, "test-js", {"metadata": {"annotations": notes}})
        await rig.settle(2)
        assert minima(rig) == {"0": 3}
        assert (protect(rig) == before) == (version != "v1alpha2")
        (parent,) = rig.world.list(WORKLOADS)
        assert parent["apiVersion"] == f"scheduling.k8s.io/{version}"
        assert parent["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] == 3


async def test_gangs_become_native_when_the_control_plane_is_upgraded(rig):
    """The manager notices it; Jobs that are running keep the backend that they were created for."""
    async with rig.manager(watched=SchedulerFields()):
        await begin(rig)
        assert native_jobs(rig) == [False, False]
        serve(rig, "v1beta1")
        await rig.settle(15)
        rig.world.delete("jobs", "test-js-w-0")
        await rig.settle(2)
        assert native_jobs(rig) == [True, False]
        (group,) = rig.world.list(POD_GROUPS)
        assert group["apiVersion"] == "scheduling.k8s.io/v1beta1"


async def test_gangs_fall_back_when_the_api_server_no_longer_serves_them(served):
    """JobSets report it, new Jobs get only labels, and nothing is written in vain."""
    async with served.manager(watched=SchedulerFields()):
        await begin(served)
        assert native_jobs(served) == [True, True]
        for resource in ("podgroups", "workloads"):
            served.faults.status(404, resource=resource)
            served.faults.end_watches(resource=resource)
        await served.settle(2)
        assert [event[1][:40] for event in served.events(keys.NO_COSCHEDULER_REASON)] == [
            "the API server serves no PodGroup and Wo"
        ]
        served.world.delete("jobs", "test-js-w-0")
        await served.settle(2)
        assert native_jobs(served) == [False, True]
        before = writes(served)
        await served.settle(60)
        assert writes(served) == before


async def test_report_of_the_scheduler_is_shown(served):
    """Its reason is part of the condition, and the preemption of a gang is an event."""
    async with manager(served, PODGROUP):
        await begin(served)
        served.make_pods()
        (group,) = served.world.list(POD_GROUPS)
        scheduled = {"type": "PodGroupInitiallyScheduled", "status": "False"}
        scheduled |= {"reason": "Unschedulable", "message": "0/1 nodes are available"}
        set_conditions(served, group, scheduled)
        await served.settle(20)
        (condition,) = served.status()["conditions"]
        assert "the scheduler found no nodes: 0/1 nodes are available" in condition["message"]
        preempted = {"type": "DisruptionTarget", "status": "True", "message": "for default/other"}
        set_conditions(served, group, {**preempted, "reason": "PreemptionByScheduler"})
        await served.settle(1)
        (event,) = served.events(keys.POD_GROUP_DISRUPTED_REASON)
        assert event[1] == "the group is preempted as a whole: for default/other"


def set_conditions(rig, group, *conditions):
    """Set the conditions of a PodGroup, as the scheduler does."""
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    rig.world.set_status(
        POD_GROUPS, group["metadata"]["name"], conditions=[each | times for each in conditions]
    )


def native_jobs(rig):
    """Return for each Job whether its pods name a PodGroup."""
    jobs = sorted(rig.world.list("jobs"), key=lambda job: job["metadata"]["name"])
    return ["schedulingGroup" in job["spec"]["template"]["spec"] for job in jobs]


async def test_pod_group_keeps_its_minimum_until_its_gang_loses_a_pod(served):
    """A gang that has worked needs no spares, but only pods without a node depend on that."""
    spares = {"annotations": {keys.IN_PLACE_SPARES_ANNOTATION: "1"}}
    job = replicated_job("w", 1, parallelism=3, pod_metadata=spares)
    policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
    async with served.manager(watched=PODGROUP, epochs=False):
        await begin(served, job, failurePolicy=policy)
        names = bound_pods(served)
        await served.settle(1)
        before = writes(served)
        served.world.patch(JobSet, "test-js", {"status": {"syncedEpoch": 1}}, subresource="status")
        await served.settle(1)
        assert (minima(served), writes(served)) == ({"0": 3}, before)

        served.world.delete("pods", names[0])
        served.make_pods()
        await served.settle(1)
        assert minima(served) == {"0": 2}


async def test_pod_group_is_absent_until_its_jobs_are_resized(alpha):
    """The API server refuses to resize them as long as the group exists."""
    async with manager(alpha, PODGROUP):
        await begin(alpha)
        protect(alpha)
        refuse = alpha.faults.status(403, verb="patch", resource="jobs")
        alpha.change(replicatedJobs=[replicated_job("w", 2, parallelism=3)])
        await alpha.settle(1)
        assert minima(alpha) == {}
        refuse.lift()
        await alpha.settle(60)
        assert {job["spec"]["parallelism"] for job in alpha.world.list("jobs")} == {3}
        assert minima(alpha) == {"0": 6}


async def test_deleted_pod_group_is_recreated(served):
    """Its pods could not be scheduled without it."""
    async with manager(served, PODGROUP):
        await begin(served)
        (group,) = served.world.list(POD_GROUPS)
        served.world.delete(POD_GROUPS, group["metadata"]["name"])
        (parent,) = served.world.list(WORKLOADS)
        served.world.delete(WORKLOADS, parent["metadata"]["name"])
        await served.settle(1)
        assert minima(served) == {"0": 4}
        assert len(served.world.list(WORKLOADS)) == 1


async def test_refused_object_is_a_condition_until_it_is_created(served):
    """It names the object and the API server's reason; each reconcile creates what is missing."""
    async with manager(served, PODGROUP):
        served.faults.status(422, verb="create", resource="podgroups", count=3)
        await begin(served, scope="Job")
        progress, reason = keys.COSCHEDULING_IN_PROGRESS_CONDITION, keys.POD_GROUP_REFUSED_REASON
        assert served.condition(progress) == ("True", reason)
        ((_, note, count),) = served.events(reason)
        assert note.startswith("PodGroup 'test-js-")
        assert ("422" in note, count) == (True, 1)
        bound_pods(served)
        await served.settle(29)
        assert len(served.world.list(POD_GROUPS)) == 2
        assert served.condition(progress)[0] == "False"


async def test_gate_of_an_older_version_is_removed_once(rig):
    """Gates of others stay, also on pods that a Job of that version makes later."""
    gate = {"name": keys.COSCHEDULING_GATE}
    async with manager(rig, COSCHEDULER):
        await begin(rig)
        names = rig.make_pods()
        for name, gates in zip(names, ([gate], [OTHER, gate], [OTHER], []), strict=True):
            rig.world.patch("pods", name, {"spec": {"schedulingGates": gates}})
            rig.world.set_status("pods", name, conditions=[GATED] if gates else [])
        await rig.settle(6)
        found = [rig.world.get("pods", name)["spec"].get("schedulingGates") for name in names]
        assert [gates or [] for gates in found] == [[], [OTHER], [OTHER], []]
        written = {each.target.name for each in rig.world.requests.matching("patch", "pods")}
        assert written == set(names[:2])


async def test_jobset_reports_that_its_gangs_are_not_served(rig):
    """Once for each JobSet with coscheduling, when the configured backend does not exist."""
    async with manager(rig, PODGROUP):
        await begin(rig)
        rig.touch()
        await rig.settle(5)
        (event,) = rig.events(keys.POD_GROUPS_NOT_SERVED_REASON)
        assert "this API server does not serve them" in event[1]
