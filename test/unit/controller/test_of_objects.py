"""``controller_for``: a function of an object as the reconciler of an ordinary controller."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
import structlog

from jobsetpy import runtime as rt
from jobsetpy.testing import RecordingClient, World
from support.managers import started

pytestmark = pytest.mark.looptime


class ObjectLog:
    """A function that records the objects it was called for, and whether they were being deleted."""

    def __init__(self):
        self.seen = []

    async def reconcile(self, obj):
        self.seen.append((obj.metadata.name, obj.metadata.deletion_timestamp is not None))
        return rt.Result.done()

    def taken(self):
        """Return the records since the last call of this method."""
        seen, self.seen = self.seen, []
        return seen


@asynccontextmanager
async def controlling(world, reconcile, **options):
    """A manager with a controller of ConfigMaps that own PersistentVolumeClaims."""
    manager = rt.Manager(RecordingClient(world, qps=0))
    maps, claims = manager.informer(rt.ConfigMap), manager.informer(rt.PersistentVolumeClaim)
    manager.add(rt.controller_for(maps, reconcile, name="maps", owns=[claims], **options))
    async with started(manager):
        await asyncio.sleep(5)
        yield


def claim_of(owner):
    """A claim that belongs to a ConfigMap."""
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "c", "ownerReferences": [reference]}, "spec": spec}


async def test_function_is_called_for_objects_and_changes_of_owned_objects():
    """It is not called for deleted objects, and for terminating ones only with ``deleting``."""
    world, log = World(), ObjectLog()
    one = world.create("configmaps", {"metadata": {"name": "a"}})
    world.create("configmaps", {"metadata": {"name": "b", "finalizers": ["example.com/x"]}})
    async with controlling(world, log.reconcile):
        assert sorted(log.taken()) == [("a", False), ("b", False)]
        world.create("persistentvolumeclaims", claim_of(one))
        await asyncio.sleep(5)
        assert log.taken() == [("a", False)]
        world.delete("configmaps", "a")
        world.delete("configmaps", "b")
        await asyncio.sleep(5)
        assert log.taken() == []
    async with controlling(world, log.reconcile, deleting=True):
        assert log.taken() == [("b", True)]


async def test_errors_and_logs_name_the_function():
    """A function that is not ``async def`` is refused; one that blocks the event loop is logged."""
    world = World()
    world.create("configmaps", {"metadata": {"name": "a"}})

    def synchronous(_):
        return rt.Result.done()

    with pytest.raises(TypeError, match=r"synchronous has to be `async def`"):
        async with controlling(world, synchronous):
            pass

    async def sleeper(_):
        time.sleep(0.6)  # noqa: ASYNC251 - the mistake
        return rt.Result.done()

    with structlog.testing.capture_logs() as lines:
        async with controlling(world, sleeper, workers=1):
            pass
    (line,) = [line for line in lines if "blocked the event loop" in line["event"]]
    assert line["reconciler"].endswith("sleeper")
