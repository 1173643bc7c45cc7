"""An API server without controllers, and the JobSet manager next to it.

All tests of this folder share one API server; each file has a manager, whose feature gates are the
file's ``FEATURES``. A file may name another fixture as its ``CLUSTER``, and further ``SETTINGS``. Tests have namespaces of
their own.
"""

import asyncio
import uuid

import pytest
import pytest_asyncio

from hack.cluster import Cluster
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.jobs import reconciler as jobs_reconciler
from jobsetpy.reconcilers.restart_in_place import reconciler as restart_in_place_reconciler
from jobsetpy.reconcilers.rules.features import Features
from support import patience
from support.cluster.install import connected, create_namespace, install_crd
from support.features import checklist_kit
from support.patience import eventually


@pytest.fixture(scope="package")
def bare_cluster():
    """Only etcd and kube-apiserver: no other component writes Job status or collects garbage."""
    with Cluster(controller_manager=False, scheduler=False) as running:
        if running.is_existing:
            pytest.skip("the test simulates the Job controller, and the existing cluster has one")
        yield running


@pytest.fixture(scope="module")
def kubeconfig(request):
    """Path of the kubeconfig of the file's API server."""
    cluster = request.getfixturevalue(getattr(request.module, "CLUSTER", "bare_cluster"))
    return str(cluster.kubeconfig)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connections():
    """Wait, after all clients of a file are closed, for connections with a cancelled watch."""
    yield
    watched = asyncio.get_running_loop()._selector.get_map()
    await eventually(lambda: len(watched) == 1, poll_s=0.02)  # the remaining one is the loop's own


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(kubeconfig, connections):
    """An administrator's client, with the CRD installed."""
    async with connected(kubeconfig, qps=0) as client:
        await install_crd(client)
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def manager(request, client, kubeconfig):
    """A running manager with the file's feature gates, by default all of them."""
    features = getattr(request.module, "FEATURES", Features())
    settings = {"features": features, **getattr(request.module, "SETTINGS", {})}
    writes = checklist_kit.Writes()
    async with connected(kubeconfig, observer=writes) as own_client:
        manager = Manager(own_client)
        controllers = [
            jobs_reconciler.setup(manager, jobs_reconciler.JobsSettings(**settings)),
        ]
        if features.in_place_restart:
            controllers.append(restart_in_place_reconciler.setup(manager))
        stop = asyncio.Event()
        # Fixtures are set up and torn down by different tasks, so a task group cannot hold this one.
        running = asyncio.create_task(manager.run(stop))
        async with patience.timeout(20):
            await manager.ready.wait()
        yield checklist_kit.Manager(manager, controllers, writes)
        stop.set()
        await running


@pytest_asyncio.fixture(loop_scope="module")
async def js(client, manager):
    """A namespace of the test's own, with functions that simulate the rest of the cluster."""
    namespace = f"c-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, namespace)
    return checklist_kit.Scenario(client, manager, namespace)
