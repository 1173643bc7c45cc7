"""One informer of several namespaces: a list and a watch for each, one store, one set of handlers."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import Node, Pod
from jobsetpy.client import Client
from jobsetpy.informers import InformerCache, SharedInformer, WatchOptions
from jobsetpy.testing import World, make_pod
from support.informers_kit import Replica, running, synced

pytestmark = pytest.mark.looptime


@pytest.fixture
def world():
    """A world with a pod in each of three namespaces."""
    world = World()
    for namespace in ("a", "b", "c"):
        world.add_namespace(namespace)
        world.create("pods", make_pod("p", namespace).build())
    return world


@pytest.fixture
def informer(world):
    """An informer of the pods of two of them, with a handler."""
    client = Client(world.transport())
    options = WatchOptions(rand=lambda: 0.5)
    informer = SharedInformer(client, Pod, options, namespaces=["b", "a", "b"])
    informer.replica = Replica()
    informer.add_handler(informer.replica)
    return informer


def stored(informer):
    return {str(pod.metadata.key) for pod in informer.store.list()}


async def test_changes_of_each_namespace_and_of_no_other(world, informer):
    """Both namespaces are listed and watched; objects of a third one are not seen."""
    async with synced(informer):
        assert stored(informer) == informer.replica.names == {"a/p", "b/p"}
        assert informer.replica.initial == {"a/p", "b/p"}

        world.create("pods", make_pod("late", "b").build())
        world.delete("pods", "p", namespace="a")
        world.create("pods", make_pod("other", "c").build())
        await asyncio.sleep(1)
        assert stored(informer) == informer.replica.names == {"b/p", "b/late"}
        assert informer.healthy()


async def test_a_new_list_of_one_namespace_leaves_the_others(world, informer):
    """Objects missing in a list are deleted in that list's namespace only."""
    async with synced(informer):
        world.faults.stall(verb="watch", namespace="a")
        world.delete("pods", "p", namespace="a")
        world.create("pods", make_pod("next", "a").build())
        world.expire()
        await asyncio.sleep(46)

        assert stored(informer) == informer.replica.names == {"a/next", "b/p"}


async def test_handlers_are_called_when_all_namespaces_are_listed(world, informer):
    """The store is synced, and handlers are called, once the last namespace is listed."""
    refused = world.faults.status(403, verb="list", namespace="b")
    async with running(informer.run()):
        await asyncio.sleep(5)
        assert not informer.store.has_synced
        assert not informer.replica.pods
        assert "Role in namespace b bound" in informer.waits_for

        early = Replica()
        informer.add_handler(early)
        refused.lift()
        await informer.wait_for_sync()
        late = Replica()
        assert informer.add_handler(late).has_synced
        assert informer.replica.names == early.names == late.names == {"a/p", "b/p"}


async def test_informer_is_not_healthy_when_one_watch_is_silent(world, informer):
    """Health is that of the worst watch."""
    async with synced(informer):
        world.faults.stall(verb="watch", namespace="a")
        world.faults.status(503, namespace="a")
        await asyncio.sleep(70)
        assert not informer.healthy()


def test_namespaces_of_a_cache(world):
    """Informers default to the cache's namespaces; cluster-scoped kinds are watched as a whole."""
    cache = InformerCache(Client(world.transport()), namespaces=["b", "a"])
    assert cache.informer(Pod) is cache.informer(Pod, namespaces=["a", "b"])
    assert cache.informer(Pod) is not cache.informer(Pod, namespace="a")
    assert cache.informer(Pod, namespace="a") is cache.informer(Pod, namespaces=["a"])
    assert cache.informer(Node) is cache.informer(Node)
    with pytest.raises(ValueError, match="a Node is in no namespace: a"):
        cache.informer(Node, namespace="a")
