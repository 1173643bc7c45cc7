"""A control plane, the manager with its webhooks, and all examples running in it.

The cluster has the Job controller, the garbage collector and the scheduler of Kubernetes, and no
nodes: the tests simulate the kubelets. Examples have namespaces of their own and run at the same
time; each test waits for its own.
"""

import asyncio

import pytest
import pytest_asyncio

from hack.cluster import Cluster
from jobsetpy import admission
from jobsetpy.app import wiring
from jobsetpy.manager import Manager
from support.cluster.install import ROOT, apply_manifest, connected, create_namespace
from support.cluster.manager_process import free_port
from support.cluster.webhooks import apply_webhooks, webhook_settings
from support.examples import examples_kit
from support.managers import started_for_fixture
from support.patience import eventually

SYSTEM = "jobset-system"
CONCURRENCY = 12


@pytest.fixture(scope="module")
def kubeconfig():
    """A control plane for these tests only, since its webhooks are called for every JobSet."""
    crd = ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"
    # Nodes without kubelets are as healthy as the tests say.
    controllers = ["--controllers=*,-node-lifecycle-controller"]
    with Cluster(crds=[crd], controller_manager_args=controllers) as running:
        if running.is_existing:
            pytest.skip("the existing cluster cannot call webhooks on this machine's loopback")
        yield str(running.kubeconfig)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(kubeconfig):
    """An administrator's client."""
    async with connected(kubeconfig, qps=0) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager(client, kubeconfig):
    """A manager that is ready and serves the webhooks."""
    port = free_port()
    await create_namespace(client, SYSTEM)
    await apply_manifest(client, ROOT / "config/webhook/secret.yaml")
    await apply_webhooks(client, port)
    async with connected(kubeconfig, qps=0) as own_client:
        manager = Manager(own_client)
        wiring.add_jobset_controllers(manager)
        settings = webhook_settings(port, namespace=SYSTEM, agent_image="jobsetpy-agent:latest")
        served = admission.setup(manager, settings)
        async with started_for_fixture(manager):
            await eventually(lambda: not list(served.problems()), 30, poll_s=0.05)
            yield manager


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes(request, client, manager):
    """A task for each example of a selected test; it ends when the promise is kept."""
    items = [item for item in request.session.items if item.module is request.module]
    chosen = {item.callspec.params["path"] for item in items if hasattr(item, "callspec")}
    promises, with_nodes = request.module.PROMISES, request.module.WITH_NODES
    slots, alone = asyncio.Semaphore(CONCURRENCY), asyncio.Lock()

    async def play(path: str, promise) -> None:
        example = await examples_kit.Play.open(client, path)
        try:
            await promise(example)
        finally:
            await example.close()

    async def run(path: str) -> None:
        async with slots:
            await play(path, promises[path])

    async def run_alone(path: str) -> None:
        async with alone:
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0)), *tasks.values()])
            # A pod of any JobSet keeps an exclusive one of the same priority away from its domain.
            await examples_kit.until_no_pods(client)
            await play(path, with_nodes[path])

    tasks = {path: asyncio.create_task(run(path)) for path in chosen & promises.keys()}
    last = {path: asyncio.create_task(run_alone(path)) for path in chosen & with_nodes.keys()}
    yield tasks | last
    for task in (*tasks.values(), *last.values()):
        task.cancel()
    await asyncio.gather(*tasks.values(), *last.values(), return_exceptions=True)
