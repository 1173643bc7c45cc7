"""A real control plane for all tests of this folder, and what most of them need of it."""

import uuid
from pathlib import Path

import pytest

from hack.cluster import Cluster
from jobsetpy.client import connect
from support.cluster.install import create_namespace, install_crd

TEST = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def cluster():
    """One control plane for the session; JOBSETPY_KUBECONFIG names another one to use."""
    with Cluster() as running:
        yield running


@pytest.fixture
async def client(cluster):
    """An administrator's client, with the CRD installed."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    await install_crd(client)
    yield client
    await client.aclose()


@pytest.fixture
async def namespace(client):
    """A namespace of the test's own."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    return name
