"""What tests of clusters share."""

import pytest


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Folders of this test's own for clusters and cache, and no settings from outside."""
    monkeypatch.setenv("JOBSETPY_STATE_DIR", str(tmp_path / "state"))
    for name in ("KUBEBUILDER_ASSETS", "JOBSETPY_KUBECONFIG", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"
