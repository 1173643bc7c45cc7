"""A control plane with scheduler and Job controller, and the manager with the shipped rights.

The cluster is this folder's own: it has nodes without kubelets, on which pods of other tests would
be scheduled. Each test has a namespace, a pool of nodes and a topology label of its own.
"""

import uuid
from pathlib import Path

import pytest
import pytest_asyncio

from hack.cluster import Cluster
from jobsetpy.client import connect
from support.cluster.account import manager_kubeconfig
from support.cluster.install import ROOT, connected, install_crd
from support.cluster.manager_process import free_port
from support.cluster.racks import kubelets
from support.features.placement_kit import Place, Site
from support.managers import for_fixture
from support.requests_log import Requests

SYSTEM = "jobset-system"


@pytest.fixture(scope="module")
def kubeconfig():
    """Path of the control plane's kubeconfig."""
    # With the CRD from the start: the garbage collector discovers new kinds only rarely.
    with Cluster(crds=[ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"]) as running:
        if running.is_existing:
            pytest.skip("an existing cluster cannot call webhooks on loopback")
        yield Path(running.kubeconfig)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(kubeconfig):
    """An administrator's client, with everything installed except the webhook configurations."""
    async with connected(kubeconfig, qps=0) as client:
        await install_crd(client)
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager_client(admin, kubeconfig, tmp_path_factory):
    """A client with the rights of the manager's own account, which counts its requests."""
    own = await manager_kubeconfig(admin, kubeconfig, tmp_path_factory.mktemp("account"))
    requests = Requests()
    client = await connect(kubeconfig=str(own), qps=0, observer=requests)
    yield client, requests
    await client.aclose()
    assert requests.refused == []  # the shipped role suffices


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(admin, manager_client):
    """The running manager; tests may stop it and start another one."""
    site = Site(admin, *manager_client, free_port())
    await site.install_webhooks()
    await site.start()
    async with for_fixture(kubelets(admin)):
        yield site
    await site.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def place(site):
    """A namespace with its own pool of nodes."""
    return await Place.open(site, f"p-{uuid.uuid4().hex[:6]}")
