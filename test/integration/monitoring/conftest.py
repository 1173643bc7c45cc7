"""Finds the tools of hack/ and of the tests."""

import sys
import uuid
from pathlib import Path

import pytest

for folder in ("hack", "test/support"):
    path = str(Path(__file__).resolve().parents[3] / folder)
    if path not in sys.path:
        sys.path.append(path)


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

    name = f"m-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    return name
