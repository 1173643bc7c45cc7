"""Untyped objects of kinds that are found by discovery, and kinds that are created later."""

import asyncio
import copy
import pickle

import pytest

from jobsetpy import runtime as rt
from jobsetpy.testing import RecordingClient, World
from support.managers import started

WIDGETS = rt.ResourceInfo("example.com", "v1", "Widget", "widgets")
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
BODY = {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"size": {"min": 1}, "list": [1]}}


@pytest.fixture
def world():
    """A world with widgets."""
    made = World()
    made.create("customresourcedefinitions", DEFINITION)
    return made


async def test_discovery_finds_the_kind(world):
    """Each call returns the same class; group, version, plural and scope come from the server."""
    client = RecordingClient(world)
    widget = await rt.discover(client, "example.com/v1", "Widget")
    assert widget.RESOURCE == WIDGETS
    assert widget is await rt.discover(client, "example.com/v1", "Widget")
    assert widget is rt.unstructured(WIDGETS)
    pod = await rt.discover(client, "v1", "Pod")
    assert (pod.RESOURCE.plural, pod.RESOURCE.namespaced) == ("pods", True)
    assert not (await rt.discover(client, "v1", "Node")).RESOURCE.namespaced


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("example.com/v2", "Widget", "is the CustomResourceDefinition installed"),
        ("example.com/v1", "Gadget", "no kind Gadget in example.com/v1; it has Widget"),
    ],
)
async def test_discovery_of_an_unknown_kind_is_an_error(world, api_version, kind, message):
    """The error says what to check, or which kinds exist."""
    with pytest.raises(rt.NotFoundError, match=message):
        await rt.discover(RecordingClient(world), api_version, kind)


async def test_an_untyped_object_is_read_and_written(world):
    """Every field is kept, nothing can be changed in place, and writes return untyped objects."""
    client, widget = RecordingClient(world), rt.unstructured(WIDGETS)
    made = await client.create(widget, "default", BODY)
    assert isinstance(made, rt.Unstructured)
    assert (made.metadata.name, made.metadata.labels) == ("a", {"x": "y"})
    assert made["spec"]["list"] == [1]
    assert (made.at("spec.size.min"), made.at("spec.size.max", 7)) == (1, 7)
    assert rt.to_json(made)["spec"] == BODY["spec"]
    with pytest.raises(TypeError, match="cannot be changed"):
        made["spec"]["size"] = 2
    with pytest.raises(TypeError, match="cannot be changed"):
        made.metadata.labels["x"] = "z"
    with pytest.raises(AttributeError, match="frozen"):
        made.data = {}
    assert made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made))

    stored = await rt.patch_status(client, made, {"ready": 3})
    assert stored.status == {"ready": 3}
    assert [one.name async for one in _names(client, widget)] == ["a"]
    (page,) = [await client.list_page(widget, "default")]
    assert page.items == [stored]


async def _names(client, widget):
    async for one in rt.list_objects(client, widget, "default"):
        yield one.metadata


@pytest.mark.looptime
async def test_an_optional_informer_is_empty_until_its_crd_exists():
    """It is empty again when the CRD is deleted."""
    world, seen = World(), []

    class Reconciler:
        async def reconcile(self, request):
            seen.append((request.name, widgets.store.get(request.key) is not None))
            return rt.Result.done()

    manager = rt.Manager(RecordingClient(world))
    widgets = manager.informer(rt.unstructured(WIDGETS), optional=True)
    watches = [rt.Watch(widgets, rt.enqueue_self)]
    manager.add(rt.Controller(name="widgets", reconciler=Reconciler(), watches=watches))
    async with started(manager):
        assert (len(widgets.store), manager.problems()) == (0, [])
        world.create("customresourcedefinitions", DEFINITION)
        world.create("widgets", BODY)
        await asyncio.sleep(15)
        assert seen == [("a", True)]
        world.delete("customresourcedefinitions", "widgets.example.com")
        await asyncio.sleep(15)
        assert (len(widgets.store), seen[1:]) == (0, [("a", False)])
        world.create("customresourcedefinitions", DEFINITION)
        world.create("widgets", BODY)
        await asyncio.sleep(15)
        assert seen[2:] == [("a", True)]
