"""A real control plane for all tests of this folder, and what most of them need of it."""

import sys
import uuid
from pathlib import Path

import pytest

TEST = Path(__file__).resolve().parents[1]
for folder in (TEST.parent / "hack", TEST / "support"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture(scope="session")
def cluster():
    """One control plane for the session; JOBSETPY_KUBECONFIG names another one to use."""
    from cluster import Cluster

    with Cluster() as running:
        yield running


@pytest.fixture
async def client(cluster):
    """An administrator's client, with the CRD installed."""
    from install import install_crd
    from jobsetpy.client import connect

    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    await install_crd(client)
    yield client
    await client.aclose()


@pytest.fixture
async def namespace(client):
    """A namespace of the test's own."""
    from install import create_namespace

    name = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    return name
