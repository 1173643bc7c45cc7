"""Clusters with real nodes, and managers, for the tests of this folder."""

import pytest

from hack.cluster import Cluster
from jobsetpy.client import connect
from support.cluster.install import install_crd, install_manager
from support.cluster.manager_process import ManagerProcess
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


@pytest.fixture
async def manager(two_nodes, tmp_path):
    """Manager process outside the module's cluster, so that no node takes it down; with metrics."""
    client = await connect(kubeconfig=str(two_nodes.kubeconfig))
    await install_crd(client)
    await client.aclose()
    process = ManagerProcess(two_nodes.kubeconfig, tmp_path / "manager.log", metrics=True)
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def client(two_nodes, manager):
    """A client of the module's cluster, whose JobSets that manager serves."""
    made = await connect(kubeconfig=str(two_nodes.kubeconfig))
    yield made
    await made.aclose()
