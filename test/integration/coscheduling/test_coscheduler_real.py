"""The coscheduler's engine and extender beside a real kube-scheduler: the deadlock, and its end."""

import asyncio
import sys
from pathlib import Path

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.core import Node
from jobsetpy.client import HttpRequest, connect
from jobsetpy.coscheduler._engine import Engine
from jobsetpy.coscheduler._pods import GroupPod
from jobsetpy.coscheduler._server import serving
from jobsetpy.domain.coscheduling import PodGroupKey
from jobsetpy.manager import Manager
from jobsetpy.testing import eventually

HACK = str(Path(__file__).resolve().parents[3] / "hack")
if HACK not in sys.path:
    sys.path.append(HACK)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]

SIZE, ROOM = 10, 12


async def make_node(client):
    """A node without a kubelet, with room for so many pods of one CPU."""
    room = {"cpu": str(ROOM), "memory": "64Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    await client.create(Node, "", body)
    status = {"capacity": room, "allocatable": room, "conditions": conditions}
    await client.merge_patch(Node, "", "n", {"status": status}, subresource="status")


async def make_pods(client, *groups, plain=False):
    """Pods of groups, made in turn so that they interleave; plain ones have neither label nor gate."""
    for index in range(SIZE):
        for group in groups:
            labels = {keys.POD_GROUP_NAME: group, keys.POD_GROUP_MIN_AVAILABLE: str(SIZE)}
            container = {
                "name": "w",
                "image": "test.invalid/w:1",
                "resources": {"requests": {"cpu": "1"}},
            }
            spec = {
                "containers": [container],
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "schedulingGates": [] if plain else [{"name": keys.COSCHEDULING_GATE}],
            }
            labels = {"set": group} | ({} if plain else labels)
            metadata = {"name": f"{group}-{index}", "labels": labels}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await client.create(GroupPod, "default", body)


async def bound(client, *groups):
    """How many pods of each group have a node."""
    page = await client.list_page(GroupPod, "default")
    names = [pod.metadata.name.partition("-")[0] for pod in page.items if pod.spec.node_name]
    return [names.count(group) for group in groups]


async def delete(client, *groups):
    """Delete pods of groups at once."""
    for group in groups:
        await client.raw(
            HttpRequest(
                method="DELETE",
                path="/api/v1/namespaces/default/pods",
                query=(
                    ("labelSelector", f"set={group}"),
                    ("gracePeriodSeconds", "0"),
                ),
            )
        )


async def until(client, groups, wanted, limit_s=30.0):
    """Wait until so many pods of each are bound."""

    async def there():
        return await bound(client, *groups) == wanted

    await eventually(there, limit_s, poll_s=0.2)


async def test_two_groups_that_do_not_fit_together():
    """One is bound as a whole, then the other; as plain pods, they share the room and are stuck."""
    from cluster import Cluster
    from manager_process import free_port

    port = free_port()
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "httpTimeout": "90s",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    config = {"extenders": [extender], "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
    with Cluster(scheduler_config=config) as running:
        if running.is_existing:
            pytest.skip("its scheduler has no extender")
        client = await connect(kubeconfig=str(running.kubeconfig), qps=0)
        await make_node(client)
        engine = Engine(client)
        manager = Manager(client)
        manager.informer(GroupPod, label_selector=keys.POD_GROUP_NAME).add_handler(engine)
        stop = asyncio.Event()
        async with aio.supervise() as tasks, serving(engine, "127.0.0.1", port, None):
            serving_pods = tasks.start(manager.run(stop), name="manager")
            await manager.ready.wait()
            writing = tasks.start(engine.run(), name="engine")

            await make_pods(client, "a", "b")
            first = "a" if (await _winner(client)) == "a" else "b"
            second = "b" if first == "a" else "a"
            key = PodGroupKey("default", second)
            await eventually(lambda: engine.planner.standing(key).failures > 1, 30.0, poll_s=0.2)
            assert await bound(client, first, second) == [SIZE, 0]
            await delete(client, first)
            await until(client, [second], [SIZE])
            await delete(client, second)

            await make_pods(client, "c", "d", plain=True)
            await eventually(lambda: _is_full(client), 30.0, poll_s=0.2)
            assert max(await bound(client, "c", "d")) < SIZE

            stop.set()
            await serving_pods
            writing.cancel()
        await client.aclose()


async def _is_full(client):
    """Whether plain pods have taken all the room."""
    return sum(await bound(client, "c", "d")) == ROOM


async def _winner(client):
    """The group that is bound first, as a whole."""

    async def there():
        counts = await bound(client, "a", "b")
        return "a" if counts[0] == SIZE else "b" if counts[1] == SIZE else None

    return await eventually(there, 30.0, poll_s=0.2)
