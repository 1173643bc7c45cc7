"""Processes of pods, and a manager with webhooks, for the tests of KEP-467 on real nodes."""

import asyncio
import base64
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import yaml

from jobsetpy.serving import x509
from support import patience
from support.cluster.install import (
    AGENT_IMAGE,
    CONFIG,
    apply_manifest,
    apply_object,
    create_namespace,
)
from support.cluster.processes import process_of

WEBHOOK_PORT = 9443


@contextlib.asynccontextmanager
async def manager_with_webhooks(cluster, client, folder: Path) -> AsyncIterator[None]:
    """Run a manager in the cluster's network, whose webhooks the API server calls."""
    authority = x509.new_authority(datetime.now(UTC))
    pair = x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    await create_namespace(client, "jobset-system")
    for name in ("service_account", "manager_role", "successor_role"):
        await apply_manifest(client, CONFIG / f"rbac/{name}.yaml")
    with (folder / "manager.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *cluster.exec_prefix,
            *(sys.executable, "-m", "jobsetpy.app.main", "manager", "--webhooks"),
            *("--kubeconfig", str(cluster.exec_kubeconfig), "--log-format", "json"),
            *("--webhook-bind-address", f"127.0.0.1:{WEBHOOK_PORT}"),
            *("--webhook-cert-dir", str(folder), "--agent-image", AGENT_IMAGE),
            *("--metrics-bind-address", "0", "--health-probe-bind-address", "127.0.0.1:8081"),
            stdout=log,
            stderr=log,
        )
    try:
        await _ready(cluster, folder / "manager.log")
        for document in configurations(authority.certificate):
            await apply_object(client, document)
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


def configurations(authority: bytes) -> list[dict]:
    """Return the shipped configurations, with an address and a certificate instead of the Service."""
    documents = list(yaml.safe_load_all((CONFIG / "webhook/configurations.yaml").read_text()))
    for document in documents:
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{WEBHOOK_PORT}{path}"
            webhook["clientConfig"]["caBundle"] = base64.b64encode(authority).decode()
    return documents


def send(pod, number: int, text: str = "worker started", *, first: bool = True) -> None:
    """Send a signal to a process of a pod."""
    os.kill(process_of(pod, text, first=first), number)
