"""A real control plane, and the manager with webhooks and the shipped rights; no kubelets."""

import asyncio
import contextlib
import uuid
from pathlib import Path

import pytest_asyncio
import yaml

from jobsetpy import admission
from jobsetpy.api.core import Namespace
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.client import connect
from jobsetpy.errors import NotFoundError
from jobsetpy.manager import Manager
from jobsetpy.serving.webhook_kinds import MutatingConfiguration, ValidatingConfiguration
from support import patience
from support.cluster.account import account_kubeconfig, install_roles
from support.cluster.install import apply_object, install_crd
from support.cluster.manager_process import free_port
from support.features.groups_kit import NAME, Place
from support.patience import eventually
from support.requests_log import Requests

REPOSITORY = Path(__file__).resolve().parents[3]
SYSTEM = "jobset-system"
LABEL = {"jobsetpy.test/groups": "yes"}
AGENT = "test.invalid/agent:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(cluster):
    """An administrator's client, with all that the manager needs."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    await install_crd(client)
    await install_roles(client)
    yield client
    await client.aclose()


async def kubeconfig_of(admin, cluster, folder, namespace, account):
    """A kubeconfig with the rights of a service account."""
    return str(await account_kubeconfig(admin, cluster.kubeconfig, folder, namespace, account))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager(admin, cluster, tmp_path_factory):
    """The manager, running with its own account; yields what it was refused."""
    port = free_port()
    text = (REPOSITORY / "config/webhook/configurations.yaml").read_text()
    for document in yaml.safe_load_all(text):
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["namespaceSelector"] = {"matchLabels": LABEL}
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
        await apply_object(admin, document)
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
    settings = admission.WebhookSettings(
        bind_address=f"127.0.0.1:{port}",
        extra_dns_names=("127.0.0.1",),
        check_period_s=0.5,
        agent_image=AGENT,
        group_agent_image=AGENT,
    )
    served = admission.setup(manager, settings)
    stop = asyncio.Event()
    # Fixtures are entered and left by different tasks, so a task group cannot hold this one.
    running = asyncio.create_task(manager.run(stop))
    async with patience.timeout(30):
        await manager.ready.wait()
    await eventually(lambda: not list(served.problems()), 30)
    try:
        yield requests
    finally:
        for kind, verb in (
            (MutatingConfiguration, "mutating"),
            (ValidatingConfiguration, "validating"),
        ):
            with contextlib.suppress(NotFoundError):
                await admin.delete(kind, "", f"jobset-{verb}-webhook-configuration")
        stop.set()
        await running
        await client.aclose()
    assert requests.refused == []  # the shipped roles are enough


@pytest_asyncio.fixture(loop_scope="module")
async def place(admin, manager):
    """A namespace of the test's own, under the restricted profile; its JobSet does not remain.

    The manager, whose requests are counted, would still write how far its group is.
    """
    name = f"g-{uuid.uuid4().hex[:8]}"
    labels = {**LABEL, "pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await admin.create(Namespace, "", body)
    yield Place(admin, name)
    with contextlib.suppress(NotFoundError):  # the test deleted it itself
        await admin.delete(JobSet, name, NAME)


@pytest_asyncio.fixture(loop_scope="module")
async def account_client(admin, cluster, place, tmp_path):
    """A client with the rights of the pods' service account."""
    path = await kubeconfig_of(admin, cluster, tmp_path, place.namespace, "default")
    client = await connect(kubeconfig=path, qps=0)
    yield client
    await client.aclose()
