"""Failure policy actions for a part of a JobSet whose pods restart in place as one group."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from support.jobsets import replicated_job
from support.restarts import managed_group
from support.restarts.epoch_plans import policy
from support.restarts.managed_group import come

pytestmark = pytest.mark.looptime

DRIVER = "test-js-driver-0"
WORKERS = ["test-js-w-0", "test-js-w-1"]


async def started(rig, action, *, max_restarts=3, target="w"):
    """Create a driver and two workers of two pods each, all at epoch 1."""
    rule = {"name": "part", "action": action, "targetReplicatedJobs": [target]}
    items = replicated_job("driver", parallelism=2), replicated_job("w", 2, parallelism=2)
    spec = {"failurePolicy": policy(max_restarts, rules=[rule])}
    await managed_group.started(rig, *items, **spec)


def pods(rig):
    """Return the UID of each pod by name."""
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in rig.world.list("pods")}


async def fail(rig, job):
    """Let a Job fail and delete its pods, as the Job controller does."""
    rig.finish(job, "Failed", "PodFailurePolicy")
    for name in [name for name in pods(rig) if name.startswith(f"{job}-")]:
        if rig.world.get("pods", name) is not None:
            rig.world.delete("pods", name)
    await rig.settle()


def own_restarts(rig):
    return {
        item["name"]: item["jobRestarts"]
        for item in rig.status()["replicatedJobsStatus"]
        if "jobRestarts" in item
    }


@pytest.mark.parametrize(
    ("action", "recreated", "restarts"),
    [
        ("RestartJob", WORKERS[:1], {"w": [1, 0]}),
        ("RestartJobAndIgnoreMaxRestarts", WORKERS[:1], {"w": [1, 0]}),
        ("RestartReplicatedJob", WORKERS, {"w": [1, 1]}),
        ("RestartReplicatedJobAndIgnoreMaxRestarts", WORKERS, {"w": [1, 1]}),
    ],
)
async def test_a_part_is_recreated_and_the_rest_restarts_in_place(rig, action, recreated, restarts):
    """Pods outside the part are kept, restart once and together, and cost no further restart."""
    async with rig.manager():
        await started(rig, action)
        before = pods(rig)
        await fail(rig, WORKERS[0])

        assert own_restarts(rig) == restarts
        kept = {name: uid for name, uid in before.items() if not name.startswith(tuple(recreated))}
        assert pods(rig) == kept  # and nothing else was deleted
        assert rig.epochs()[0] == 1

        new = [name for name in rig.run_pods(2) if name not in kept]
        assert len(new) == 2 * len(recreated)
        await come(rig, new, 2)
        assert rig.epochs() == (1, 1)  # the others have to restart in place

        await come(rig, kept, 2)
        assert rig.epochs() == (2, 1)
        assert {name: uid for name, uid in pods(rig).items() if name in kept} == kept
        assert rig.status()["restarts"] == 0
        assert rig.condition("Failed") is None


async def test_a_partial_restart_is_charged_once(rig):
    """With a budget of one it is affordable: the epoch that it opens costs nothing more."""
    async with rig.manager():
        await started(rig, "RestartJob", max_restarts=1)
        await fail(rig, WORKERS[1])
        await come(rig, rig.run_pods(2), 2)
        assert rig.epochs() == (2, 1)
        assert rig.condition("Failed") is None

        rig.report(f"{DRIVER}-0", 3)  # a restart in place of its own: one too many
        await rig.settle()
        assert rig.condition("Failed") == ("True", "ReachedMaxRestarts")


async def test_partial_restarts_cost_nothing_when_they_ignore_the_maximum(rig):
    """However many there are, the budget of the group's own restarts stays as it was."""
    async with rig.manager():
        await started(rig, "RestartJobAndIgnoreMaxRestarts", max_restarts=1)
        for epoch in (2, 3, 4):
            await fail(rig, WORKERS[1])
            await come(rig, rig.run_pods(2), epoch)
            assert rig.epochs() == (epoch, epoch - 1)
        rig.report(f"{DRIVER}-0", 5)
        await rig.settle()
        await come(rig, pods(rig), 5)
        assert rig.epochs() == (5, 4)
        assert rig.condition("Failed") is None


@pytest.mark.parametrize("succeeded", [0, 1])
async def test_the_group_continues_without_a_job_that_stays_failed(rig, succeeded):
    """FailJob: the others keep running, and later restart in place as a smaller group.

    A pod of that Job that had succeeded before has left the group once, not twice.
    """
    async with rig.manager():
        await started(rig, "FailJob")
        if succeeded:
            rig.world.set_status("jobs", WORKERS[0], succeeded=1)
            rig.world.set_status("pods", f"{WORKERS[0]}-0", phase="Succeeded")
            await rig.settle()
        await fail(rig, WORKERS[0])
        rest = pods(rig)
        assert len(rest) == 4
        assert rig.epochs() == (1, 0)

        rig.report(f"{DRIVER}-0", 2)
        await rig.settle()
        assert rig.epochs() == (1, 1)
        await come(rig, rest, 2)
        assert rig.epochs() == (2, 1)
        assert pods(rig) == rest


@pytest.mark.parametrize("action", ["RestartJob", "RestartReplicatedJob", "RestartJobSet"])
async def test_restarts_in_place_use_up_the_budget_of_recreations(rig, action):
    """A Job that fails then ends the JobSet; nothing is restarted, nor counted, on the way."""
    async with rig.manager():
        await started(rig, action, max_restarts=2)
        for epoch in (2, 3):
            await come(rig, pods(rig), epoch)
        assert rig.epochs()[0] == 3
        rig.world.requests.clear()
        rig.finish(WORKERS[0], "Failed", "PodFailurePolicy")
        await rig.settle()

        assert rig.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert (rig.status()["restarts"], own_restarts(rig)) == (0, {})
        assert rig.writes("create") == []
        assert len(rig.events("ReachedMaxRestarts")) == 1
        assert rig.condition(keys.RESTARTING_CONDITION) is None
