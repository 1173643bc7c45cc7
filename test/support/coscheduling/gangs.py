"""Gangs of pods on nodes without kubelets, and times of their binds, for tests and benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from hack.cluster import Cluster
from jobsetpy.api import keys
from jobsetpy.client import Client
from jobsetpy.coscheduler.engine.pods import GroupPod
from support import patience
from support.cluster.follow import following
from support.cluster.json_api import send
from support.cluster.racks import make_node as make_node

NAMESPACE = "default"
SET = "gangs.example/set"


def scheduler_config(url: str = "", **fields: Any) -> dict[str, Any]:
    """Return the configuration of a scheduler with an extender at ``url``, or without one."""
    if not url:
        return dict(fields)
    extender = {
        "urlPrefix": url,
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "httpTimeout": "15m",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    return {"extenders": [extender], **fields}


def set_scheduler(cluster: Cluster, config: Mapping[str, Any], *, start: bool = True) -> None:
    """Restart the scheduler with other fields in its configuration.

    Args:
        cluster: the test's own.
        config: fields that replace those for plugins and extenders.
        start: ``False`` to leave it stopped.
    """
    path = cluster.folder / "scheduler.json"
    before = json.loads(path.read_text())
    kept = {
        name: before[name] for name in ("apiVersion", "kind", "leaderElection", "clientConnection")
    }
    cluster.stop_component("kube-scheduler")
    path.write_text(json.dumps({**kept, **config}))
    if start:
        cluster.start_component("kube-scheduler")


def pod_body(
    name: str,
    *,
    group: str = "",
    minimum: int = 0,
    cpu: str = "1",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod; with a minimum it is of the gang."""
    marks = {SET: group} if group else {}
    if minimum:
        marks |= {keys.POD_GROUP_NAME: group, keys.POD_GROUP_MIN_AVAILABLE: str(minimum)}
    container = {
        "name": "w",
        "image": "test.invalid/w:1",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": marks | dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "containers": [container],
            # No kubelet removes these taints or ends a pod.
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


async def create_all(
    client: Client, bodies: Iterable[Mapping[str, Any]], *, namespace: str = NAMESPACE,
    at_once: int = 16,
) -> None:  # fmt: skip
    """Create pods in this order, some of them concurrently."""
    todo = iter(bodies)

    async def worker() -> None:
        for body in todo:
            await client.create(GroupPod, namespace, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())


async def delete_all(client: Client, group: str = "", *, namespace: str = NAMESPACE) -> None:
    """Delete all pods, or those of a gang, with one request."""
    query = (("gracePeriodSeconds", "0"),)
    if group:
        query += (("labelSelector", f"{SET}={group}"),)
    path = f"/api/v1/namespaces/{namespace}/pods"
    await send(client, "DELETE", path, query=query, timeout_s=patience.scaled(60))


class Binds:
    """Pods by gang, as a watch shows them, and the times of their binds."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.group: dict[str, str] = {}
        self.ever = 0
        self.news = patience.News()

    @contextlib.asynccontextmanager
    async def watching(self, client: Client) -> AsyncIterator[Binds]:
        """Watch pods within the block."""
        async with following(client, GroupPod, self._note, namespace=NAMESPACE):
            yield self

    def _note(self, pod: GroupPod, gone: bool) -> None:
        name = pod.metadata.name
        if gone or pod.metadata.deletion_timestamp is not None:
            for known in (self.there, self.bound, self.nodes):
                known.pop(name, None)
        else:
            now = time.monotonic()
            self.there[name] = pod.metadata.uid
            self.group[name] = name.rpartition("-")[0]
            if pod.spec.node_name and name not in self.bound:
                self.bound[name] = now
                self.nodes[name] = pod.spec.node_name
                self.ever += 1
        self.news.set()

    def of(self, group: str) -> list[float]:
        """Return the times at which the pods of a gang were bound."""
        return [at for name, at in self.bound.items() if self.group[name] == group]

    def counts(self, *groups: str) -> list[int]:
        """Return the number of bound pods of each gang."""
        return [len(self.of(group)) for group in groups]

    async def wait(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Wait until a condition of the watched pods holds."""
        try:
            await self.news.until(condition, limit_s)
        except TimeoutError:
            groups = sorted({self.group[name] for name in self.there})
            shown = {group: self.counts(group)[0] for group in groups}
            raise TimeoutError(f"not in {limit_s:.0f} s; bound: {shown}") from None
