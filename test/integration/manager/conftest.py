"""Clients, namespaces and managers for tests against the real control plane."""

import sys
import uuid
from pathlib import Path

import pytest
import yaml

SUPPORT = str(Path(__file__).resolve().parents[2] / "support")
if SUPPORT not in sys.path:
    sys.path.append(SUPPORT)


@pytest.fixture
async def client(cluster):
    """An administrator's client, with the CRD installed."""
    from install import install_crd
    from jobsetpy.client import connect

    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    await install_crd(client)
    yield client
    await client.aclose()


@pytest.fixture
async def namespace(client):
    """A namespace of the test's own."""
    from install import create_namespace

    name = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    return name


@pytest.fixture
def kubeconfig_at(cluster, tmp_path):
    """Makes a kubeconfig for the same cluster through another port of loopback."""

    def make(port: int) -> Path:
        config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        path = tmp_path / f"through-{port}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    return make
