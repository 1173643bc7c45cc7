"""Informers with the real client against the fake API server's world, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import Pod
from jobsetpy.client import Client
from jobsetpy.informers import SharedInformer, WatchOptions
from jobsetpy.testing import World, make_pod
from support.informers_kit import PHASES, InformerLog, Replica, running, synced

pytestmark = pytest.mark.looptime


@pytest.fixture
def world():
    """A world with twenty pods."""
    world = World()
    for number in range(20):
        world.create("pods", make_pod(f"p{number}").build())
    return world


@pytest.fixture(params=[False, True], ids=["pages", "streaming"])
def informer(request, world):
    """An informer of the world's pods, with either way of listing."""
    log = InformerLog()
    informer = SharedInformer(
        Client(world.transport()),
        Pod,
        WatchOptions(page_limit=3, streaming=request.param, observer=log, rand=lambda: 0.5),
        indexes=[PHASES],
    )
    informer.log = log
    informer.replica = Replica()
    informer.add_handler(informer.replica)
    return informer


def check(world, informer):
    """The store, its index and the handler's copy all equal the world."""
    expected = {
        pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in world.list("pods")
    }
    stored = informer.store.list()
    assert {pod.metadata.name: pod.metadata.resource_version for pod in stored} == expected
    assert {id(pod) for pod in stored} == {id(pod) for pod in informer.replica.pods.values()}
    phases = informer.store.index_values(PHASES)
    assert len(expected) == sum(informer.store.index_count(PHASES, one) for one in phases)


def disturb(world, round_):
    """Change, delete and create one pod each."""
    world.set_status("pods", f"p{2 * round_}", phase=f"phase-{round_}")
    world.delete("pods", f"p{2 * round_ + 1}")
    world.create("pods", make_pod(f"new-{round_}").build())


async def test_store_equals_the_world_after_faults_of_all_kinds(world, informer):
    """Cuts, ends, errors and expired versions leave the store and its handlers right."""
    async with synced(informer):
        check(world, informer)

        faults = world.faults
        for number, fault in enumerate(
            [
                lambda: faults.cut(verb="watch", after_events=1),
                faults.end_watches,
                lambda: faults.fail_watches(500),
                lambda: faults.fail_watches(429),
            ]
        ):
            fault()
            disturb(world, number)
            await asyncio.sleep(4)
            check(world, informer)
        assert informer.log.relists == []

        faults.status(503, verb="watch", count=2)
        faults.end_watches()
        disturb(world, 7)
        world.expire()
        await asyncio.sleep(10)
        check(world, informer)

        assert len(informer.log.lists) <= 3
        assert informer.healthy()


async def test_silence_is_noticed_and_costs_no_list(world, informer):
    """A stalled watch is replaced within 45 s; a quiet hour needs no list."""
    async with running(informer.run()):
        await asyncio.sleep(100)
        world.faults.stall(verb="watch")
        disturb(world, 0)
        await asyncio.sleep(45.5)
        check(world, informer)

        await asyncio.sleep(3600)
        disturb(world, 3)
        await asyncio.sleep(1)
        check(world, informer)

    assert len(informer.log.lists) == 1
    assert informer.log.ends.count("silence") <= 3
