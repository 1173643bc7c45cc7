"""Custom resources of the fake: pruned, defaulted and validated by the schema of their CRD."""

from typing import Any, ClassVar, Literal

import pytest

from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.testing import RecordingClient, World


@rt.model
class Part:
    name: str = rt.field(default="", required=True, min_length=1)
    count: int = rt.field(default=1, defaulted=True, minimum=0, maximum=5)


@rt.model
class Spec:
    size: str = rt.field(default="", required=True, pattern="^[0-9]+Gi$", max_length=6)
    mode: Literal["Fast", "Slow"] = rt.field(default="Fast", defaulted=True)
    port: int | str = rt.field(default=80, defaulted=True)
    parts: tuple[Part, ...] = rt.field(default=(), map_keys=("name",), max_items=2)
    notes: dict[str, str] = rt.field(factory=dict)
    free: Any = None
    memory: int | str = rt.field(default="1Gi", quantity=True)


@rt.model
class Status:
    ready: int = 0


@rt.resource("example.com", "v1", "Gadget", "gadgets")
@rt.model
class Gadget:
    """A gadget."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()


@pytest.fixture
def client():
    """A client of a world with gadgets."""
    world = World()
    world.create("customresourcedefinitions", crd_of(Gadget))
    return RecordingClient(world)


def body(**spec):
    """Return a gadget's body."""
    return {"metadata": {"name": "a"}, "spec": {"size": "1Gi", **spec}}


async def test_objects_are_pruned_and_defaulted(client):
    """Unknown fields are dropped, in lists as well; missing ones get defaults."""
    unknown = {"parts": [{"name": "x", "odd": 1}], "odd": {"a": 1}, "free": {"kept": [1]}}
    await client.create(Gadget, "default", {**body(**unknown), "other": 1})
    stored = client.world.get("gadgets", "a")
    assert set(stored) == {"apiVersion", "kind", "metadata", "spec"}
    assert stored["spec"] == {
        "size": "1Gi",
        "mode": "Fast",
        "port": 80,
        "parts": [{"name": "x", "count": 1}],
        "free": {"kept": [1]},
    }
    await client.merge_patch(Gadget, "default", "a", {"spec": {"mode": None, "odd": 1}})
    assert client.world.get("gadgets", "a")["spec"] == stored["spec"], "defaulted again, pruned"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": None}, "spec.size"),
        ({"size": "many"}, "spec.size"),
        ({"size": "12345Gi"}, "spec.size"),
        ({"size": 5}, "spec.size"),
        ({"mode": "Other"}, "spec.mode"),
        ({"port": True}, "spec.port"),
        ({"parts": [{}]}, "spec.parts[0].name"),
        ({"parts": [{"name": "x", "count": 9}]}, "spec.parts[0].count"),
        ({"parts": [{"name": "x", "count": 1.5}]}, "spec.parts[0].count"),
        ({"parts": [{"name": "x"}, {"name": "x"}]}, "spec.parts[1]"),
        ({"parts": [{"name": n} for n in "xyz"]}, "spec.parts"),
        ({"memory": "1 GB"}, "spec.memory"),
        ({"notes": {"a": 1}}, "spec.notes.a"),
    ],
)
async def test_violation_is_refused_with_its_field(client, spec, field):
    """Each constraint refuses a create and a patch."""
    with pytest.raises(
        rt.InvalidError, match=r"Invalid|Required|Unsupported|Duplicate|Too"
    ) as refused:
        await client.create(Gadget, "default", body(**spec))
    assert f'"field":"{field}"'.encode() in refused.value.body
    assert client.world.get("gadgets", "a") is None
    await client.create(Gadget, "default", body())
    with pytest.raises(rt.InvalidError):
        await client.merge_patch(Gadget, "default", "a", {"spec": spec})


async def test_status_is_validated(client):
    """One that does not match the schema is refused."""
    await client.create(Gadget, "default", body())
    with pytest.raises(rt.InvalidError, match=r"status\.ready"):
        await client.merge_patch(
            Gadget, "default", "a", {"status": {"ready": "x"}}, subresource="status"
        )
