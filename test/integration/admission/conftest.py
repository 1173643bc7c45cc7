"""The webhook server in this process, and a real API server that calls it on loopback."""

import asyncio
import contextlib
import uuid

import pytest_asyncio
import yaml

from jobsetpy import admission, aio
from jobsetpy.admission._handlers import StoredAccount
from jobsetpy.api import keys
from jobsetpy.api.core import Namespace
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from support.admission.admission_kit import Api, jobset
from support.cluster.account import manager_kubeconfig
from support.cluster.install import CONFIG, apply_object, connected, install_crd
from support.cluster.manager_process import free_port
from support.cluster.webhooks import apply_webhooks, delete_webhooks, webhook_settings
from support.patience import eventually

NAMESPACE = "jobset-system"
LABEL = {"jobsetpy.test/webhooks": "yes"}
LABEL_PLATFORM = {"jobsetpy.test/webhooks": "platform"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_client(cluster):
    """An administrator's client for the whole module, with the CRD installed."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager_client(cluster, shared_client, tmp_path_factory):
    """A client with the rights of the manager's own account only."""
    folder = tmp_path_factory.mktemp("account")
    own = await manager_kubeconfig(shared_client, cluster.kubeconfig, folder)
    async with connected(own, qps=0) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def webhooks(shared_client, manager_client):
    """A manager that serves the webhooks, with its own account and certificates."""
    async with serving_webhooks(shared_client, manager_client, LABEL) as served:
        yield served


@contextlib.asynccontextmanager
async def serving_webhooks(client, own_client, label: dict[str, str], suffix: str = "", **more):
    """A manager that serves the webhooks for namespaces with a label, within the block."""
    port = free_port()
    secret = yaml.safe_load((CONFIG / "webhook/secret.yaml").read_text())
    await apply_object(client, secret)
    await apply_webhooks(client, port, labels=label, suffix=suffix)
    settings = webhook_settings(
        port,
        mutating_configuration=f"jobset-mutating-webhook-configuration{suffix}",
        validating_configuration=f"jobset-validating-webhook-configuration{suffix}",
        **more,
    )
    manager = Manager(own_client)
    served = admission.setup(manager, settings)
    stop = asyncio.Event()
    try:
        async with aio.supervise() as tasks:
            running = tasks.start(manager.run(stop), name="manager")
            await eventually(lambda: not list(served.problems()), 30)
            yield served
            stop.set()
            await running
    finally:
        await delete_webhooks(client, suffix)


@pytest_asyncio.fixture(loop_scope="module")
async def namespace(shared_client):
    """A namespace of the test's own."""
    return await make_namespace(shared_client, LABEL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_namespace(shared_client):
    """A namespace of the module's own."""
    return await make_namespace(shared_client, LABEL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform_webhooks(shared_client, manager_client):
    """Webhooks with images by digest, as an operator with such rules configures them."""
    agent = f"registry.test/jobsetpy-agent@sha256:{'0' * 64}"
    more = {
        "agent_image": agent,
        "barrier": GroupBarrier(
            shell_image=f"registry.test/bash@sha256:{'0' * 64}", agent_image=agent
        ),
        "injected": ContainerDefaults(pull_secret="registry"),
    }
    async with serving_webhooks(shared_client, manager_client, LABEL_PLATFORM, **more) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def platform_namespace(shared_client, platform_webhooks):
    """A namespace of the test's own, with the webhooks of ``platform_webhooks``."""
    return await make_namespace(shared_client, LABEL_PLATFORM)


async def make_namespace(client, label: dict[str, str]) -> str:
    """Create a namespace and return its name."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    # With its label from the start: the API server's cache would miss a later one.
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}}
    await client.create(Namespace, "", body)
    await client.create(StoredAccount, name, {"metadata": {"name": keys.AGENT_NAME}})
    return name


class ForeignNamespace:
    """A namespace for which no webhook is called until ``use_webhooks``."""

    def __init__(self, client, name: str) -> None:
        self._client, self.name = client, name

    async def use_webhooks(self) -> None:
        """Return once the webhooks are called."""
        await self._client.merge_patch(Namespace, "", self.name, {"metadata": {"labels": LABEL}})
        api = Api(self._client, self.name)

        async def called() -> bool:
            (job,) = (await api.try_create(jobset(name="probe")))["spec"]["replicatedJobs"]
            return "completionMode" in job["template"]["spec"]

        await eventually(called, 30, poll_s=0.1)


@pytest_asyncio.fixture(loop_scope="module")
async def foreign_namespace(shared_client):
    """A namespace whose JobSets are stored without webhooks."""
    return ForeignNamespace(shared_client, await make_namespace(shared_client, {"other": "yes"}))
