"""Nodes without kubelets: racks for the scheduler, and a played kubelet.

Pods on such nodes are bound and never run, which is enough for tests and measurements of placement.
Pods must tolerate every taint, since racks are never ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.core import Node, Pod
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import ApiError
from support.cluster import pod_status
from support.cluster.follow import following
from support.cluster.json_api import send
from support.cluster.objects import jobset, replicated_job

_CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110"}


async def make_rack(client: Client, name: str, *, key: str, nodes: int = 2, pool: str = "") -> None:
    """Create the nodes of a rack.

    Args:
        client: an administrator's.
        name: of the rack, the value of its nodes' label, and the first part of their names.
        key: label with the names of racks.
        nodes: their number.
        pool: value of the label ``pool``.
    """
    for number in range(nodes):
        labels = {key: name, "pool": pool}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{name}-{number}", "labels": labels},
            "status": {"capacity": _CAPACITY, "allocatable": _CAPACITY},
        }
        await client.create(Node, "", body)


async def make_node(
    client: Client,
    name: str,
    cpu: int,
    *,
    memory: str = "640Gi",
    taints: Sequence[Mapping[str, str]] = (),
    **labels: str,
) -> None:
    """Create a ready node with capacity for a number of pods of one CPU."""
    meta, spec = {"name": name, "labels": labels}, {"taints": list(taints)}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
    await client.create(Node, "", body)
    capacity = {"cpu": str(cpu), "memory": memory, "pods": str(max(110, cpu))}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    await client.merge_patch(Node, "", name, {"status": status}, subresource="status")


def exclusive_jobset(
    name: str,
    *,
    key: str,
    pool: str,
    jobs: int,
    pods: int,
    job_spec: dict[str, Any] | None = None,
    pod_spec: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a JobSet with exclusive placement, for racks of one pool.

    Args:
        name: of the JobSet.
        key: label with the names of racks.
        pool: of the nodes.
        jobs: number of Jobs.
        pods: number of pods of each Job.
        job_spec, pod_spec: fields that replace the defaults.
        annotations: of the JobSet, in addition to that of the placement.
        spec: further fields of the JobSet.
    """
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"pool": pool},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "test.invalid/c:1"}],
        **(pod_spec or {}),
    }
    job = {"completionMode": "Indexed", **(job_spec or {})}
    marks = {keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: key, **(annotations or {})}
    return jobset(name, replicated_job(pod, pods, replicas=jobs, **job), annotations=marks, **spec)


@contextlib.asynccontextmanager
async def kubelets(client: Client) -> AsyncIterator[None]:
    """Within the block, fail and delete pods of JobSets that are being deleted."""
    ending: set[str] = set()
    news: asyncio.Queue[Pod] = asyncio.Queue()

    def note(pod: Pod, gone: bool) -> None:
        meta = pod.metadata
        if not gone and meta.deletion_timestamp is not None and meta.uid not in ending:
            ending.add(meta.uid)
            news.put_nowait(pod)

    async def work() -> None:
        while True:
            pod = await news.get()
            with contextlib.suppress(ApiError):
                if pod.status.phase not in {"Failed", "Succeeded"}:
                    await set_phase(client, pod.metadata.namespace, pod.metadata.name, "Failed")
                await kill(client, pod.metadata.namespace, pod.metadata.name)

    async with (
        aio.supervise() as tasks,
        following(client, Pod, note, label_selector=keys.JOBSET_NAME),
    ):
        tasks.start(work(), name="kubelets")
        yield


async def set_phase(client: Client, namespace: str, name: str, phase: str) -> None:
    """Let a pod run, succeed or fail."""
    status: dict[str, Any] = {"phase": phase}
    if phase in {"Failed", "Succeeded"}:
        status = pod_status.ended(int(phase == "Failed"), "c")
        del status["conditions"]  # DisruptionTarget remains, which pod failure policies read
    await client.merge_patch(Pod, namespace, name, {"status": status}, subresource="status")


async def kill(client: Client, namespace: str, name: str) -> None:
    """Delete a pod without grace."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    await send(client, "DELETE", Pod.RESOURCE.path(namespace, name), options)


async def webhook_rejections(client: Client, *webhooks: str) -> float:
    """Return the number of requests that these webhooks refused or failed to answer."""
    answer = await client.raw(HttpRequest(method="GET", path="/metrics"))
    total = 0.0
    for line in answer.body.decode().splitlines():
        if line.startswith("apiserver_admission_webhook_rejection_count{") and any(
            f'name="{webhook}"' in line for webhook in webhooks
        ):
            total += float(line.rpartition(" ")[2])
    return total
