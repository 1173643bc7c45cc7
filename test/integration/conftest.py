"""A real control plane for all tests of this folder."""

import sys
from pathlib import Path

import pytest

HACK = str(Path(__file__).resolve().parents[2] / "hack")
if HACK not in sys.path:
    sys.path.append(HACK)


@pytest.fixture(scope="session")
def cluster():
    """One control plane for the session; JOBSETPY_KUBECONFIG names another one to use."""
    from cluster import Cluster

    with Cluster() as running:
        yield running
