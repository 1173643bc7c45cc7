"""Pods of a JobSet's Jobs without a Job controller, thousands in seconds."""

from __future__ import annotations

import asyncio

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.client import Client
from support import patience

POD_SPEC = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "containers": [{"name": "worker", "image": "test.invalid/worker:1"}],
}


async def make_pods(client: Client, namespace: str, jobs: int, per_job: int) -> list[str]:
    """Wait for the Jobs, then create their pods; return the pods' names."""
    async with patience.timeout(60):
        while len(found := (await client.list_page(Job, namespace)).items) < jobs:  # noqa: ASYNC110 - a manager creates them
            await asyncio.sleep(0.1)
    bodies = []
    for job in found:
        meta = job.metadata
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "uid": meta.uid,
            "controller": True,
        }  # fmt: skip
        bodies += [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{meta.name}-{index}",
                    "labels": dict(meta.labels),
                    "ownerReferences": [owner],
                },
                "spec": POD_SPEC,
            }
            for index in range(per_job)
        ]
    todo = iter(bodies)

    async def worker() -> None:
        for body in todo:
            await client.create(ChildPod, namespace, body)

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(worker())
    return [body["metadata"]["name"] for body in bodies]
