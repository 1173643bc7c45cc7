"""The cache of informers: one for each kind and scope, started and stopped together."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.core import Pod
from jobsetpy.errors import AlreadyStartedError, IndexConflictError
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, InformerCache, Tally

PHASES: Tally[Pod, str, str] = Tally(
    "phases", lambda pod: (pod.metadata.namespace, pod.status.phase)
)


def same(pod):
    return pod


def other(pod):
    return pod


def test_one_informer_for_a_scope(server):
    """The same class and scope give the same informer; later calls add indexes."""
    cache = InformerCache(server)
    first = cache.informer(Pod, indexes=[OWNER_UID])
    second = cache.informer(Pod, indexes=[OWNER_UID, BY_NAMESPACE], tallies=[PHASES])

    assert first is second
    first.store.require(OWNER_UID, BY_NAMESPACE, PHASES)
    assert cache.informer(Pod, namespace="x") is not first
    assert cache.informer(Pod, label_selector="a=b") is not first
    assert cache.informer(Pod, field_selector="a=b") is not first
    assert len(cache) == 4


def test_transforms_must_agree(server):
    """Two users of one scope cannot want different objects."""
    cache = InformerCache(server)
    cache.informer(Pod, transform=same)
    cache.informer(Pod, transform=same)
    cache.informer(Pod)

    with pytest.raises(IndexConflictError):
        cache.informer(Pod, transform=other)


@pytest.mark.looptime
async def test_informers_live_as_long_as_the_block(server):
    """The block starts at once; informers sync inside it, and their watches close after it."""
    cache = InformerCache(server)
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


@pytest.mark.looptime
async def test_nothing_new_after_the_start(server):
    """A new informer after the start is refused; one that is there is given again."""
    cache = InformerCache(server)
    informer = cache.informer(Pod)
    async with cache.running():
        assert informer is cache.informer(Pod)
        with pytest.raises(AlreadyStartedError):
            cache.informer(Pod, namespace="x")
        with pytest.raises(AlreadyStartedError):
            async with cache.running():
                pass


@pytest.mark.looptime
async def test_failure_of_one_ends_the_block(server):
    """A handler that raises ends the block with its exception."""

    class Broken:
        def on_add(self, obj, *, initial):
            raise KeyError("programming error")

        def on_update(self, old, new):
            pass

        def on_delete(self, obj, *, final_state_known):
            pass

    cache = InformerCache(server)
    cache.informer(Pod).add_handler(Broken())
    server.put("a")

    with pytest.raises(KeyError):
        async with cache.running():
            await asyncio.sleep(10)
