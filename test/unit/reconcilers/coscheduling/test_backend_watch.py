"""Marks of gang members that follow the coscheduler's Lease, on a cluster in memory."""

from __future__ import annotations

import itertools

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backend_watch import SILENT_S
from jobsetpy.reconcilers.coscheduling.backends import GATE, SchedulerFields
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

AUTO = SchedulerFields()
LASTS_S = 15
NOT_SERVED = keys.COSCHEDULING_NOT_SERVED_CONDITION
OTHER = {"name": "example.com/quota"}
RENEWALS = itertools.count()


def publish(rig, **state):
    """Publish the coscheduler's state; its queue is empty by default."""
    text = QueueState(**{"waiting": False, **state}).encoded()
    notes = {keys.COSCHEDULER_QUEUE_ANNOTATION: text}
    body = {
        "metadata": {"name": keys.COSCHEDULER_LEASE, "annotations": notes},
        "spec": {"leaseDurationSeconds": LASTS_S, "renewTime": f"2026-01-01T00:00:00.{next(RENEWALS):06}Z"},
    }  # fmt: skip
    if rig.world.get("leases", keys.COSCHEDULER_LEASE) is None:
        rig.world.create("leases", body)
    else:
        rig.world.patch("leases", keys.COSCHEDULER_LEASE, body)


async def begin(rig, name="a", *, suspend=False, **pod_spec):
    """Create a JobSet of 2 Jobs of 2 pods of one CPU each, which are one gang."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    job = replicated_job("w", 2, parallelism=2, pod_spec={"containers": [container], **pod_spec})
    scope = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
    rig.create(job, name=name, suspend=suspend, annotations=scope)
    await rig.settle(1)


def pod_specs(rig, name="a"):
    """Return the pod specs of the templates of a JobSet's Jobs."""
    found = [
        job["spec"]["template"]["spec"]
        for job in rig.world.list("jobs")
        if job["metadata"]["name"].startswith(f"{name}-")
    ]
    assert len(found) == 2
    return found


def gates(rig, name="a"):
    """Return the scheduling gates of the templates of a JobSet's Jobs."""
    return [each.get("schedulingGates", []) for each in pod_specs(rig, name)]


async def test_pods_have_no_gate_while_no_gang_waits(rig):
    """They have the coscheduler's other marks, as published with its state."""
    async with rig.manager(watched=AUTO):
        publish(rig, scheduler_name="gangs", member_resource=True)
        await rig.settle(1)
        await begin(rig)
        assert gates(rig) == [[], []]
        for spec in pod_specs(rig):
            assert spec["schedulerName"] == "gangs"
            requests = spec["containers"][0]["resources"]["requests"]
            assert requests[keys.POD_GROUP_MEMBER_RESOURCE] == "0"
        (job, _) = rig.world.list("jobs")
        assert job["metadata"]["annotations"][keys.COSCHEDULING_BACKEND_ANNOTATION] == "coscheduler"


async def test_pods_are_gated_while_a_gang_waits(rig):
    """From the moment when the coscheduler publishes it until it publishes an empty queue."""
    async with rig.manager(watched=AUTO):
        publish(rig, waiting=True)
        await rig.settle(1)
        await begin(rig, "a")
        publish(rig)
        await rig.settle(1)
        await begin(rig, "b")
        assert (gates(rig, "a"), gates(rig, "b")) == ([[GATE], [GATE]], [[], []])


async def test_pods_are_gated_when_the_published_state_has_expired(rig):
    """An empty queue counts only as long as its Lease, and not if its age is unknown."""
    publish(rig)
    async with rig.manager(watched=AUTO):
        await begin(rig, "a")  # the age of the Lease is unknown
        publish(rig)
        await rig.settle(LASTS_S - 1)
        await begin(rig, "b")
        await begin(rig, "c")
        found = [gates(rig, name) for name in "abc"]
        assert found == [[[GATE], [GATE]], [[], []], [[GATE], [GATE]]]


@pytest.mark.parametrize("held", [{"suspend": True}, {"schedulingGates": [OTHER]}])
async def test_pods_are_gated_when_others_hold_them_back(rig, held):
    """Suspended pods, and pods with gates of others, which stay."""
    async with rig.manager(watched=AUTO):
        publish(rig)
        await rig.settle(1)
        await begin(rig, **held)
        assert gates(rig) == [[*held.get("schedulingGates", []), GATE]] * 2


async def test_all_pods_are_gated_when_the_setting_asks_for_it(rig):
    """Gangs are then scheduled strictly one after the other."""
    async with rig.manager(watched=SchedulerFields(always_gate=True)):
        publish(rig)
        await rig.settle(1)
        await begin(rig)
        assert gates(rig) == [[GATE], [GATE]]


async def test_jobset_has_a_condition_while_no_coscheduler_is_installed(rig):
    """Its pods are only labelled; the condition is cleared once a coscheduler is installed."""
    async with rig.manager(watched=AUTO):
        await begin(rig, "a")
        await rig.settle(1)
        assert gates(rig) == [[], []]
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "no coscheduler is installed" in event[1]
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "True"
        publish(rig, waiting=True)
        await begin(rig, "b")
        await rig.settle(1)
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "False"
        assert gates(rig, "b") == [[GATE], [GATE]]


async def test_gates_are_removed_when_the_coscheduler_is_uninstalled(rig):
    """Its Lease is deleted with it; gates of others stay, and JobSets have the condition."""
    async with rig.manager(watched=AUTO):
        publish(rig, waiting=True)
        await rig.settle(1)
        await begin(rig, schedulingGates=[OTHER])
        rig.make_pods()
        await rig.settle(1)
        rig.world.delete("leases", keys.COSCHEDULER_LEASE)
        await rig.settle(2)
        assert [pod["spec"]["schedulingGates"] for pod in rig.world.list("pods")] == [[OTHER]] * 4
        reasons = {c["reason"] for c in rig.status("a")["conditions"] if c["type"] == NOT_SERVED}
        assert reasons == {"NoCoscheduler"}


async def test_silent_coscheduler_is_reported(rig):
    """Gangs wait for it behind their gates; no gate is removed."""
    async with rig.manager(watched=SchedulerFields(backend="coscheduler")):
        await begin(rig)
        await rig.settle(SILENT_S * 2 + 5)
        assert gates(rig) == [[GATE], [GATE]]
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "nothing has been heard of the coscheduler" in event[1]
        publish(rig)
        await rig.settle(SILENT_S * 2)
        assert len(rig.events(keys.NO_COSCHEDULER_REASON)) == 1
