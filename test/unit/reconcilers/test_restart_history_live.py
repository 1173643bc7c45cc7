"""Restarts of a running manager, as the stored JobSet and its events tell of them."""

from __future__ import annotations

import pytest

from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime


async def come(rig, pods, epoch):
    """The pods come to an epoch."""
    for pod in pods:
        rig.report(pod, epoch)
    await rig.settle()


async def test_restarts_in_place_are_remembered_and_told_one_by_one(rig):
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
