"""``controller_for``: a function of an object as the reconciler of the usual controller."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
import structlog

from jobsetpy import runtime as rt
from jobsetpy.testing import RecordingClient, World
from support.managers import started

pytestmark = pytest.mark.looptime


class Noted:
    """Remembers the objects that it was called for."""

    def __init__(self):
        self.seen = []

    async def reconcile(self, obj):
        self.seen.append((obj.metadata.name, obj.metadata.deletion_timestamp is not None))
        return rt.Result.done()

    def taken(self):
        """What came since the last call."""
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


async def test_it_is_called_for_objects_and_for_what_they_own():
    """With the object, not for one that is gone, and for one that goes only if that was asked."""
    world, noted = World(), Noted()
    one = world.create("configmaps", {"metadata": {"name": "a"}})
    world.create("configmaps", {"metadata": {"name": "b", "finalizers": ["example.com/x"]}})
    async with controlling(world, noted.reconcile):
        assert sorted(noted.taken()) == [("a", False), ("b", False)]
        world.create("persistentvolumeclaims", claim_of(one))
        await asyncio.sleep(5)
        assert noted.taken() == [("a", False)]
        world.delete("configmaps", "a")
        world.delete("configmaps", "b")
        await asyncio.sleep(5)
        assert noted.taken() == []
    async with controlling(world, noted.reconcile, deleting=True):
        assert noted.taken() == [("b", True)]


async def test_the_function_is_checked_and_named():
    """One that is no ``async def`` is refused; one that blocks the event loop is told by its name."""
    world = World()
    world.create("configmaps", {"metadata": {"name": "a"}})

    def at_once(_):
        return rt.Result.done()

    with pytest.raises(TypeError, match=r"at_once has to be `async def`"):
        async with controlling(world, at_once):
            pass

    async def sleeper(_):
        time.sleep(0.6)  # noqa: ASYNC251 - the mistake
        return rt.Result.done()

    with structlog.testing.capture_logs() as lines:
        async with controlling(world, sleeper, workers=1):
            pass
    (line,) = [line for line in lines if "blocked the event loop" in line["event"]]
    assert line["reconciler"].endswith("sleeper")
