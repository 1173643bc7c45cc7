"""One cluster with a real node, with our manager and those of other projects, for this folder.

Tests share the cluster: each creates its objects in a namespace and with queues of its own.
"""

from pathlib import Path

import pytest
import pytest_asyncio

from hack.cluster import Cluster
from support.cluster.install import CONFIG, apply_manifest, connected, install_manager
from support.cluster.kubectl import Kubectl
from support.others.client_images import client_image
from support.others.kueue_install import install_kueue
from support.others.trainer_install import install_trainer, runtime_images
from support.restarts.scenario import build_images, manager_ready

CLIENTS = ("kueue", "trainer")
COSCHEDULING = ("--coscheduling-backend=coscheduler", "--coscheduling-member-resource")


def pytest_collection_modifyitems(items):
    """Run tests without Kueue first: its webhooks are called for the jobs of all others."""
    items.sort(key=lambda item: "kueue" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def cluster():
    """A control plane and a node, with images of all managers."""
    with Cluster(
        nodes=1,
        dns=True,
        images=[*build_images(), *map(client_image, CLIENTS), *runtime_images()],
        crds=[CONFIG / "crd/jobset.x-k8s.io_jobsets.yaml"],
        # Nodes that the tests create have no kubelet that sends heartbeats.
        controller_manager_args=["--node-monitor-grace-period=3h"],
        # Kueue creates its certificate when it has started, and waits for it in its own mount.
        kubelet_config={"syncFrequency": "3s"},
        timeout_s=180,
    ) as running:
        if running.is_existing:
            pytest.skip(
                "needs managers in images of their own, which an existing cluster does not have"
            )
        yield running


@pytest.fixture(scope="session")
def kubectl(cluster, tmp_path_factory):
    """kubectl for the cluster."""
    return Kubectl(Path(cluster.kubeconfig), tmp_path_factory.mktemp("kubectl"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(cluster):
    """An administrator's client, with our manager installed and ready, with all its gates."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_manager(client, arguments=COSCHEDULING)
        for path in sorted((CONFIG / "agent/policy").glob("*.yaml")):
            if path.name != "kustomization.yaml":
                await apply_manifest(client, path)
        await apply_manifest(client, CONFIG / "group-scheduling/manager_role.yaml")
        await manager_ready(client)
        yield client


@pytest.fixture(scope="session")
def kueue(client, kubectl):
    """Kueue, ready."""
    install_kueue(kubectl)


@pytest.fixture(scope="session")
def trainer(client, kubectl):
    """Kubeflow Trainer, ready, with its runtimes."""
    install_trainer(kubectl)
