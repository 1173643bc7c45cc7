"""A manager that the kernel kills at a memory limit as containers have.

Setting limits needs root, so this runs with the tests of real nodes.
"""

import asyncio
import contextlib
import signal
import uuid

import pytest

from hack.cluster._cgroups import hierarchies
from support import patience
from support.cluster.manager_process import ManagerProcess
from support.cluster.objects import jobset, replicated_job
from support.faults.fault_kit import attempt_of
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

MEGABYTE = 1_000_000
LARGE = 900_000
"""Bytes of one large JobSet; etcd accepts at most 1.5 MB."""
MANY = 32


class MemoryLimit:
    """A control group for one process."""

    def __init__(self) -> None:
        old, new = hierarchies()
        roots = [root for root in old if (root / "memory.limit_in_bytes").exists() or root.name == "memory"]  # fmt: skip
        self._old = bool(roots)
        root = roots[0] if roots else new
        assert root is not None, "no control groups: a node could not run here either"
        if not roots:
            (root / "cgroup.subtree_control").write_text("+memory")
        self.folder = root / f"jobsetpy-{uuid.uuid4().hex[:8]}"
        self.folder.mkdir()

    @property
    def prefix(self) -> list[str]:
        """Return the prefix of a command that is to run under the limit."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def set(self, limit: int) -> None:
        """Set the limit in bytes; -1 removes it."""
        if self._old:
            (self.folder / "memory.limit_in_bytes").write_text(str(limit))
            return
        (self.folder / "memory.swap.max").write_text("0")
        (self.folder / "memory.max").write_text("max" if limit < 0 else str(limit))

    def kills(self) -> int:
        """Return how many times the kernel has killed a process at this limit."""
        text = (self.folder / ("memory.oom_control" if self._old else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def remove(self) -> bool:
        """Remove the group; return False while a process of it still exists."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return not self.folder.exists()


def large(name: str) -> dict:
    """A JobSet of this size without pods."""
    env = [{"name": "X", "value": "x" * LARGE}]
    container = {"name": "c", "image": "test.invalid/c:1", "env": env}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return jobset(name, {**replicated_job(pod), "replicas": 0})


async def ended(manager) -> int:
    """Return the manager's exit code once the kernel has killed it."""
    async with patience.timeout(60):
        return await manager.process.wait()


async def test_next_manager_continues_when_memory_was_short(cluster, client, namespace, tmp_path):
    """The kernel kills it at its limit; with a higher one no restart counts twice."""
    if cluster.is_existing:
        pytest.skip("fills etcd")
    limit = MemoryLimit()
    manager = ManagerProcess(
        cluster.kubeconfig, tmp_path / "log", metrics=True, prefix=limit.prefix
    )
    try:
        await manager.start()
        async with attempt_of(client, namespace) as group:
            await group.create("recreate", "in-place")
            limit.set(int((manager.rss_mb() + 15) * MEGABYTE))
            for name in ("recreate", "in-place"):
                await group.fail(name)
            for number in range(MANY):
                await group.send("POST", group.jobsets, large(f"large-{number}"))
            assert await ended(manager) == -signal.SIGKILL
            assert limit.kills() >= 1

            await manager.start(wait=False)  # with the same limit
            assert await ended(manager) == -signal.SIGKILL
            assert limit.kills() >= 2

            limit.set(-1)
            await manager.start()
            await group.running("recreate", restarts=1)
            await group.running("in-place", epoch=2)
            series = await asyncio.to_thread(manager.scrape)
            print(f"{manager.rss_mb():.0f} MB, {manager.peak_mb():.0f} at most")

            assert series['informer_objects{kind="JobSet"}'] >= MANY + 2
            assert (group.restarts("recreate"), group.epochs("in-place")) == (1, (2, 1))
            assert group.world.violations == []
    finally:
        await manager.stop()
        await eventually(limit.remove, 20, poll_s=0.1)
