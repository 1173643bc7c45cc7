"""The real Helm, and a control plane that no other test installs objects into."""

from pathlib import Path

import pytest
import yaml

from hack.cluster import Cluster
from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from support.cluster.chart_kit import Helm, Kube

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]


@pytest.fixture(scope="session")
def helm_program():
    """Helm, from the cache or built."""
    return Binaries.find(["helm"], Progress())["helm"]


@pytest.fixture(scope="session")
def offline(helm_program, tmp_path_factory):
    """Helm without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def chart_cluster():
    """A control plane of its own: webhooks without a server would block other tests."""
    with Cluster(controller_manager=False, scheduler=False) as running:
        if running.is_existing:
            pytest.skip("the existing cluster is not ours to install things in")
        yield running


@pytest.fixture(scope="module")
def kube(chart_cluster):
    """Its API server, with the kinds of cert-manager and of the Prometheus operator."""
    kube = Kube(chart_cluster.kubeconfig)
    for document in yaml.safe_load_all((HERE / "other_kinds.yaml").read_text()):
        kube.apply(document)
    for group in ("cert-manager.io/v1/issuers", "monitoring.coreos.com/v1/prometheusrules"):
        kube.served(f"/apis/{group}")
    return kube


@pytest.fixture(scope="module")
def online(helm_program, chart_cluster, kube, tmp_path_factory):
    """Helm with that cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"), chart_cluster.kubeconfig)
