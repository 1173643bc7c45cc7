"""The example controller of the documentation, against a real API server."""

import asyncio

import pytest

from examples import failed_pod_counter
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.manager import Manager

TRIES = 600

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
    """The Job's pod; the Job controller makes it some time after the Job."""
    for _ in range(TRIES):
        if found := (await client.list_page(Pod, namespace)).items:
            return found[0]
        await asyncio.sleep(0.1)
    pytest.fail("the Job controller made no pod in a minute")


async def label_of(client, namespace: str, name: str, value: str) -> str:
    """The label's value, waiting up to a minute for it to be ``value``."""
    label = ""
    for _ in range(TRIES):
        found = await client.get(Job, namespace, name)
        label = found.metadata.labels.get("example.com/failed-pods", "")
        if label == value:
            break
        await asyncio.sleep(0.1)
    return label


async def test_the_example_counts_failed_pods(client, namespace):
    """The 25-line controller labels a Job, and follows when one of its pods fails."""
    manager = Manager(client)
    failed_pod_counter.setup(manager)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await client.create(Job, namespace, job("counted"))

        assert await label_of(client, namespace, "counted", "0") == "0"
        pod = await pod_of(client, namespace)
        failed = {"status": {"phase": "Failed"}}
        await client.merge_patch(Pod, namespace, pod.metadata.name, failed, subresource="status")

        assert await label_of(client, namespace, "counted", "1") == "1"
        stop.set()
