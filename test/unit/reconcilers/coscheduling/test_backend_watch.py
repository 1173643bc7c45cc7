"""Marks of gang members that follow the coscheduler's Lease, on a cluster in memory."""

from __future__ import annotations

import itertools

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backend_watch import SILENT_S
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

AUTO = SchedulerFields()
LASTS_S = 15
NOT_SERVED = keys.COSCHEDULING_NOT_SERVED_CONDITION
RENEWALS = itertools.count()


def publish(rig, **state):
    """Publish the coscheduler's settings."""
    text = CoschedulerState(**state).encoded()
    notes = {keys.COSCHEDULER_QUEUE_ANNOTATION: text}
    body = {
        "metadata": {"name": keys.COSCHEDULER_LEASE, "annotations": notes},
        "spec": {"leaseDurationSeconds": LASTS_S, "renewTime": f"2026-01-01T00:00:00.{next(RENEWALS):06}Z"},
    }  # fmt: skip
    if rig.world.get("leases", keys.COSCHEDULER_LEASE) is None:
        rig.world.create("leases", body)
    else:
        rig.world.patch("leases", keys.COSCHEDULER_LEASE, body)


async def begin(rig, name="a"):
    """Create a JobSet of 2 Jobs of 2 pods of one CPU each, which are one gang."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    job = replicated_job("w", 2, parallelism=2, pod_spec={"containers": [container]})
    scope = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
    rig.create(job, name=name, annotations=scope)
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


async def test_pods_have_the_published_fields_and_no_gate(rig):
    """They name the scheduler and request the resource, as the coscheduler has published."""
    async with rig.manager(watched=AUTO):
        publish(rig, scheduler_name="gangs", member_resource=True)
        await rig.settle(1)
        await begin(rig)
        for spec in pod_specs(rig):
            assert not spec.get("schedulingGates")
            assert spec["schedulerName"] == "gangs"
            requests = spec["containers"][0]["resources"]["requests"]
            assert requests[keys.POD_GROUP_MEMBER_RESOURCE] == "0"
        (job, _) = rig.world.list("jobs")
        assert job["metadata"]["annotations"][keys.COSCHEDULING_BACKEND_ANNOTATION] == "coscheduler"


async def test_jobset_has_a_condition_while_no_coscheduler_is_installed(rig):
    """Its pods are only labelled; the condition is cleared once a coscheduler is installed."""
    async with rig.manager(watched=AUTO):
        await begin(rig, "a")
        await rig.settle(1)
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "no coscheduler is installed" in event[1]
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "True"
        publish(rig, scheduler_name="gangs")
        await begin(rig, "b")
        await rig.settle(1)
        conditions = {c["type"]: c for c in rig.status("a")["conditions"]}
        assert conditions[NOT_SERVED]["status"] == "False"
        assert [spec.get("schedulerName") for spec in pod_specs(rig, "b")] == ["gangs"] * 2


async def test_silent_coscheduler_is_reported(rig):
    """Once, as long as it is silent."""
    async with rig.manager(watched=SchedulerFields(backend="coscheduler")):
        await begin(rig)
        await rig.settle(SILENT_S * 2 + 5)
        (event,) = rig.events(keys.NO_COSCHEDULER_REASON)
        assert "nothing has been heard of the coscheduler" in event[1]
        publish(rig)
        await rig.settle(SILENT_S * 2)
        assert len(rig.events(keys.NO_COSCHEDULER_REASON)) == 1
