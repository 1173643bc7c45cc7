"""A training with seats and spares in real pods."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.agents.training_kit import NAMESPACE, Training, manifest
from support.cluster.json_api import exists
from support.cluster.processes import pod_host_name
from support.restarts.scenario import install_agents

SEATS = 2


class Group:
    """A JobSet of two seats, with its ranks and its status."""

    def __init__(self, client, name, training):
        self.client = client
        self.name = name
        self.training = training

    async def record(self):
        """Return the status of its restarts in place."""
        jobset = await self.client.get(JobSet, NAMESPACE, self.name)
        return jobset.status.in_place_restart

    async def seats(self):
        """Return the holders of taken seats by seat."""
        return {one.seat: one.pod for one in (await self.record()).taken_seats}

    async def ready_spares(self, count):
        """Wait until the status has a number of ready spares; return the status."""
        async with patience.timeout(120):
            while (found := await self.record()) is None or found.ready_spares != count:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        return found

    async def pod_of(self, host):
        """Return the name of the pod with a host name that is not being deleted."""
        pods = (await self.client.list_page(Pod, NAMESPACE)).items
        (found,) = [
            each.metadata.name
            for each in pods
            if pod_host_name(each) == host and each.metadata.deletion_timestamp is None
        ]
        return found


@asynccontextmanager
async def running(
    client, name, framework, folder, spares, *, spread=False, notes=(), whole_jobs=False
):
    """Run a training with spares until its ranks step and its spares are ready; delete it at the end.

    ``notes`` are further annotations; with ``spread`` its pods are on as many nodes as possible;
    with ``whole_jobs`` the spares are Jobs, each of as many pods as the training has seats.
    """
    await install_agents(client)
    training = Training(folder, SEATS)
    mode = "list" if whole_jobs else f"spare-{spares}"
    body = manifest(name, framework, mode, SEATS, folder, spread=spread)
    body["metadata"]["annotations"].update(notes)
    if whole_jobs:
        body["metadata"]["annotations"][keys.IN_PLACE_SPARE_JOBS_ANNOTATION] = str(spares)
        body["spec"]["replicatedJobs"][0]["replicas"] = 1 + spares
    await client.create(JobSet, NAMESPACE, body)
    try:
        await training.stepping(0, 120)
        group = Group(client, name, training)
        await group.ready_spares(spares * SEATS if whole_jobs else spares)
        yield group
    finally:
        await client.delete(JobSet, NAMESPACE, name, propagation="Foreground")
        await gone(client, name)


async def gone(client, name):
    """Wait until the JobSet and its pods are deleted."""

    async def deleted():
        return not await exists(client, JobSet.RESOURCE.path(NAMESPACE, name))

    await patience.eventually(deleted, 120, poll_s=0.1)
