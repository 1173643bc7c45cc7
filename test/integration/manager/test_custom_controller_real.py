"""The example controller of the documentation, against a real API server."""

import asyncio

import pytest

from examples import failed_pod_counter
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.manager import Manager
from support import patience

pytestmark = pytest.mark.cluster


def job(name: str) -> dict:
    container = {"name": "main", "image": "test.invalid/main:1"}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 3, "template": {"spec": spec}},
    }


async def pod_of(client, namespace: str) -> Pod:
    """Return the Job's pod once the Job controller has created it."""

    async def made() -> list[Pod]:
        return (await client.list_page(Pod, namespace)).items

    return (await patience.eventually(made, 60, poll_s=0.1))[0]


async def labelled(client, namespace: str, name: str, value: str) -> None:
    """Wait until the Job's label has this value."""

    async def has_value() -> bool:
        found = await client.get(Job, namespace, name)
        return found.metadata.labels.get("example.com/failed-pods", "") == value

    await patience.eventually(has_value, 60, poll_s=0.1)


async def test_example_counts_failed_pods(client, namespace):
    """The 25-line controller labels a Job, and updates the label when one of its pods fails."""
    manager = Manager(client)
    failed_pod_counter.setup(manager)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await client.create(Job, namespace, job("counted"))

        await labelled(client, namespace, "counted", "0")
        pod = await pod_of(client, namespace)
        failed = {"status": {"phase": "Failed"}}
        await client.merge_patch(Pod, namespace, pod.metadata.name, failed, subresource="status")

        await labelled(client, namespace, "counted", "1")
        stop.set()
