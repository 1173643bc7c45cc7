"""Indexes and transforms that fail for an object: it is reported, counted and left out."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import ConfigMap
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import Client
from jobsetpy.informers import BY_NAMESPACE, Index, SharedInformer, StoreWriter, WatchOptions
from jobsetpy.observability.hooks import InformerMetrics
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.testing import World, decoded
from support.informers_kit import InformerLog, synced

TEAM = Index("team", lambda obj: [obj.metadata.labels["team"]])
BY_TEXT: Index = Index("text", lambda obj: obj.metadata.labels.get("team"))


def config_map(name, version="1", **labels):
    meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version}
    return decoded(ConfigMap, {"metadata": {**meta, "labels": labels}})


@pytest.fixture
def errors():
    return []


@pytest.fixture
def writer(errors):
    """A store with an index of a label that some objects do not have."""

    def on_error(function, error, namespace, name):
        errors.append((function, f"{namespace}/{name}"))

    made = StoreWriter(ConfigMap, indexes=[TEAM, BY_TEXT, BY_NAMESPACE], on_error=on_error)
    made.mark_synced("1")
    return made


def test_an_object_is_only_missing_where_a_function_fails(writer, errors):
    """Other objects and indexes are not affected; each failure is reported once."""
    writer.apply(config_map("good", team="x"))
    writer.apply(config_map("bad"))
    writer.apply(config_map("bad", "2"))
    store = writer.store

    assert {obj.metadata.name for obj in store.list()} == {"good", "bad"}
    assert [obj.metadata.name for obj in store.by_index(TEAM, "x")] == ["good"]
    assert store.index_count(BY_NAMESPACE, "ns") == 2
    assert errors == [("index 'team'", "ns/bad")]


def test_an_object_is_indexed_again_when_it_no_longer_fails(writer, errors):
    """Indexes match the object at all times, and a new failure is reported again."""
    store = writer.store
    for version in range(3):
        writer.apply(config_map("a", f"{version}1", team="x"))
        assert [obj.metadata.name for obj in store.by_index(TEAM, "x")] == ["a"]
        writer.apply(config_map("a", f"{version}2"))
        assert store.by_index(TEAM, "x") == []
    writer.delete(ObjectKey("ns", "a"))
    writer.apply(config_map("a", "99"))

    assert len(errors) == 4


def test_an_object_is_removed_when_its_functions_return_other_values():
    """An index whose value changes cannot keep an object that is gone, nor break the store."""
    state = {"value": "x"}

    def result(_):
        if state["value"] == "raise":
            raise RuntimeError
        return [state["value"]]

    index = Index("state", result)
    writer = StoreWriter(ConfigMap, indexes=[index])
    writer.mark_synced("1")
    for before, after in [("x", "raise"), ("raise", "x"), ("x", "y"), ("y", "x")]:
        state["value"] = before
        writer.apply(config_map("a"))
        state["value"] = after
        writer.delete(ObjectKey("ns", "a"))
    state["value"] = "raise"
    writer.apply(config_map("a"))
    writer.delete(ObjectKey("ns", "a"))

    assert len(writer.store) == 0


def test_an_index_function_may_return_a_single_text(writer, errors):
    """A function that returns a text means one value, and ``None`` means no value."""
    writer.apply(config_map("a", team="platform"))
    writer.apply(config_map("b"))

    assert writer.store.index_values(BY_TEXT) == ["platform"]
    assert not [each for each in errors if "text" in each[0]]


@pytest.mark.parametrize("result", [[1], [None], [["x"]], 7])
def test_a_function_fails_when_its_result_is_unusable(result):
    """Values that no look-up could use are reported."""
    errors = []
    odd = Index("odd", lambda _: result)
    writer = StoreWriter(ConfigMap, indexes=[odd], on_error=lambda *error: errors.append(error))
    writer.apply(config_map("a"))

    assert [error[0] for error in errors] == ["index 'odd'"]
    assert len(writer.store) == 1


@pytest.fixture
def world():
    """A world with a ConfigMap that has the label, and one that does not."""
    world = World()
    for name, labels in [("good", {"team": "x"}), ("bad", {})]:
        world.create("configmaps", {"metadata": {"name": name, "labels": labels}})
    return world


@pytest.mark.looptime
async def test_an_informer_survives_a_function_that_fails(world):
    """One bad object of a list or watch ends nothing; its name is reported to the observer."""
    log, client = InformerLog(), Client(world.transport())
    informer = SharedInformer(client, ConfigMap, WatchOptions(observer=log), indexes=[TEAM])
    async with synced(informer):
        world.create("configmaps", {"metadata": {"name": "bad-too"}})
        world.create("configmaps", {"metadata": {"name": "late", "labels": {"team": "x"}}})
        await asyncio.sleep(1)

    assert [obj.metadata.name for obj in informer.store.by_index(TEAM, "x")] == ["good", "late"]
    assert {each for each in log.functions if each[0].startswith("index")} == {
        ("index 'team'", KeyError, "default", "bad"),
        ("index 'team'", KeyError, "default", "bad-too"),
    }


@pytest.mark.looptime
async def test_an_object_keeps_its_last_good_state_when_its_transform_fails(world):
    """An object that never passed the transform is left out."""
    log, client = InformerLog(), Client(world.transport())

    def checked(obj):
        obj.metadata.labels["team"]
        return obj

    informer = SharedInformer(client, ConfigMap, WatchOptions(observer=log), transform=checked)
    async with synced(informer):
        assert [obj.metadata.name for obj in informer.store.list()] == ["good"]
        world.patch("configmaps", "good", {"metadata": {"labels": {"team": None}}})
        await asyncio.sleep(1)
        world.expire()
        world.faults.end_watches(resource="configmaps")
        await asyncio.sleep(30)
        assert [obj.metadata.labels for obj in informer.store.list()] == [{"team": "x"}]
        world.delete("configmaps", "good")
        await asyncio.sleep(1)
        assert informer.store.list() == []

    assert [each[3] for each in log.functions] == ["bad", "good"]


def test_failures_are_counted():
    """The manager's observer counts failed functions by kind."""
    name = "informer_function_errors_total"
    before = REGISTRY.get_sample_value(name, {"kind": "Pod"}) or 0
    InformerMetrics().on_function_error("Pod", "index 'x'", KeyError("x"), "ns", "a")

    assert REGISTRY.get_sample_value(name, {"kind": "Pod"}) == before + 1
