"""Objects that no longer fit the model: the last good version stays, and they are reported."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import Client
from jobsetpy.client._models import Model
from jobsetpy.errors import DecodeError
from jobsetpy.informers import (
    SharedInformer,
    WatchOptions,
)
from jobsetpy.testing import World, make_pod
from support.informers_kit import HandlerLog, InformerLog, synced

pytestmark = pytest.mark.looptime

UNFIT = {"spec": {"priority": "very high"}}


@pytest.fixture(params=[False, True], ids=["pages", "streaming"])
def informer(request):
    """An informer of five pods, in pages or streaming; with its world, log and handler."""
    world, log, handler = World(), InformerLog(), HandlerLog()
    for number in range(5):
        world.create("pods", make_pod(f"p{number}").build())
    informer = SharedInformer(
        Client(world.transport()),
        Pod,
        WatchOptions(page_limit=2, streaming=request.param, observer=log, rand=lambda: 0.5),
    )
    informer.add_handler(handler)
    return informer, world, log, handler


def names(informer):
    return sorted(pod.metadata.name for pod in informer.store.list())


async def relist(world):
    """Lose the watch and the history."""
    stall = world.faults.stall(verb="watch")
    world.set_status("pods", "p0", phase="Running")
    world.expire()
    await asyncio.sleep(100)
    stall.lift()
    await asyncio.sleep(1)


ALL = [f"p{number}" for number in range(5)]


async def test_a_list_keeps_the_last_good_version(informer):
    """Neither a watch nor a list removes an object that only no longer decodes."""
    informer, world, log, handler = informer
    async with synced(informer):
        good = informer.store.get(ObjectKey("default", "p2"))
        handler.calls.clear()

        world.patch("pods", "p2", UNFIT)
        await asyncio.sleep(1)
        assert names(informer) == ALL
        await relist(world)
        assert len(log.lists) == 2
        assert names(informer) == ALL
        assert any(pod is good for pod in informer.store.list())
        assert handler.calls == [("update", "p0")]
        assert set(log.bad) == {("default", "p2")}

        world.patch("pods", "p2", {"spec": {"priority": 5}})
        await asyncio.sleep(1)
        assert handler.calls == [("update", "p0"), ("update", "p2")]


async def test_an_object_is_deleted_when_an_unreadable_one_has_its_name(informer):
    """The old object is gone, even if the new one cannot be read."""
    informer, world, _, handler = informer
    async with synced(informer):
        handler.calls.clear()
        world.faults.stall(verb="watch")
        world.delete("pods", "p2")
        body = make_pod("p2").build()
        body["spec"].update(UNFIT["spec"])
        world.create("pods", body)
        world.expire()
        await asyncio.sleep(100)
        assert names(informer) == ["p0", "p1", "p3", "p4"]
        assert handler.calls == [("delete", "p2")]


async def test_an_object_that_never_fitted_is_left_out(informer):
    """The other objects are stored, and the first list is complete without it."""
    informer, world, log, _ = informer
    world.patch("pods", "p2", UNFIT)
    async with synced(informer):
        assert names(informer) == ["p0", "p1", "p3", "p4"]
        assert log.bad == [("default", "p2")]


def pod(name, version):
    return Model(Pod).decode(
        b'{"metadata": {"name": "%s", "resourceVersion": "%s"}}' % (name, version)
    )


# ---- decoding in the client

DEEP = b'{"metadata": {"name": "deep", "namespace": "ns", "uid": "u"}, "spec": {"x": %s}}'


def nested(depth, opening=b"[", closing=b"]"):
    return opening * depth + closing * depth


@pytest.mark.parametrize("depth", [5_000, 200_000])
def test_depth_is_a_decoding_error(depth):
    """JSON that is nested too deeply raises the same error as other JSON that does not fit."""
    with pytest.raises(DecodeError, match="nested too deeply"):
        Model(Pod).decode(DEEP % nested(depth))


async def test_only_one_object_is_unreadable_when_it_is_nested_too_deeply():
    """If the list as a whole cannot be split into objects, the list is undecodable."""
    fine = b'{"metadata": {"name": "fine"}}'
    for depth in (900, 2_000):
        body = b'{"metadata": {}, "items": [%s, %s]}' % (fine, DEEP % nested(depth))
        try:
            page = await Model(Pod).decode_page(body)
        except DecodeError as error:
            assert "nested too deeply" in str(error)  # noqa: PT017 - either is right, by depth
        else:
            assert page.items[0].metadata.name == "fine"
            assert len(page.items) + len(page.bad) == 2
            for bad in page.bad:
                assert (bad.namespace, bad.name, bad.uid) in {("ns", "deep", "u"), ("", "", "")}


async def test_the_error_names_its_object():
    """The error has the object's identity for logs and caches, as far as it can be read."""
    body = b'{"metadata": {}, "items": [{"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "status": 3}, 7]}'
    known, unknown = (await Model(Pod).decode_page(body)).bad
    assert (known.namespace, known.name, known.uid) == ("ns", "a", "u")
    assert (unknown.namespace, unknown.name, unknown.uid) == ("", "", "")
