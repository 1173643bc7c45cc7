"""A training with seats and spares in real pods."""

from __future__ import annotations

from contextlib import asynccontextmanager

from hack.cluster import Cluster
from hack.images.training import PLAIN, framework_image
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from support.agents.training_kit import NAMESPACE, Training, cordon, manifest
from support.cluster.install import connected, install_manager
from support.cluster.json_api import StoredJobSet
from support.cluster.processes import pod_host_name
from support.restarts.scenario import build_images, install_agents, manager_ready

SEATS = 2
LOST = "node-2"
"""Node that takes a single pod, for tests that lose it."""


def training_nodes() -> Cluster:
    """Return a cluster with two nodes, of which ``LOST`` takes a single pod; for `PLAIN`."""
    images = [*build_images(), framework_image(PLAIN)]
    config = {LOST: {"maxPods": 1}}
    return Cluster(nodes=2, dns=True, images=images, kubelet_config=config, timeout_s=240)


@asynccontextmanager
async def managed_training_nodes(cluster: Cluster):
    """Yield a client of that cluster, with a manager on the node that stays."""
    async with connected(cluster.kubeconfig) as client:
        await cordon(client, LOST, cordoned=True)
        await install_manager(client)
        await manager_ready(client)
        await cordon(client, LOST, cordoned=False)
        yield client


class Group(StoredJobSet):
    """A JobSet of two seats, with its ranks and its status."""

    def __init__(self, client, name, training):
        super().__init__(client, NAMESPACE, name)
        self.training = training

    async def record(self):
        """Return the status of its restarts in place."""
        return (await self.jobset()).status.in_place_restart

    async def seats(self):
        """Return the holders of taken seats by seat."""
        return {one.seat: one.pod for one in (await self.record()).taken_seats}

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
    group = Group(client, name, training)
    async with group.living(body):
        await training.stepping(0, 120)
        await group.reaches_spares(spares * SEATS if whole_jobs else spares)
        yield group
