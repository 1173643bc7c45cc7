"""Shards of a collection (KEP-5866) on a real API server with the feature gate."""

from __future__ import annotations

import pytest

from hack.cluster import Cluster
from jobsetpy.aio import supervise
from jobsetpy.api.core import ConfigMap
from jobsetpy.informers import Shard, SharedInformer, WatchOptions
from support import patience
from support.cluster.install import connected, create_namespace
from support.informers_kit import InformerLog

pytestmark = pytest.mark.cluster
NAMESPACES = ("default", "training", "inference", "vision", "speech", "search")


@pytest.fixture(scope="module")
def gated():
    """A control plane whose API server has the feature gate."""
    gate = ["--feature-gates=ShardedListAndWatch=true"]
    with Cluster(apiserver_args=gate, controller_manager=False, scheduler=False) as cluster:
        yield cluster


@pytest.fixture
async def client(gated):
    """An administrator's client of the control plane."""
    async with connected(gated.kubeconfig, qps=0) as client:
        yield client


@pytest.mark.parametrize("by", ["namespace", "uid"])
async def test_api_server_sends_each_object_to_one_of_two_shards(client, by):
    """Each object is listed and watched by one half, and by the one that we would choose."""

    def config_map(name):
        return {"metadata": {"name": f"{name}-{by}", "labels": {"share": by}}}

    for name in NAMESPACES:
        await create_namespace(client, name)
        await client.create(ConfigMap, name, config_map("listed"))
    logs = [InformerLog(), InformerLog()]
    shards = [Shard(index, 2, by) for index in range(2)]
    halves = [
        SharedInformer(
            client,
            ConfigMap,
            WatchOptions(label_selector=f"share={by}", shard=shard, observer=observer),
        )
        for shard, observer in zip(shards, logs, strict=True)
    ]
    async with supervise() as tasks:
        running = [tasks.start(half.run(), name="half") for half in halves]
        for half in halves:
            await half.wait_for_sync()
        for name in NAMESPACES:
            await client.create(ConfigMap, name, config_map("watched"))
        total = 2 * len(NAMESPACES)
        await patience.eventually(lambda: sum(len(half.store) for half in halves) == total)
        found = [{each.metadata.key for each in half.store.list()} for half in halves]
        for shard, half in zip(shards, halves, strict=True):
            assert all(shard.holds(each.metadata) for each in half.store.list())
        for task in running:
            task.cancel()

    assert len(found[0] | found[1]) == total
    assert [each.shards for each in logs] == [[True], [True]]
    # If the server had sent all objects, each half would have received all.
    assert sum(each.events.count("ADDED") for each in logs) == len(NAMESPACES)
