"""A control plane of its own for the documentation's commands, which install and remove things."""

import pytest

from hack.cluster import Cluster
from support.docs.docs_kit import ROOT


@pytest.fixture(scope="module")
def own_cluster():
    """An empty control plane."""
    with Cluster(crds=[ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"]) as running:
        if running.is_existing:
            pytest.skip("the existing cluster is not ours to install things in")
        yield running
