"""A real control plane for all tests of this folder, with clients and namespaces."""

import asyncio
import contextlib
import uuid
from pathlib import Path

import pytest

from hack.cluster import Cluster
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.unstructured import unstructured
from jobsetpy.errors import NotFoundError
from support.cluster.install import connected, create_namespace, install_crd

TEST = Path(__file__).resolve().parents[1]
_running: list[Cluster] = []
"""The session's cluster, if a test needed it."""


@pytest.fixture(scope="session")
def cluster():
    """One control plane for the session; JOBSETPY_KUBECONFIG selects an existing one instead."""
    with Cluster() as running:
        _running.append(running)
        yield running
        _running.clear()


@pytest.fixture(scope="module", autouse=True)
def no_jobsets_left():
    """Delete the module's JobSets: managers of later modules would work on them needlessly.

    Modules that run in one process share its cluster, and some count a manager's requests.
    """
    yield
    for cluster in _running:
        if not cluster.is_existing:
            asyncio.run(_delete_jobsets(cluster))


async def _delete_jobsets(cluster) -> None:
    kind = unstructured(JobSet.RESOURCE)  # some have a form that the manager does not read
    async with connected(cluster.kubeconfig) as client:
        with contextlib.suppress(NotFoundError):  # without the CRD
            left = await client.list_page(kind)
            for each in left.items:
                with contextlib.suppress(NotFoundError):
                    await client.delete(kind, each.metadata.namespace, each.metadata.name)


@pytest.fixture
async def client(cluster):
    """An administrator's client, with the CRD installed."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        yield client


@pytest.fixture
async def namespace(client):
    """A namespace of the test's own."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    return name
