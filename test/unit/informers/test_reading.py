"""Objects that stop fitting the model: the last good version stays, and they are named."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.aio import supervise
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import Client
from jobsetpy.client._models import Model
from jobsetpy.errors import DecodeError
from jobsetpy.informers import (
    Applied,
    CoalescingBuffer,
    ListCompleted,
    Listed,
    ListStarted,
    SharedInformer,
    Unreadable,
    WatchOptions,
)
from jobsetpy.testing import World, make_pod
from support.informers_kit import InformerLog

UNFIT = {"spec": {"priority": "very high"}}


class Heard:
    """What handlers hear."""

    def __init__(self):
        self.all = []

    def on_add(self, obj, *, initial):
        self.all.append(("add", obj.metadata.name))

    def on_update(self, old, new):
        self.all.append(("update", new.metadata.name))

    def on_delete(self, obj, *, final_state_known):
        self.all.append(("delete", obj.metadata.name))


@pytest.fixture(params=[False, True], ids=["pages", "streaming"])
def informer(request):
    """Five pods, followed with either way of listing; with its world, log and what was heard."""
    world, log, heard = World(), InformerLog(), Heard()
    for number in range(5):
        world.create("pods", make_pod(f"p{number}").build())
    informer = SharedInformer(
        Client(world.transport()),
        Pod,
        WatchOptions(page_limit=2, streaming=request.param, observer=log, rand=lambda: 0.5),
    )
    informer.add_handler(heard)
    return informer, world, log, heard


def names(informer):
    return sorted(pod.metadata.name for pod in informer.store.list())


async def relist(world):
    """Have the watch be lost and the history with it."""
    stall = world.faults.stall(verb="watch")
    world.set_status("pods", "p0", phase="Running")
    world.expire()
    await asyncio.sleep(100)
    stall.lift()
    await asyncio.sleep(1)


ALL = [f"p{number}" for number in range(5)]


@pytest.mark.looptime
async def test_a_list_keeps_the_last_good_version(informer):
    """Neither a watch nor a list takes an object for gone that only does not decode any more."""
    informer, world, log, heard = informer
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        good = informer.store.get(ObjectKey("default", "p2"))
        heard.all.clear()

        world.patch("pods", "p2", UNFIT)
        await asyncio.sleep(1)
        assert names(informer) == ALL
        await relist(world)
        assert len(log.lists) == 2
        assert names(informer) == ALL
        assert any(pod is good for pod in informer.store.list())
        assert heard.all == [("update", "p0")]
        assert set(log.bad) == {("default", "p2")}

        world.patch("pods", "p2", {"spec": {"priority": 5}})
        await asyncio.sleep(1)
        assert heard.all == [("update", "p0"), ("update", "p2")]


@pytest.mark.looptime
async def test_another_object_of_the_name_is_another(informer):
    """The old one is gone, even if the new one cannot be read."""
    informer, world, _, heard = informer
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        heard.all.clear()
        world.faults.stall(verb="watch")
        world.delete("pods", "p2")
        body = make_pod("p2").build()
        body["spec"].update(UNFIT["spec"])
        world.create("pods", body)
        world.expire()
        await asyncio.sleep(100)
        assert names(informer) == ["p0", "p1", "p3", "p4"]
        assert heard.all == [("delete", "p2")]


@pytest.mark.looptime
async def test_an_object_that_never_fitted_is_left_out(informer):
    """The others are there, and the first list is complete without it."""
    informer, world, log, _ = informer
    world.patch("pods", "p2", UNFIT)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        assert names(informer) == ["p0", "p1", "p3", "p4"]
        assert log.bad == [("default", "p2")]


def pod(name, version):
    return Model(Pod).decode(
        b'{"metadata": {"name": "%s", "resourceVersion": "%s"}}' % (name, version)
    )


def test_the_buffer_merges_it_like_any_other():
    """In an object's place of a list, until something newer of the same object comes."""
    lost, new = Unreadable("", "a", "u"), pod(b"a", b"3")
    buffer = CoalescingBuffer()
    buffer.put([ListStarted(), lost, Listed(pod(b"b", b"1")), ListCompleted("2"), Applied(new)])
    events = [buffer.pop() for _ in range(5)]
    assert events[1] is lost
    assert events[4] == Applied(new)


# ---- what the client makes of it

DEEP = b'{"metadata": {"name": "deep", "namespace": "ns", "uid": "u"}, "spec": {"x": %s}}'


def nested(depth, opening=b"[", closing=b"]"):
    return opening * depth + closing * depth


@pytest.mark.parametrize("depth", [5_000, 200_000])
def test_depth_is_a_decoding_error(depth):
    """JSON that is nested too deeply raises what any other unfit JSON raises."""
    with pytest.raises(DecodeError, match="nested too deeply"):
        Model(Pod).decode(DEEP % nested(depth))


def test_depth_in_a_list_costs_that_object_alone():
    """Unless the list as a whole cannot be taken apart: then the list is undecodable."""
    fine = b'{"metadata": {"name": "fine"}}'
    for depth in (900, 2_000):
        body = b'{"metadata": {}, "items": [%s, %s]}' % (fine, DEEP % nested(depth))
        try:
            page = Model(Pod).decode_page(body)
        except DecodeError as error:
            assert "nested too deeply" in str(error)  # noqa: PT017 - either is right, by depth
        else:
            assert page.items[0].metadata.name == "fine"
            assert len(page.items) + len(page.bad) == 2
            for bad in page.bad:
                assert (bad.namespace, bad.name, bad.uid) in {("ns", "deep", "u"), ("", "", "")}


def test_the_error_says_whose_it_is():
    """Identity for logs and caches, as far as it can be read."""
    body = b'{"metadata": {}, "items": [{"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "status": 3}, 7]}'
    known, unknown = Model(Pod).decode_page(body).bad
    assert (known.namespace, known.name, known.uid) == ("ns", "a", "u")
    assert (unknown.namespace, unknown.name, unknown.uid) == ("", "", "")
