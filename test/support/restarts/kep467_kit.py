"""Processes of pods, and a manager with webhooks, for the tests of KEP-467 on real nodes."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from support import patience
from support.cluster.install import AGENT_IMAGE, CONFIG, apply_manifest, create_namespace
from support.cluster.processes import process_of
from support.cluster.webhooks import apply_webhooks, bundle_of, webhook_flags, write_certificate

WEBHOOK_PORT = 9443


@contextlib.asynccontextmanager
async def manager_with_webhooks(cluster, client, folder: Path) -> AsyncIterator[None]:
    """Run a manager in the cluster's network, whose webhooks the API server calls."""
    authority, _ = write_certificate(folder)
    await create_namespace(client, "jobset-system")
    for name in ("service_account", "manager_role", "successor_role"):
        await apply_manifest(client, CONFIG / f"rbac/{name}.yaml")
    with (folder / "manager.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *cluster.exec_prefix,
            *(sys.executable, "-m", "jobsetpy.app.main", "manager"),
            *("--kubeconfig", str(cluster.exec_kubeconfig), "--log-format", "json"),
            *webhook_flags(WEBHOOK_PORT, folder),
            *("--agent-image", AGENT_IMAGE),
            *("--metrics-bind-address", "0", "--health-probe-bind-address", "127.0.0.1:8081"),
            stdout=log,
            stderr=log,
        )
    try:
        await _ready(cluster, folder / "manager.log")
        await apply_webhooks(client, WEBHOOK_PORT, bundle_of(authority))
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(cluster, log: Path) -> None:
    script = "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/readyz', timeout=1)"
    for _ in range(round(patience.scaled(60))):
        probe = await asyncio.create_subprocess_exec(
            *cluster.exec_prefix, sys.executable, "-S", "-c", script, stderr=-3
        )
        if await probe.wait() == 0:
            return
        await asyncio.sleep(0.25)
    raise TimeoutError(f"the manager is not ready:\n{log.read_text()[-3000:]}")


def send(pod, number: int, text: str = "worker started", *, first: bool = True) -> None:
    """Send a signal to a process of a pod."""
    os.kill(process_of(pod, text, first=first), number)
