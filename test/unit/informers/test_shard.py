"""Shards of a collection: their selectors, and filtering where the server does not support them."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import msgspec
import pytest

from jobsetpy.aio import supervise
from jobsetpy.api._wire import to_json
from jobsetpy.api.core import Node, Pod
from jobsetpy.client import Client, WatchFrame
from jobsetpy.client._models import Model
from jobsetpy.errors import DecodeError
from jobsetpy.informers import Shard, SharedInformer, WatchOptions
from jobsetpy.informers._events import Applied, Deleted, Listed, Unreadable
from jobsetpy.informers._machine import WatchMachine
from jobsetpy.informers._shard import fnv1a_64
from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.testing import World, make_pod
from support.informers_kit import InformerLog


def uid(number):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, str(number)))


def pod(number, namespace="default", rv=1):
    body = make_pod(f"p{number}", namespace=namespace).build()
    body["metadata"] |= {"uid": uid(number), "resourceVersion": str(rv)}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def frame(type_, obj):
    return WatchFrame(type_, msgspec.Raw(msgspec.json.encode(to_json(obj))))


class TestShard:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
    )
    def test_hash_is_the_published_one(self, text, value):
        """The hash has the values of the FNV authors' table of FNV-1a with 64 bits."""
        assert fnv1a_64(text) == value

    @pytest.mark.parametrize("by", ["uid", "namespace"])
    @pytest.mark.parametrize("count", [1, 2, 3, 7, 1024])
    def test_each_object_is_in_one_shard(self, count, by):
        """The shards of a collection hold each object once."""
        shards = [Shard(index, count, by) for index in range(count)]

        for number in range(50):
            meta = SimpleNamespace(uid=uid(number), namespace=f"ns-{number}")
            assert sum(shard.holds(meta) for shard in shards) == 1

    def test_selectors_cover_everything(self):
        """The ranges of all shards are adjacent, from 0 to 2^64, in the API server's syntax."""
        ranges = [Shard(index, 3, "uid").selector for index in range(3)]

        assert ranges == [
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x5555555555555555')",
            "shardRange(object.metadata.uid, '0x5555555555555555', '0xaaaaaaaaaaaaaaaa')",
            "shardRange(object.metadata.uid, '0xaaaaaaaaaaaaaaaa', '0x10000000000000000')",
        ]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("2/2", "from 0 to 1"),
            ("0/0", "from 1 to 1024"),
            ("0/1025", "from 1 to 1024"),
            ("1", "INDEX/COUNT"),
            ("-1/2", "INDEX/COUNT"),
            ("a/2", "INDEX/COUNT"),
            ("\N{SUPERSCRIPT TWO}/2", "INDEX/COUNT"),
            ("", "INDEX/COUNT"),
        ],
    )
    def test_parse_refuses_an_invalid_shard(self, text, why):
        """An error for another form, or for a shard out of range, says what would be right."""
        with pytest.raises(ValueError, match=why):
            Shard.parse(text)

    def test_other_fields_are_refused(self):
        """The server hashes only namespaces and UIDs."""
        with pytest.raises(ValueError, match="namespace or uid"):
            Shard(0, 2, "name")


class TestMachine:
    SHARD = Shard(0, 2, "uid")

    def machine(self):
        options = WatchOptions(shard=self.SHARD, rand=lambda: 0.5)
        return WatchMachine(msgspec.json.Decoder(Pod).decode, kind="Pod", options=options)

    def split(self, objects):
        mine = [each for each in objects if self.SHARD.holds(each.metadata)]
        assert mine
        assert len(mine) < len(objects)
        return mine, [each for each in objects if each not in mine]

    def test_list_leaves_out_other_shards(self):
        """Only the shard's part of a full list is reported, readable or not."""
        objects = [pod(number) for number in range(20)]
        mine, others = self.split(objects)
        bad = [
            DecodeError("Pod", "$", "bad", namespace="default", name=each.metadata.name,
                        uid=each.metadata.uid)
            for each in (mine[0], others[0])
        ]  # fmt: skip

        events = self.machine().on_page(objects, "50", "", bad)

        assert [each.obj for each in events if isinstance(each, Listed)] == mine
        unreadable = [each for each in events if isinstance(each, Unreadable)]
        assert [each.uid for each in unreadable] == [mine[0].metadata.uid]

    def test_watch_leaves_out_other_shards_but_continues(self):
        """Changes and deletions of other shards are dropped; their version counts as seen."""
        machine = self.machine()
        machine.on_page([], "10", "")
        machine.on_opened(0.0)
        objects = [pod(number, rv=11 + number) for number in range(20)]
        mine, others = self.split(objects)

        changed = machine.on_frames([frame("ADDED", each) for each in objects], 1.0)
        later = pod(int(others[-1].metadata.name[1:]), rv=99)
        deleted = machine.on_frames([frame("DELETED", later)], 2.0)

        assert all(isinstance(each, Applied) for each in changed)
        assert [each.obj.metadata.uid for each in changed] == [each.metadata.uid for each in mine]
        assert not [each for each in deleted if isinstance(each, Deleted)]
        assert machine.resource_version == "99"


async def test_informers_filter_when_the_server_does_not():
    """Two informers of halves hold each object once, and report that the server does not filter."""
    world = World()
    names = ["default", "training", "inference", "vision", "speech", "search"]
    for name in names:
        world.add_namespace(name)
        world.create("pods", make_pod("p", namespace=name).build(), namespace=name)
    log = InformerLog()
    client = Client(world.transport())
    halves = [
        SharedInformer(client, Pod, WatchOptions(shard=Shard(index, 2), observer=log))
        for index in range(2)
    ]
    async with supervise() as tasks:
        for half in halves:
            tasks.start(half.run(), name="half")
        for half in halves:
            await half.wait_for_sync()
        found = [{each.metadata.namespace for each in half.store.list()} for half in halves]

    assert found[0].isdisjoint(found[1])
    assert found[0] | found[1] == set(names)
    assert all(found)
    assert log.shards == [False] * 2
    selectors = {request.query.get("shardSelector") for request in world.requests}
    assert selectors == {Shard(0, 2).selector, Shard(1, 2).selector}


async def test_page_has_the_selector_that_the_server_applied():
    """The selector that a list answer echoes is on the page."""
    selector = Shard(0, 2).selector
    body = {"metadata": {"resourceVersion": "7", "shardInfo": {"selector": selector}}, "items": []}

    page = await Model(Pod).decode_page(msgspec.json.encode(body))

    assert page.shard_selector == selector


async def test_manager_shards_namespaced_kinds():
    """Nodes and informers of one namespace are not sharded; an explicit shard takes precedence."""
    manager = Manager(Client(World().transport()), settings=ManagerSettings(shard=Shard(0, 2)))
    pods = manager.informer(Pod)

    assert pods.shard == Shard(0, 2)
    assert manager.informer(Pod, namespace="here").shard is None
    assert manager.informer(Node).shard is None
    assert manager.informer(Pod, shard=Shard(1, 2, "uid")).shard == Shard(1, 2, "uid")
    assert manager.informer(Pod) is pods
