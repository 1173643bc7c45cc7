"""Reports of epochs in place of a group's agents."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.client import Client
from support.patience import eventually


async def pod_names(
    client: Client, namespace: str, count: int, timeout_s: float = 60.0
) -> list[str]:
    """Wait for this number of pods in a namespace; return their names."""

    async def found() -> list[str]:
        page = await client.list_page(ChildPod, namespace)
        return [pod.metadata.name for pod in page.items] if len(page.items) == count else []

    return await eventually(found, timeout_s, poll_s=0.1)


async def report_epoch(client: Client, namespace: str, epoch: int, *pods: str) -> None:
    """Report an epoch for pods, in this order."""
    body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
    for pod in pods:
        await client.merge_patch(ChildPod, namespace, pod, body)
