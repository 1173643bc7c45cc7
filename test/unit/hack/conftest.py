"""Fixtures of tests of clusters."""

import pytest


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The test's own folder for clusters, without settings from the environment."""
    monkeypatch.setenv("JOBSETPY_STATE_DIR", str(tmp_path / "state"))
    for name in ("KUBEBUILDER_ASSETS", "JOBSETPY_KUBECONFIG", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"
