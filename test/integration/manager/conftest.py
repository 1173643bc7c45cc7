"""Access to the real control plane that a test can cut."""

import contextlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from support.faults.tcp_proxy import TcpProxy


@pytest.fixture
def proxied(cluster, tmp_path):
    """Function that runs a proxy to the API server; it yields that and a kubeconfig through it."""

    @contextlib.asynccontextmanager
    async def run():
        config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        target = config["clusters"][0]["cluster"]
        async with TcpProxy("127.0.0.1", urlsplit(target["server"]).port).serving() as proxy:
            target["server"] = f"https://127.0.0.1:{proxy.port}"
            path = tmp_path / "through-proxy.kubeconfig"
            path.write_text(yaml.safe_dump(config))
            path.chmod(0o600)
            yield proxy, path

    return run
