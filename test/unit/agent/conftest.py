"""A pod on a fake API server with TLS, for tests of the agent as a process."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.agents.agent_process import Pod, served_pod, write_account


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account's folder, which has the server's key and certificate too."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("account")
    write_account(folder)
    return folder


@pytest.fixture
async def pod(account: Path, tmp_path: Path) -> AsyncIterator[Pod]:
    """A pod and its JobSet on a server with TLS."""
    async with served_pod(account, tmp_path / "arrival") as pod:
        yield pod
