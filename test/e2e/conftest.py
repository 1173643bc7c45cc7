"""One real node with the project's images and its manager, for all tests of this folder."""

import sys
from pathlib import Path

import pytest

HACK = str(Path(__file__).resolve().parents[2] / "hack")
if HACK not in sys.path:
    sys.path.append(HACK)


@pytest.fixture(scope="session")
def node_cluster():
    """A cluster with one node; the manager is installed by the first test that needs it."""
    from cluster import Cluster
    from scenario import build_images

    with Cluster(nodes=1, dns=True, images=build_images(), timeout_s=180) as running:
        yield running


@pytest.fixture
async def node_client(node_cluster):
    """A client of the cluster, with the manager installed and ready."""
    from install import install_manager
    from jobsetpy.client import connect
    from scenario import manager_ready

    client = await connect(kubeconfig=str(node_cluster.kubeconfig))
    await install_manager(client)
    await manager_ready(client)
    yield client
    await client.aclose()
