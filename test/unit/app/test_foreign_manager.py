"""The manager's image for arm64, under qemu-user."""

import asyncio
import os
from pathlib import Path

import pytest

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing import FakeApiServer, make_jobset, write_kubeconfig
from support import patience
from support.agents.foreign_images import emulated, root_of
from support.cluster.manager_process import ManagerProcess
from support.patience import eventually

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]
JOBSETS = ResourceInfo("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root folder of the image."""
    return root_of("manager", tmp_path_factory.mktemp("arm64"))


def app(root: Path) -> dict[str, str]:
    """Environment variables of the image."""
    return {"PYTHONPATH": str(root / "app"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("words", [[], ["manager"], ["coscheduler"]])
async def test_commands_of_the_arm64_image_show_their_help(arm64: Path, words: list[str]) -> None:
    """Each command of the emulated image prints ``--help``."""
    shown = await asyncio.create_subprocess_exec(
        *emulated(arm64),
        *("-m", "jobsetpy.app.main", *words, "--help"),
        env={**os.environ, **app(arm64)},
        stdout=asyncio.subprocess.PIPE,
    )
    async with patience.timeout(120):
        out, _ = await shown.communicate()
    assert shown.returncode == 0
    assert b"usage:" in out


async def test_a_manager_for_arm64_creates_jobs(arm64: Path, tmp_path: Path) -> None:
    """The emulated manager loads its compiled libraries, is elected, and creates a JobSet's Jobs."""
    async with FakeApiServer() as server:
        server.register(JOBSETS)
        write_kubeconfig(server, tmp_path / "kubeconfig")
        manager = ManagerProcess(
            tmp_path / "kubeconfig", tmp_path / "log", environ=app(arm64), python=emulated(arm64)
        )
        try:
            await manager.start()
            server.create(JOBSETS, make_jobset("js").replicated_job("w").build())
            await eventually(lambda: len(server.list("jobs")) == 1, seconds=60)
        finally:
            await manager.stop()
