"""Restarts of a running manager, as the stored JobSet, its events and metrics report them."""

from __future__ import annotations

import pytest

from jobsetpy.api.timestamps import millis_text
from jobsetpy.kubectl import timeline
from jobsetpy.reconcilers.execution.metrics import REGISTRY
from jobsetpy.testing import VirtualClock
from support.jobsets import replicated_job
from support.restarts.managed_group import come, started

pytestmark = pytest.mark.looptime


async def test_restarts_in_place_are_recorded_and_reported_one_by_one(rig):
    """Two restarts within a minute: two records, two begins and two ends, each with its text."""
    async with rig.manager():
        pods = await started(rig, jobs=1)
        for epoch in (2, 3):
            await come(rig, pods[:1], epoch)
            await come(rig, pods[1:], epoch)

        history = rig.status()["restartHistory"]
        events = [event for event in rig.world.list("events") if "InPlace" in event["reason"]]

    fields = [
        (one["number"], one["outcome"], one["cause"]["pod"], one["lastPod"]) for one in history
    ]
    assert fields == [(number, "Completed", pods[0], pods[1]) for number in (2, 3)]
    assert 5000 <= history[0]["gatheringMillis"] + history[0]["deprecationMillis"] <= 5100
    assert "liftMillis" in history[0]
    texts = ("from epoch 1 to 2", "at epoch 2", "from epoch 2 to 3", "at epoch 3")
    found = {(each["reason"], text) for each in events for text in texts if text in each["note"]}
    assert found == {
        ("InPlaceRestartStarted", "from epoch 1 to 2"),
        ("InPlaceRestartCompleted", "at epoch 2"),
        ("InPlaceRestartStarted", "from epoch 2 to 3"),
        ("InPlaceRestartCompleted", "at epoch 3"),
    }


def cost(kind):
    """Return the costs of a kind so far: number, seconds, pod-seconds, seconds by phase."""
    value = REGISTRY.get_sample_value
    name, labels = "jobset_restart", {"kind": kind}
    phases = ("detect", "deprecate", "gather", "wait", "lift")
    return [
        value(f"{name}_seconds_count", labels),
        value(f"{name}_seconds_sum", labels),
        value(f"{name}_pod_seconds_total", labels),
        # A kind has a phase once any test has recorded it.
        *(value(f"{name}_phase_seconds_total", {**labels, "phase": each}) or 0 for each in phases),
    ]


def more(kind, before):
    """Return the costs since then, in whole seconds."""
    return [round(new - old) for new, old in zip(cost(kind), before, strict=True)]


async def test_costs_of_a_restart_in_place_are_counted(rig):
    """Both pods wait 5 s for the second of them: 10 pod-seconds, all in one phase."""
    async with rig.manager():
        pods = await started(rig, jobs=1)
        before = cost("in_place")
        await come(rig, pods[:1], 2)
        assert more("in_place", before) == [0, 0, 0, 0, 0, 0, 0, 0]
        await come(rig, pods[1:], 2)

    number, *seconds = more("in_place", before)
    assert (number, seconds[:2], sum(seconds[2:])) == (1, [5, 10], 5)


async def test_costs_of_a_recreation_are_counted(rig):
    """Until the new Jobs are ready; the activity of the JobSet meanwhile is counted, too."""
    async with rig.manager() as manager:
        rig.create(replicated_job("w", 2, parallelism=3), failurePolicy={"maxRestarts": 1})
        await rig.settle()
        run_jobs(rig)
        await rig.settle()
        before, began = cost("recreate"), spent(manager)
        rig.finish("test-js-w-1", "Failed")
        await rig.settle(7)
        run_jobs(rig)
        await rig.settle(4)
        done = {name: round(value - began[name]) for name, value in spent(manager).items()}

    assert more("recreate", before) == [1, 7, 42, 0, 0, 7, 0, 0]
    assert {name: s for name, s in done.items() if s} == {"restarting": 7, "running": 4}
    assert rig.status()["readyPods"] == "6/6"


async def test_recreation_lasts_from_the_failure_until_new_pods_are_ready(rig):
    """The end of old pods is included: 5 s of the failed Job's, then 8 s of the other Job's."""
    async with rig.manager():
        rig.create(replicated_job("w", 2, parallelism=3), failurePolicy={"maxRestarts": 1})
        await rig.settle()
        run_jobs(rig)
        await rig.settle()
        before, began = cost("recreate"), VirtualClock().now().replace(microsecond=0)
        rig.world.patch("jobs", "test-js-w-0", {"metadata": {"finalizers": ["test/pods"]}})
        rig.finish("test-js-w-1", "FailureTarget", "BackoffLimitExceeded")
        await rig.settle(5)
        rig.finish("test-js-w-1", "Failed", "BackoffLimitExceeded")
        await rig.settle(8)
        rig.world.patch("jobs", "test-js-w-0", {"metadata": {"finalizers": None}})
        await rig.settle(2)
        run_jobs(rig)
        await rig.settle(4)

    (record,), spent = rig.status()["restartHistory"], rig.status()["timeSpent"]["restarts"]
    assert (record["beganAt"], record["outcome"]) == (millis_text(began), "Completed")
    assert [round(record[f"{each}Millis"] / 1000) for each in ("detection", "gathering")] == [5, 10]
    assert round(timeline.total(record) / 1000) == 15
    assert [(each["cause"], round(each["millis"] / 1000)) for each in spent] == [
        ("BackoffLimitExceeded", 15)
    ]
    assert more("recreate", before) == [1, 15, 90, 5, 0, 10, 0, 0]


def run_jobs(rig):
    """Set all pods of all Jobs to ready."""
    for job in rig.world.list("jobs"):
        pods = job["spec"]["parallelism"]
        rig.world.set_status("jobs", job["metadata"]["name"], active=pods, ready=pods)


def spent(manager):
    """Return the seconds that JobSets have spent so far, by activity."""
    name, registries = "jobset_activity_seconds", manager._registries
    (family,) = [each for one in registries for each in one.collect() if each.name == name]
    return {sample.labels["activity"]: sample.value for sample in family.samples}
