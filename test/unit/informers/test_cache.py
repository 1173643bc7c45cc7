"""The cache of informers: one for each kind and scope, started and stopped together."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import Pod
from jobsetpy.errors import AlreadyStartedError, IndexConflictError
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, InformerCache
from support.informers_kit import PHASES, HandlerLog

pytestmark = pytest.mark.looptime


def same(pod):
    return pod


def other(pod):
    return pod


@pytest.fixture
def cache(server):
    """A cache of the server without informers."""
    return InformerCache(server)


def test_informers_of_one_scope_are_shared(cache):
    """The same class and scope give the same informer; later calls add indexes."""
    first = cache.informer(Pod, indexes=[OWNER_UID])
    second = cache.informer(Pod, indexes=[OWNER_UID, BY_NAMESPACE, PHASES])

    assert first is second
    first.store.require(OWNER_UID, BY_NAMESPACE, PHASES)
    assert cache.informer(Pod, namespace="x") is not first
    assert cache.informer(Pod, label_selector="a=b") is not first
    assert cache.informer(Pod, field_selector="a=b") is not first
    assert len(cache) == 4


def test_a_second_transform_of_a_scope_is_refused(cache):
    """Two users of one scope cannot have different transforms."""
    cache.informer(Pod, transform=same)
    cache.informer(Pod, transform=same)
    cache.informer(Pod)

    with pytest.raises(IndexConflictError):
        cache.informer(Pod, transform=other)


async def test_informers_live_as_long_as_the_block(server, cache):
    """The block starts immediately; informers sync inside it, and their watches close after it."""
    store = cache.informer(Pod).store
    server.put("a")
    async with cache.running():
        assert not cache.has_synced
        assert cache.healthy() == ["Pod"]
        await cache.wait_for_sync()
        assert cache.has_synced
        await asyncio.sleep(1)
        assert cache.healthy() == []
        assert cache.healthy(now=asyncio.get_running_loop().time() + 100) == ["Pod"]
        assert len(store.list()) == 1

    assert server.open_streams == []


async def test_a_new_informer_is_refused_after_the_start(cache):
    """After the start the cache returns existing informers and refuses new ones."""
    informer = cache.informer(Pod)
    async with cache.running():
        assert informer is cache.informer(Pod)
        with pytest.raises(AlreadyStartedError):
            cache.informer(Pod, namespace="x")
        with pytest.raises(AlreadyStartedError):
            async with cache.running():
                pass


async def test_the_block_ends_when_one_informer_fails(server):
    """A handler that raises ends the block with its exception."""

    class Broken(HandlerLog):
        def on_add(self, obj, *, initial):
            raise KeyError("programming error")

    cache = InformerCache(server)
    cache.informer(Pod).add_handler(Broken())
    server.put("a")

    with pytest.raises(KeyError):
        async with cache.running():
            await asyncio.sleep(10)
