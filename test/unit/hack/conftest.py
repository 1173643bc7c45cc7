"""Puts ``hack`` on the module path, as ``python hack/cluster`` does."""

import sys
from pathlib import Path

import pytest

HACK = Path(__file__).resolve().parents[3] / "hack"
if str(HACK) not in sys.path:
    sys.path.insert(0, str(HACK))


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Folders of this test's own for clusters and cache, and no settings from outside."""
    monkeypatch.setenv("JOBSETPY_STATE_DIR", str(tmp_path / "state"))
    for name in ("KUBEBUILDER_ASSETS", "JOBSETPY_KUBECONFIG", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"
