"""A tenant of Kueue for each test, with simulated nodes."""

import asyncio

import pytest_asyncio

from support.cluster.played_nodes import PlayedNodes
from support.others.kueue_kit import Tenant


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def played(client):
    """Nodes without kubelets."""
    nodes, ready, stop = PlayedNodes(client), asyncio.Event(), asyncio.Event()

    # Fixtures are set up and torn down by different tasks, so a task group cannot hold this one.
    async def play():
        async with nodes.playing():
            ready.set()
            await stop.wait()

    playing = asyncio.create_task(play())
    await ready.wait()
    yield nodes
    stop.set()
    await playing


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(client, kueue, played):
    """A namespace without a queue."""
    tenant = Tenant(client, played)
    await tenant.open()
    yield tenant
    await tenant.close()
