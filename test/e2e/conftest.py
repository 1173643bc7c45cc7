"""Clusters with real nodes, and managers, for the tests of this folder."""

import pytest

from hack.cluster import Cluster
from hack.images.training import framework_image
from support.cluster.install import connected, install_crd
from support.cluster.manager_process import manager_process
from support.restarts.scenario import build_images, managed


@pytest.fixture(scope="package")
def node_cluster():
    """A cluster with one node; the manager is installed by the first test that needs it."""
    with Cluster(nodes=1, dns=True, images=build_images(), timeout_s=180) as running:
        yield running


@pytest.fixture(scope="package")
def jax_on_node(node_cluster):
    """Name of the framework whose image the node has; containerd takes seconds to unpack it."""
    node_cluster.load_images([framework_image("jax")])
    return "jax"


@pytest.fixture
async def node_client(node_cluster):
    """A client of the cluster, with the manager installed and ready."""
    async with managed(node_cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def manager(two_nodes, tmp_path):
    """Manager process outside the module's cluster, so that no node takes it down; with metrics."""
    async with connected(two_nodes.kubeconfig) as client:
        await install_crd(client)
    log = tmp_path / "manager.log"
    async with manager_process(two_nodes.kubeconfig, log, metrics=True) as process:
        yield process


@pytest.fixture
async def client(two_nodes, manager):
    """A client of the module's cluster, whose JobSets that manager serves."""
    async with connected(two_nodes.kubeconfig) as made:
        yield made
