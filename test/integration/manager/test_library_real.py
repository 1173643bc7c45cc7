"""A controller of a custom resource on a real API server, with the usual features."""

import sys
from typing import Any, ClassVar

import pytest
import yaml

from jobsetpy import runtime as rt
from jobsetpy.app.main import main
from support.cluster.install import apply_object
from support.managers import started
from support.patience import eventually

pytestmark = pytest.mark.cluster

CLEAN_UP = rt.finalizer("library.example.com/clean-up")
NAME = "boxes"


@rt.model
class Spec:
    size: str = rt.field(default="", required=True, pattern="^[0-9]+Gi$")
    count: int = rt.field(default=2, defaulted=True, minimum=1)
    port: int | str = rt.field(default="http", defaulted=True)


@rt.model
class Status:
    ready: int = 0
    conditions: tuple[rt.Condition, ...] = rt.field(default=(), map_keys=("type",))


@rt.resource("library.example.com", "v1", "Box", "boxes")
@rt.model
class Box:
    """A box."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    COLUMNS: ClassVar = ({"name": "Size", "type": "string", "jsonPath": ".spec.size"},)
    RULES: ClassVar = (("self.spec.size != '9Gi'", "not that big"),)
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


class Boxes:
    """Controller that keeps a ConfigMap and a status for each box, and cleans up at its deletion."""

    def __init__(self, client: rt.Client, boxes: rt.Store[Box]) -> None:
        self.client, self.boxes, self.cleaned, self.done = client, boxes, [], []

    async def clean_up(self, box: Box) -> None:
        self.cleaned.append(box.metadata.name)

    async def reconcile(self, request: rt.Request) -> rt.Result:
        box = self.boxes.get(request.key)
        if box is None or await CLEAN_UP.guard(self.client, box, self.clean_up):
            return rt.Result.done()
        key = request.key
        body = {"data": {"size": box.spec.size}}
        made = await rt.create_or_apply(
            self.client, rt.ConfigMap, key.namespace, key.name, body, owner=NAME, controller=box
        )
        self.done.append((made.outcome, made.drift))

        def seen(now: Box) -> Status:
            conditions = rt.set_condition(now.status.conditions, "Ready", True, "Made")
            return Status(ready=now.spec.count, conditions=conditions)

        await rt.patch_status(self.client, box, seen)
        return rt.Result.done()


def definition(capsys: Any, name: str) -> dict[str, Any]:
    """Return the output of `jobsetpy crds` with an additional field, as of a later release."""
    capsys.readouterr()
    assert main(["crds", f"{name}:Box"]) == 0
    (printed,) = yaml.safe_load_all(capsys.readouterr().out)
    schema = printed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    return printed


async def test_custom_resource_is_controlled(client, namespace, capsys, monkeypatch):
    """CRD after the manager; finalizer, status, owned object, drift, unknown fields are kept."""
    monkeypatch.setitem(sys.modules, "boxes_of_a_test", sys.modules[__name__])
    printed = definition(capsys, "boxes_of_a_test")
    manager = rt.Manager(client)
    boxes = manager.informer(Box, namespace=namespace, optional=True)
    maps = manager.informer(rt.ConfigMap, namespace=namespace)
    reconciler = Boxes(manager.client, boxes.store)
    watches = [rt.Watch(boxes, rt.enqueue_self), rt.Watch(maps, rt.enqueue_owner(Box))]
    manager.add(rt.Controller(name=NAME, reconciler=reconciler, watches=watches))

    async def raw() -> Any:
        found = await client.get(
            await rt.discover(client, "library.example.com/v1", "Box"), namespace, "a"
        )
        return found.data

    async with started(manager):
        assert len(boxes.store) == 0, "the manager starts although the API server has no such kind"

        await apply_object(client, printed)
        body = {"metadata": {"name": "a"}, "spec": {"size": "1Gi", "later": "kept"}}
        await eventually(lambda: _created(client, namespace, body), 30)
        await eventually(lambda: any(box.status.ready == 2 for box in boxes.store.list()), 30)
        stored = await raw()
        assert stored["spec"] == {"size": "1Gi", "later": "kept", "count": 2, "port": "http"}
        assert stored["metadata"]["finalizers"] == [CLEAN_UP.name]
        (condition,) = stored["status"]["conditions"]
        found = condition["type"], condition["status"], condition["message"]
        assert found == ("Ready", "True", "")
        assert reconciler.done[0] == (rt.Outcome.CREATED, ())

        version = stored["metadata"]["resourceVersion"]
        await client.merge_patch(rt.ConfigMap, namespace, "a", {"data": {"size": "changed"}})
        await eventually(lambda: (rt.Outcome.UPDATED, ("data.size",)) in reconciler.done, 30)
        assert (await client.get(rt.ConfigMap, namespace, "a")).data == {"size": "1Gi"}
        assert (await raw())["metadata"]["resourceVersion"] == version, "no needless write"

        for spec, field in (({"size": "9Gi"}, "not that big"), ({"count": 0}, "spec.count")):
            with pytest.raises(rt.InvalidError, match=field):
                await client.dry_run().merge_patch(Box, namespace, "a", {"spec": spec})

        await client.delete(Box, namespace, "a")
        await eventually(lambda: boxes.store.get(rt.ObjectKey(namespace, "a")) is None, 30)
        assert reconciler.cleaned == ["a"]
    names = [box.metadata.name async for box in rt.list_objects(client, Box, namespace)]
    assert names == []


async def _created(client: rt.Client, namespace: str, body: Any) -> bool:
    """Return True once the object exists: a CRD is served a moment after its creation."""
    try:
        await client.create(Box, namespace, body)
    except rt.NotFoundError:
        return False
    except rt.AlreadyExistsError:
        return True
    return True
