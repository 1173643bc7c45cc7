"""A control plane for the documentation's commands alone: they install and remove things."""

import sys
from pathlib import Path

import pytest

for folder in ("hack", "test/support"):
    path = str(Path(__file__).resolve().parents[3] / folder)
    if path not in sys.path:
        sys.path.append(path)


@pytest.fixture(scope="module")
def own_cluster():
    """An empty control plane."""
    from docs_kit import ROOT

    from cluster import Cluster

    with Cluster(crds=[ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"]) as running:
        if running.is_existing:
            pytest.skip("the existing cluster is not ours to install things in")
        yield running
