"""One real node with the project's images and its manager, for all tests of this folder."""

import pytest

from hack.cluster import Cluster
from jobsetpy.client import connect
from support.cluster.install import install_manager
from support.restarts.scenario import build_images, manager_ready


@pytest.fixture(scope="package")
def node_cluster():
    """A cluster with one node; the manager is installed by the first test that needs it."""
    with Cluster(nodes=1, dns=True, images=build_images(), timeout_s=180) as running:
        yield running


@pytest.fixture
async def node_client(node_cluster):
    """A client of the cluster, with the manager installed and ready."""
    client = await connect(kubeconfig=str(node_cluster.kubeconfig))
    await install_manager(client)
    await manager_ready(client)
    yield client
    await client.aclose()
