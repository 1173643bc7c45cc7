"""``jobsetpy.submit``: a training from Python, created and waited for."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy import submit
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import AlreadyExistsError, NotFoundError
from jobsetpy.testing import RecordingClient, VirtualTime, World


@pytest.fixture
def client():
    """A client of an empty world that knows JobSets."""
    world = World()
    world.register(JobSet)
    return RecordingClient(world)


def test_training_is_created_and_waited_for_through_an_outage(client):
    """Its outcome is returned; a second one of its name is refused."""
    job = submit.training("llm", "r/x:1", ["python", "train.py"], nodes=2, nproc=8, spares=1)

    def end(outcome):
        status = {"status": {"terminalState": outcome}}
        client.world.patch(JobSet, "llm", status, subresource="status")

    async def scenario():
        await submit.submit(client, job)
        with pytest.raises(AlreadyExistsError):
            await submit.submit(client, job)
        client.world.faults.status(503, verb="get", resource="jobsets", count=20)
        asyncio.get_running_loop().call_later(600, end, "Failed")
        return await submit.wait(client, "llm")

    assert VirtualTime().run(scenario()) == "Failed"


def test_deleted_training_is_not_waited_for(client):
    """It is an error, and no outcome."""
    with pytest.raises(NotFoundError):
        VirtualTime().run(submit.wait(client, "llm"))
