"""A tenant of Kueue for each test, with simulated nodes."""

import pytest_asyncio

from support.cluster.played_nodes import PlayedNodes
from support.managers import for_fixture
from support.others.kueue_kit import Tenant


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def played(client):
    """Nodes without kubelets."""
    async with for_fixture(PlayedNodes(client).playing()) as nodes:
        yield nodes


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(client, kueue, played):
    """A namespace without a queue."""
    tenant = Tenant(client, played)
    await tenant.open()
    yield tenant
    await tenant.close()
