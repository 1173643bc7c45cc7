"""The example controllers, on a fake API server in virtual time."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.testing import RecordingClient, World

pytestmark = pytest.mark.looptime

FOLDER = Path(__file__).resolve().parents[3] / "examples/controllers"


def example(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_ephemeral_volume_claims():
    """One claim for each object, made once, made again when it is deleted, gone with its owner."""
    module, world = example("ephemeral_volume_claims"), World()
    world.garbage_collect = True
    world.create("customresourcedefinitions", crd_of(module.EphemeralVolumeClaim))
    manager, stop = rt.Manager(RecordingClient(world, qps=0)), asyncio.Event()
    module.setup(manager)
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await asyncio.sleep(5)
        body = {"metadata": {"name": "a"}, "spec": {"size": "1Gi"}}
        world.create("ephemeralvolumeclaims", body)
        await asyncio.sleep(5)
        (claim,) = world.list("persistentvolumeclaims")
        status = world.get("ephemeralvolumeclaims", "a")["status"]
        writes = len(world.requests.writes)
        world.patch("persistentvolumeclaims", "a", {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(5)
        assert len(world.requests.writes) == writes, "nothing to do"
        world.delete("persistentvolumeclaims", "a")
        await asyncio.sleep(5)
        (again,) = world.list("persistentvolumeclaims")
        world.delete("ephemeralvolumeclaims", "a")
        await asyncio.sleep(5)
        assert world.list("persistentvolumeclaims") == []
        stop.set()
        await running

    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert (status["claim"], status["conditions"][0]["type"]) == ("a", "Ready")
    assert again["metadata"]["uid"] != claim["metadata"]["uid"]
