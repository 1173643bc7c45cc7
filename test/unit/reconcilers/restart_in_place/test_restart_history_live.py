"""Restarts of a running manager, as the stored JobSet and its events tell of them."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.execution.metrics import REGISTRY
from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime


async def come(rig, pods, epoch):
    """The pods come to an epoch."""
    for pod in pods:
        rig.report(pod, epoch)
    await rig.settle()


async def test_restarts_in_place_are_remembered_and_reported_one_by_one(rig):
    """Two restarts within a minute: two records, two begins and two ends, each with its text."""
    policy = {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"}
    async with rig.manager():
        rig.create(replicated_job("w", 1, parallelism=2), failurePolicy=policy)
        await rig.settle()
        pods = rig.run_pods(2)
        await come(rig, pods, 1)
        for epoch in (2, 3):
            await come(rig, pods[:1], epoch)
            await come(rig, pods[1:], epoch)

        first, second = rig.status()["restartHistory"]
        told = [event for event in rig.world.list("events") if "InPlace" in event["reason"]]

    assert [(2, "Completed", pods[0], pods[1]), (3, "Completed", pods[0], pods[1])] == [
        (one["number"], one["outcome"], one["cause"]["pod"], one["lastPod"])
        for one in (first, second)
    ]
    assert 5000 <= first["gatheringMillis"] + first["deprecationMillis"] <= 5100
    assert "liftMillis" in first
    assert {
        ("InPlaceRestartStarted", "from epoch 1 to 2"),
        ("InPlaceRestartCompleted", "at epoch 2"),
        ("InPlaceRestartStarted", "from epoch 2 to 3"),
        ("InPlaceRestartCompleted", "at epoch 3"),
    } == {
        (event["reason"], text)
        for event in told
        for text in ("from epoch 1 to 2", "from epoch 2 to 3", "at epoch 2", "at epoch 3")
        if text in event["note"]
    }


def cost(kind):
    """What restarts of a kind have cost so far: how many, seconds, pod-seconds, by phase."""
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
    """The same since then, in whole seconds."""
    return [round(new - old) for new, old in zip(cost(kind), before, strict=True)]


async def test_what_a_restart_in_place_costs(rig):
    """Two pods wait 5 s for the second of them; the time is that of one phase, and 10 pod-s."""
    policy = {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"}
    async with rig.manager():
        rig.create(replicated_job("w", 1, parallelism=2), failurePolicy=policy)
        await rig.settle()
        pods = rig.run_pods(2)
        await come(rig, pods, 1)
        before = cost("in_place")
        await come(rig, pods[:1], 2)
        assert more("in_place", before) == [0, 0, 0, 0, 0, 0, 0, 0]
        await come(rig, pods[1:], 2)

    assert more("in_place", before)[0] == 1
    assert more("in_place", before)[1:3] == [5, 10]
    assert sum(more("in_place", before)[3:]) == 5


async def test_what_a_recreation_costs(rig):
    """All Jobs are made anew; it lasts until they are ready, and what they do meanwhile is told."""
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


def run_jobs(rig):
    """All pods of all Jobs are ready."""
    for job in rig.world.list("jobs"):
        pods = job["spec"]["parallelism"]
        rig.world.set_status("jobs", job["metadata"]["name"], active=pods, ready=pods)


def spent(manager):
    """Seconds that JobSets have spent so far, by what they did."""
    name, registries = "jobset_activity_seconds", manager._registries
    (family,) = [each for one in registries for each in one.collect() if each.name == name]
    return {sample.labels["activity"]: sample.value for sample in family.samples}
