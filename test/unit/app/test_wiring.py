"""Controllers of a manager, by its feature gates."""

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
    """A manager with the JobSet controllers, and their names."""
    manager = Manager(RecordingClient(world, qps=0))
    add_jobset_controllers(manager, configuration)
    return manager, {runnable.name for runnable in manager._runnables}


async def test_gates_decide_which_controllers_run():
    """Restart in place and coscheduling have their own controllers; all others always run."""
    world = World()
    _, everything = made(world, None)
    _, less = made(world, OFF)
    assert {"jobset", "pod-epochs"} <= everything
    assert everything - less == {"pod-epochs", "leaving-pods", "successor-pods", "coscheduling"}


@pytest.mark.looptime
@pytest.mark.parametrize("configuration", [None, OFF], ids=["on", "off"])
async def test_gates_reach_the_rules(configuration):
    """The label that counts a Job's own restarts is set only with the gate."""
    world = World()
    world.register(JobSet)
    manager, _ = made(world, configuration)
    async with started(manager):
        world.create(JobSet, new_jobset("js"))
        await asyncio.sleep(5)
        labels = [job["metadata"]["labels"] for job in world.list("jobs")]
    assert len(labels) == 4
    assert all((keys.JOB_RESTART_ATTEMPT in each) == (configuration is None) for each in labels)


@pytest.mark.looptime
async def test_a_warning_names_each_jobset_of_a_disabled_gate():
    """Stored and new JobSets have one warning each; others, and with the gate, none."""
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
        warnings = [line for line in logs if line.get("gate") == "InPlaceRestart"]
        assert sorted(line["object"] for line in warnings) == expected
        assert {line["log_level"] for line in warnings} <= {"warning"}


def new_jobset(name):
    """A JobSet to be created."""
    body = jobset_json(name=name)
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    return body


def in_place(name, strategy="InPlaceRestart"):
    """A JobSet with a restart strategy."""
    body = new_jobset(name)
    body["spec"]["failurePolicy"] = {"restartStrategy": strategy, "maxRestarts": 3}
    return body
