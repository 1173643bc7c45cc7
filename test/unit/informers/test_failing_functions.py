"""Indexes, tallies and transforms that fail for an object: it is named, counted and left out."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.aio import supervise
from jobsetpy.api.core import ConfigMap, Pod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.informers import Index, SharedInformer, StoreWriter, Tally, WatchOptions
from jobsetpy.observability.hooks import InformerMetrics
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.testing import RecordingClient, decoded
from support.informers_kit import InformerLog

TEAM = Index("team", lambda obj: [obj.metadata.labels["team"]])
TEAMS = Tally("teams", lambda obj: ("all", obj.metadata.labels["team"]))
BY_TEXT: Index = Index("text", lambda obj: obj.metadata.labels.get("team"))


def config_map(name, version="1", **labels):
    return decoded(
        ConfigMap,
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "resourceVersion": version,
                "labels": labels,
            }
        },
    )


@pytest.fixture
def told():
    return []


@pytest.fixture
def writer(told):
    """A store with an index and a tally of a label that some objects lack."""

    def on_error(function, error, namespace, name):
        told.append((function, f"{namespace}/{name}"))

    made = StoreWriter(ConfigMap, indexes=[TEAM, BY_TEXT], tallies=[TEAMS], on_error=on_error)
    made.mark_synced("1")
    return made


def test_an_object_that_fails_is_in_the_store_and_in_no_index(writer, told):
    """Others are indexed and counted as ever; each failure is told once."""
    writer.apply(config_map("good", team="x"))
    writer.apply(config_map("bad"))
    writer.apply(config_map("bad", "2"))
    store = writer.store

    assert {obj.metadata.name for obj in store.list()} == {"good", "bad"}
    assert [obj.metadata.name for obj in store.by_index(TEAM, "x")] == ["good"]
    assert dict(store.tally(TEAMS, "all")) == {"x": 1}
    assert told == [("index 'team'", "ns/bad"), ("tally 'teams'", "ns/bad")]


def test_an_object_may_begin_and_cease_to_fail(writer, told):
    """Indexes and tallies fit the object at every moment, and a new failure is told again."""
    store = writer.store
    for version in range(3):
        writer.apply(config_map("a", f"{version}1", team="x"))
        assert [obj.metadata.name for obj in store.by_index(TEAM, "x")] == ["a"]
        assert dict(store.tally(TEAMS, "all")) == {"x": 1}
        writer.apply(config_map("a", f"{version}2"))
        assert store.by_index(TEAM, "x") == []
        assert dict(store.tally(TEAMS, "all")) == {}
    writer.delete(ObjectKey("ns", "a"))
    writer.apply(config_map("a", "99"))

    assert len(told) == 2 * 4


def test_a_function_that_depends_on_more_than_the_object_leaves_nothing_behind():
    """An index that changes its mind cannot keep an object that is gone, nor break the store."""
    mood = {"value": "x"}

    def moody(_):
        if mood["value"] == "raise":
            raise RuntimeError
        return [mood["value"]]

    index = Index("mood", moody)
    tally = Tally("mood", lambda obj: ("k", moody(obj)[0]))
    writer = StoreWriter(ConfigMap, indexes=[index], tallies=[tally])
    writer.mark_synced("1")
    for before, after in [("x", "raise"), ("raise", "x"), ("x", "y"), ("y", "x")]:
        mood["value"] = before
        writer.apply(config_map("a"))
        mood["value"] = after
        writer.delete(ObjectKey("ns", "a"))
    mood["value"] = "raise"
    writer.apply(config_map("a"))
    writer.delete(ObjectKey("ns", "a"))

    assert len(writer.store) == 0


def test_an_index_of_a_text_is_of_that_text(writer, told):
    """A function that returns the text itself means one value, and ``None`` means none."""
    writer.apply(config_map("a", team="platform"))
    writer.apply(config_map("b"))

    assert writer.store.index_values(BY_TEXT) == ["platform"]
    assert not [each for each in told if "text" in each[0]]


@pytest.mark.parametrize("values", [[1], [None], [["x"]], 7])
def test_an_index_of_other_values_is_a_failure(values):
    """Values that no look-up could ask for are told of."""
    told = []
    writer = StoreWriter(
        ConfigMap,
        indexes=[Index("odd", lambda _: values)],
        on_error=lambda *what: told.append(what),
    )
    writer.apply(config_map("a"))

    assert [what[0] for what in told] == ["index 'odd'"]
    assert len(writer.store) == 1


@pytest.mark.parametrize("part", ["abc", ("k",), ("k", []), (1, 2, 3), 5])
def test_a_tally_of_something_else_is_a_failure(part):
    """What is no pair, or cannot be counted, is told of before anything is changed."""
    told = []
    writer = StoreWriter(
        ConfigMap, tallies=[Tally("odd", lambda _: part)], on_error=lambda *what: told.append(what)
    )
    writer.apply(config_map("a"))

    assert [what[0] for what in told] == ["tally 'odd'"]
    assert len(writer.store) == 1


@pytest.mark.looptime
async def test_an_informer_survives_a_function_that_fails():
    """One bad object of a list or watch ends nothing; the observer knows its name."""
    log, client = InformerLog(), RecordingClient(qps=0)
    world = client.world
    for name, labels in [("good", {"team": "x"}), ("bad", {})]:
        world.create("configmaps", {"metadata": {"name": name, "labels": labels}})
    informer = SharedInformer(
        client, ConfigMap, WatchOptions(observer=log), indexes=[TEAM], tallies=[TEAMS]
    )
    async with supervise() as tasks:
        running = tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        world.create("configmaps", {"metadata": {"name": "bad-too"}})
        world.create("configmaps", {"metadata": {"name": "late", "labels": {"team": "x"}}})
        await asyncio.sleep(1)
        running.cancel()

    assert [obj.metadata.name for obj in informer.store.by_index(TEAM, "x")] == ["good", "late"]
    assert {each for each in log.functions if each[0].startswith("index")} == {
        ("index 'team'", KeyError, "default", "bad"),
        ("index 'team'", KeyError, "default", "bad-too"),
    }


@pytest.mark.looptime
async def test_an_object_whose_transform_fails_stays_as_it_was():
    """A new one is left out; one that was good before stays in its last good state."""
    log, client = InformerLog(), RecordingClient(qps=0)
    world = client.world
    for name, labels in [("good", {"team": "x"}), ("bad", {})]:
        world.create("configmaps", {"metadata": {"name": name, "labels": labels}})

    def checked(obj):
        obj.metadata.labels["team"]
        return obj

    informer = SharedInformer(client, ConfigMap, WatchOptions(observer=log), transform=checked)
    async with supervise() as tasks:
        running = tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
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
        running.cancel()

    assert [each[3] for each in log.functions] == ["bad", "good"]


def test_failures_are_counted():
    """The manager's observer counts them by kind."""
    name = "informer_function_errors_total"
    before = REGISTRY.get_sample_value(name, {"kind": "Pod"}) or 0
    InformerMetrics().on_function_error("Pod", "index 'x'", KeyError("x"), "ns", "a")

    assert REGISTRY.get_sample_value(name, {"kind": "Pod"}) == before + 1
    assert Pod is not None
