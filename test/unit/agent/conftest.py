"""A pod on a fake API server with TLS, for tests of the agent as a process."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support.agents.agent_process import JOBSETS, Pod


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account's folder, which has the server's key and certificate too."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("account")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *curve, "-subj", "/CN=api", "-keyout", "api.key", "-out", "api.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "api.csr", *signing, "-out", "api.crt")
    (folder / "token").write_text("pod-token")
    return folder


@pytest.fixture
async def pod(account: Path, tmp_path: Path) -> AsyncIterator[Pod]:
    """A pod and its JobSet on a server with TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(account / "api.crt", account / "api.key")
    async with FakeApiServer(tls=context, token="pod-token") as server:
        server.register(JOBSETS)
        server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        server.create("pods", make_pod("p-0").build())
        yield Pod(server, account, tmp_path / "arrival")
