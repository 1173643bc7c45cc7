"""What a manager is made of, by its feature gates."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.manager import Manager
from jobsetpy.testing import RecordingClient, World
from jobsetpy.testing.jobsets import jobset_json
from support.managers import started

OFF = Configuration(feature_gates={"AllAlpha": False})


def made(world, configuration):
    """A manager with the JobSet controllers, and the names of those."""
    manager = Manager(RecordingClient(world, qps=0))
    add_jobset_controllers(manager, configuration)
    return manager, {runnable.name for runnable in manager._runnables}


async def test_gates_decide_which_controllers_run():
    """Restarts in place and coscheduling have controllers of their own; all others stay."""
    world = World()
    _, everything = made(world, None)
    _, less = made(world, OFF)
    assert {"jobset", "pod-epochs"} <= everything
    assert everything - less == {"pod-epochs", "leaving-pods", "successor-pods", "coscheduling"}


@pytest.mark.looptime
@pytest.mark.parametrize("configuration", [None, OFF], ids=["on", "off"])
async def test_gates_reach_the_rules(configuration):
    """The label that counts a Job's own restarts is there with the gate only."""
    world = World()
    world.register(JobSet)
    manager, _ = made(world, configuration)
    async with started(manager):
        body = jobset_json()
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        world.create(JobSet, body)
        await asyncio.sleep(5)
        labels = [job["metadata"]["labels"] for job in world.list("jobs")]
    assert len(labels) == 4
    assert all((keys.JOB_RESTART_ATTEMPT in each) == (configuration is None) for each in labels)


@pytest.mark.looptime
async def test_jobsets_that_a_gate_leaves_out_are_named():
    """One warning for each that was stored, one for a new one; none for others, or with the gate."""
    for configuration, expected in ((OFF, ["default/late", "default/stored"]), (None, [])):
        world = World()
        world.register(JobSet)
        world.create(JobSet, in_place("stored"))
        manager, _ = made(world, configuration)
        with structlog.testing.capture_logs() as logs:
            async with started(manager):
                world.create(JobSet, in_place("late"))
                world.create(JobSet, in_place("other", strategy="Recreate"))
                await asyncio.sleep(30)
        noted = [line for line in logs if line.get("gate") == "InPlaceRestart"]
        assert sorted(line["object"] for line in noted) == expected
        assert {line["log_level"] for line in noted} <= {"warning"}


def in_place(name, strategy="InPlaceRestart"):
    """A JobSet with a restart strategy."""
    body = jobset_json()
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    body["metadata"]["name"] = name
    body["spec"]["failurePolicy"] = {"restartStrategy": strategy, "maxRestarts": 3}
    return body
