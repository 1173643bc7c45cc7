"""Pods of groups as the coscheduler's Lease has them made, on a cluster in memory."""

from __future__ import annotations

import itertools

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.coscheduling.backends import GATE, SchedulerFields
from jobsetpy.reconcilers.coscheduling.coscheduler_watch import SILENT_S
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState
from jobsetpy.testing import make_pod
from jobsetpy.testing.jobsets import jobset_json, replicated_job

pytestmark = pytest.mark.looptime

AUTO = SchedulerFields()
LASTS_S = 15
NOT_SERVED = keys.COSCHEDULING_NOT_SERVED_CONDITION
OTHERS = {"name": "example.com/quota"}
RENEWALS = itertools.count()


def tell(rig, **state):
    """The coscheduler publishes this; the queue is empty if nothing else is given."""
    text = QueueState(**{"empty": True, **state}).encoded()
    body = {
        "metadata": {
            "name": keys.COSCHEDULER_LEASE,
            "annotations": {keys.COSCHEDULER_QUEUE_ANNOTATION: text},
        },
        "spec": {
            "leaseDurationSeconds": LASTS_S,
            "renewTime": f"2026-01-01T00:00:00.{next(RENEWALS):06}Z",
        },
    }
    if rig.world.get("leases", keys.COSCHEDULER_LEASE) is None:
        rig.world.create("leases", body)
    else:
        rig.world.patch("leases", keys.COSCHEDULER_LEASE, body)


def begin(rig, name="a", *, suspend=False, **pod_spec):
    """Create a JobSet of 2 Jobs of 2 pods of one CPU each, one group."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_spec = {"containers": [container], **pod_spec}
    body = jobset_json(
        replicated_job("w", 2, parallelism=2, pod_spec=pod_spec), name=name, suspend=suspend
    )
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    body.pop("status", None)
    body["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
    rig.world.create(JobSet, body)


def pod_specs(rig, name="a"):
    """Of the templates of a JobSet's Jobs."""
    found = [
        job["spec"]["template"]["spec"]
        for job in rig.world.list("jobs")
        if job["metadata"]["name"].startswith(f"{name}-")
    ]
    assert len(found) == 2
    return found


def gates(rig, name="a"):
    """The gates there."""
    return [each.get("schedulingGates", []) for each in pod_specs(rig, name)]


async def test_pods_have_no_gate_while_none_waits(rig):
    """They are the coscheduler's all the same, with what it says of its scheduler."""
    async with rig.manager(looks_for=AUTO):
        tell(rig, scheduler_name="gangs", member_resource=True)
        await rig.settle(1)
        begin(rig)
        await rig.settle(1)
        assert gates(rig) == [[], []]
        for spec in pod_specs(rig):
            assert spec["schedulerName"] == "gangs"
            asked = spec["containers"][0]["resources"]["requests"]
            assert asked[keys.POD_GROUP_MEMBER_RESOURCE] == "1"
        (job, _) = rig.world.list("jobs")
        assert job["metadata"]["annotations"][keys.COSCHEDULING_BACKEND_ANNOTATION] == "coscheduler"


async def test_pods_are_gated_while_some_group_waits(rig):
    """From the moment on that this is told, and until it is told otherwise."""
    async with rig.manager(looks_for=AUTO):
        tell(rig, empty=False)
        await rig.settle(1)
        begin(rig, "a")
        await rig.settle(1)
        tell(rig)
        await rig.settle(1)
        begin(rig, "b")
        await rig.settle(1)
        assert (gates(rig, "a"), gates(rig, "b")) == ([[GATE], [GATE]], [[], []])


async def test_what_is_reported_lapses(rig):
    """A coscheduler that is gone, or one of which nothing is known yet, opens nothing."""
    tell(rig)
    async with rig.manager(looks_for=AUTO):
        begin(rig, "a")  # how old is it?
        await rig.settle(1)
        tell(rig)
        await rig.settle(LASTS_S - 1)
        begin(rig, "b")
        await rig.settle(1)
        begin(rig, "c")
        await rig.settle(1)
        found = [gates(rig, name) for name in "abc"]
        assert found == [[[GATE], [GATE]], [[], []], [[GATE], [GATE]]]


@pytest.mark.parametrize(
    "given",
    [
        {"suspend": True},
        {"schedulingGates": [OTHERS]},
    ],
)
async def test_pods_are_gated_when_others_hold_them_back(rig, given):
    """Suspended ones and those with gates of others, which stay."""
    async with rig.manager(looks_for=AUTO):
        tell(rig)
        await rig.settle(1)
        begin(rig, **given)
        await rig.settle(1)
        assert gates(rig) == [[*given.get("schedulingGates", []), GATE]] * 2


async def test_all_pods_are_gated_where_that_is_asked_for(rig):
    """For groups that are to come strictly one after the other."""
    async with rig.manager(looks_for=SchedulerFields(always_gate=True)):
        tell(rig)
        await rig.settle(1)
        begin(rig)
        await rig.settle(1)
        assert gates(rig) == [[GATE], [GATE]]


async def test_without_a_coscheduler_jobsets_say_so(rig):
    """Their pods are labelled; when one is installed that is taken back, and new Jobs are its."""
    async with rig.manager(looks_for=AUTO):
        begin(rig, "a")
        await rig.settle(2)
        assert gates(rig) == [[], []]
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "no coscheduler is installed" in event[1]
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "True"
        tell(rig, empty=False)
        begin(rig, "b")
        await rig.settle(2)
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "False"
        assert gates(rig, "b") == [[GATE], [GATE]]


async def test_a_coscheduler_that_is_removed_leaves_no_pod_behind_its_gate(rig):
    """Its Lease goes with it: gates are taken off, and JobSets are told."""
    async with rig.manager(looks_for=AUTO):
        tell(rig, empty=False)
        await rig.settle(1)
        begin(rig)
        await rig.settle(1)
        for job in rig.world.list("jobs"):
            template = job["spec"]["template"]["metadata"]
            pod = make_pod(f"{job['metadata']['name']}-0").of(job, 0).phase("Pending")
            pod.labels(template["labels"]).annotations(template["annotations"])
            made = rig.world.create("pods", pod.spec(schedulingGates=[OTHERS, GATE]).build())
            waits = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            rig.world.set_status("pods", made["metadata"]["name"], conditions=[waits])
        await rig.settle(1)
        rig.world.delete("leases", keys.COSCHEDULER_LEASE)
        await rig.settle(2)
        assert [pod["spec"]["schedulingGates"] for pod in rig.world.list("pods")] == [[OTHERS]] * 2
        assert {"NoCoscheduler"} == {c["reason"] for c in rig.status("a")["conditions"] if c["type"] == NOT_SERVED}  # fmt: skip


async def test_a_coscheduler_that_is_silent_is_reported(rig):
    """Groups wait behind their gates for it; nothing is taken off."""
    async with rig.manager(looks_for=SchedulerFields(backend="coscheduler")):
        begin(rig)
        await rig.settle(SILENT_S * 2 + 5)
        assert gates(rig) == [[GATE], [GATE]]
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "nothing has been heard of the coscheduler" in event[1]
        tell(rig)
        await rig.settle(SILENT_S * 2)
        assert len(rig.events(keys.NO_COSCHEDULER_REASON)) == 1
