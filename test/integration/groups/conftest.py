"""A real control plane without kubelets, and the manager with webhooks and the shipped rights."""

import contextlib
import uuid

import pytest_asyncio

from jobsetpy import admission
from jobsetpy.api.core import Namespace
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.client import connect
from jobsetpy.errors import NotFoundError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from support.cluster.account import account_kubeconfig, install_roles
from support.cluster.install import connected, install_crd
from support.cluster.manager_process import free_port
from support.cluster.webhooks import apply_webhooks, delete_webhooks, webhook_settings
from support.features.groups_kit import NAME, Place
from support.managers import started_for_fixture
from support.patience import eventually
from support.requests_log import Requests

SYSTEM = "jobset-system"
LABEL = {"jobsetpy.test/groups": "yes"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(cluster):
    """An administrator's client, with everything that the manager needs."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        await install_roles(client)
        yield client


async def kubeconfig_of(admin, cluster, folder, namespace, account):
    """A kubeconfig with the rights of a service account."""
    return str(await account_kubeconfig(admin, cluster.kubeconfig, folder, namespace, account))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager(admin, cluster, tmp_path_factory):
    """The manager, running with its own account; yields the record of its requests."""
    port = free_port()
    await apply_webhooks(admin, port, labels=LABEL)
    folder = tmp_path_factory.mktemp("account")
    account = "jobset-controller-manager"
    requests = Requests()
    client = await connect(
        kubeconfig=await kubeconfig_of(admin, cluster, folder, SYSTEM, account),
        qps=0,
        observer=requests,
    )
    manager = Manager(client)
    values = {"--webhooks": True, "groupScheduling.manageRbac": True}
    add_jobset_controllers(manager, Configuration(values=values))
    settings = webhook_settings(port, barrier=GroupBarrier(agent_image="test.invalid/agent:1"))
    served = admission.setup(manager, settings)
    try:
        async with started_for_fixture(manager):
            await eventually(lambda: not list(served.problems()), 30)
            yield requests
    finally:
        await delete_webhooks(admin)
        await client.aclose()
    assert requests.refused == []  # the shipped roles suffice


@pytest_asyncio.fixture(loop_scope="module")
async def place(admin, manager):
    """A namespace of the test's own with the restricted profile; its JobSet is deleted in the end.

    Otherwise the manager, whose requests are counted, would still report the progress of its group.
    """
    name = f"g-{uuid.uuid4().hex[:8]}"
    labels = {**LABEL, "pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await admin.create(Namespace, "", body)
    yield Place(admin, name)
    with contextlib.suppress(NotFoundError):  # the test has deleted it
        await admin.delete(JobSet, name, NAME)


@pytest_asyncio.fixture(loop_scope="module")
async def account_client(admin, cluster, place, tmp_path):
    """A client with the rights of the pods' service account."""
    path = await kubeconfig_of(admin, cluster, tmp_path, place.namespace, "default")
    async with connected(path, qps=0) as client:
        yield client
