"""Access to the real control plane that a test can cut."""

from pathlib import Path

import pytest
import yaml


@pytest.fixture
def kubeconfig_at(cluster, tmp_path):
    """Function that writes a kubeconfig for the same cluster through another port of loopback."""

    def make(port: int) -> Path:
        config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        path = tmp_path / f"through-{port}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    return make
