"""Decoding of answers: objects, lists, and lists with invalid objects."""

import asyncio

import attrs
import msgspec
import pytest

from jobsetpy.aio import supervise
from jobsetpy.api.core import ConfigMap, Node, Pod
from jobsetpy.api.meta import resource
from jobsetpy.client import _models
from jobsetpy.client._models import Model
from jobsetpy.errors import DecodeError


@attrs.frozen
class _Info:
    group: str = ""
    version: str = "v1"
    kind: str = "Pod"
    plural: str = "pods"
    namespaced: bool = True


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class TinyPod(msgspec.Struct, frozen=True):
    """A model of a part of a pod, as the agent has."""

    RESOURCE = _Info()
    metadata: _Meta = _Meta()


def page(*items):
    """Return a list as the server sends it."""
    return msgspec.json.encode(
        {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "c"}, "items": items}
    )


@pytest.mark.parametrize("cls", [Pod, TinyPod])
async def test_wire_classes_and_structs_decode_alike(cls):
    """Both kinds of models are supported."""
    model = Model(cls)

    assert model.decode(b'{"metadata": {"name": "a"}, "spec": {}}').metadata.name == "a"
    found = await model.decode_page(page({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}))
    assert [item.metadata.name for item in found.items] == ["a", "b"]
    assert (found.resource_version, found.continue_token, found.bad) == ("9", "c", [])


async def test_invalid_object_is_left_out_and_described():
    """It blocks neither the list nor the other objects."""
    body = page(
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "b", "namespace": "ns"}, "status": {"phase": 7}},
        "no object",
        {"metadata": {"name": "c"}},
    )
    found = await Model(Pod).decode_page(body)

    assert [item.metadata.name for item in found.items] == ["a", "c"]
    assert found.resource_version == "9"
    first, second = found.bad
    assert isinstance(first, DecodeError)
    assert first.path == "$.items[1].status.phase"
    assert "ns/b" in str(first)
    assert second.path == "$.items[2]"


@pytest.mark.parametrize(
    "body", [b'{"metadata":{}}', b'{"metadata":{},"items":null}', b'{"items":[]}']
)
async def test_list_without_items_is_empty(body):
    """Servers write it in several ways."""
    found = await Model(Pod).decode_page(body)

    assert found.items == []
    assert found.continue_token == ""


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items": 3}', b'{"items": [{}]', b"<html>"])
async def test_answer_that_is_not_a_list_is_a_decode_error(body):
    """It must not look like an empty list."""
    with pytest.raises(DecodeError, match="PodList"):
        await Model(Pod).decode_page(body)


def test_decode_errors_of_objects_have_a_path():
    """The path is the place at which the JSON differs from the model."""
    with pytest.raises(DecodeError) as caught:
        Model(Pod).decode(b'{"metadata": {"labels": {"a": 1}}}')

    assert caught.value.path.startswith("$.metadata.labels")
    assert caught.value.kind == "Pod"


@pytest.mark.parametrize(
    ("cls", "namespace", "expected"),
    [
        (ConfigMap, "", "/api/v1/configmaps"),
        (ConfigMap, "a", "/api/v1/namespaces/a/configmaps"),
        (Node, "", "/api/v1/nodes"),
        (Node, "ignored", "/api/v1/nodes"),
    ],
)
def test_collection_path_has_the_namespace_of_namespaced_kinds(cls, namespace, expected):
    """Without a namespace it is that of all namespaces."""
    assert expected == Model(cls).collection(namespace)


def test_object_paths_are_percent_encoded():
    """A subresource follows the name."""
    assert Model(Node).object("", "a") == "/api/v1/nodes/a"
    assert Model(Node).object("", "a/b:c") == "/api/v1/nodes/a%2Fb%3Ac"
    assert Model(Pod).object("n", "a", "status") == "/api/v1/namespaces/n/pods/a/status"


@pytest.mark.parametrize(
    ("cls", "namespace", "name"), [(Pod, "n", ""), (Pod, "", "a"), (Node, "", "")]
)
def test_empty_name_is_refused(cls, namespace, name):
    """A delete with an empty name would delete the whole collection."""
    with pytest.raises(ValueError):
        Model(cls).object(namespace, name)


def test_classes_without_a_resource_are_refused():
    """The error is raised where the class is used."""
    with pytest.raises(TypeError, match="RESOURCE"):
        Model(dict)


def test_attrs_classes_without_wire_names_are_refused():
    """Their camelCase fields would silently keep their defaults."""

    @resource("example.com", "v1", "Widget", "widgets")
    @attrs.frozen
    class Widget:
        metadata: dict
        last_seen: str = ""

    with pytest.raises(TypeError, match=r"Widget is an attrs class .* runtime\.model"):
        Model(Widget)


async def test_large_list_is_decoded_without_blocking_the_loop(monkeypatch):
    """Another task runs many times meanwhile; the result is the same."""
    objects = [{"metadata": {"name": f"p{number}", "annotations": {"x": "y" * 10_000}}}
               for number in range(200)]  # fmt: skip
    objects[7] = {"metadata": {"name": "odd", "namespace": "ns", "uid": "u"}, "spec": 5}
    body = msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": objects})
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with supervise() as tasks:
        counting = tasks.start(count(), name="count")
        found = await Model(Pod).decode_page(body)
        counting.cancel()

    monkeypatch.setattr(_models, "SLICE_BYTES", len(body))
    whole = await Model(Pod).decode_page(body)
    assert turns > 5
    assert found.items == whole.items
    assert [str(each) for each in found.bad] == [str(each) for each in whole.bad]
    assert [(each.namespace, each.name, each.uid) for each in found.bad] == [("ns", "odd", "u")]
