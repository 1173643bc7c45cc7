"""A deployed manager of several replicas: its leader, its end, and calls to its webhooks.

End-to-end tests and a benchmark share it. Processes of pods are found on this machine, where the
nodes of ``hack/cluster`` are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from jobsetpy.api.coordination import Lease
from jobsetpy.api.core import Pod
from jobsetpy.client import AiohttpTransport, Client, HttpRequest
from jobsetpy.errors import NotFoundError, TransportError
from support import patience
from support.cluster.install import SYSTEM
from support.cluster.json_api import send

LEASE = "6d4f6a47.jobset.x-k8s.io"
SELECTOR = "control-plane=controller-manager"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/jobset-controller-manager"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PAUSE_S = 0.05


class Replicas:
    """Pods of the manager in the cluster of ``client``."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def pods(self) -> list[Pod]:
        """Return all of them, including those that are being deleted."""
        return list((await self.client.list_page(Pod, SYSTEM, label_selector=SELECTOR)).items)

    async def deployment(self) -> dict[str, Any]:
        """Return the Deployment as JSON data."""
        return dict(await send(self.client, "GET", DEPLOYMENT))

    async def settled(self, timeout_s: float = 180.0, *, alone: bool = True) -> list[Pod]:
        """Wait until all replicas have the current template and are ready.

        Args:
            timeout_s: maximum time.
            alone: wait until other pods are deleted as well.
        """
        async with patience.timeout(timeout_s):
            while True:
                found = await self.deployment()
                wanted, status = found["spec"]["replicas"], found.get("status", {})
                counts = ("replicas", "updatedReplicas", "readyReplicas")
                seen = status.get("observedGeneration") == found["metadata"]["generation"]
                if seen and all(status.get(name, 0) == wanted for name in counts):
                    pods = await self.pods()
                    if len(pods) == wanted or not alone:
                        return pods
                await asyncio.sleep(0.1)

    async def holder(self) -> str:
        """Return the holder in the Lease; "" if there is none."""
        try:
            lease = await self.client.get(Lease, SYSTEM, LEASE)
        except NotFoundError:
            return ""
        return lease.spec.holder_identity or ""

    async def leader(self, *, not_: str = "", timeout_s: float = 60.0) -> tuple[Pod, str]:
        """Return the leading pod, other than ``not_``, and its identity; wait until there is one."""
        async with patience.timeout(timeout_s):
            while True:
                holder = await self.holder()
                if holder not in {"", not_}:
                    for pod in await self.pods():
                        if pod.metadata.name == holder.rpartition("_")[0]:
                            return pod, holder
                await asyncio.sleep(0.02)

    async def transitions(self) -> int:
        """Return how often leadership has changed."""
        return (await self.client.get(Lease, SYSTEM, LEASE)).spec.lease_transitions or 0


def memory_mb(pid: int) -> tuple[float, float]:
    """Return private memory of a process and its largest resident size so far, in MB."""
    private = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_"):
            private += int(line.split()[1])
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return private / 1000, int(line.split()[1]) / 1000
    return private / 1000, 0.0


def kill(pid: int, number: int) -> float:
    """Send a signal; return its Unix time."""
    moment = time.time()
    os.kill(pid, number)
    return moment


class WebhookCalls:
    """Successive dry-run creations that the webhooks have to answer.

    Attributes:
        answered: Unix times of admitted ones.
        refused: Unix time and text of the others.
        slowest_s: longest time of an admitted one.
    """

    def __init__(self, kubeconfig: str | Path, jobset: dict[str, Any]) -> None:
        self._kubeconfig = kubeconfig
        self._body = json.dumps(jobset).encode()
        self.answered: list[float] = []
        self.refused: list[tuple[float, str]] = []
        self.slowest_s = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Call within the block, without a client, which would repeat calls."""
        transport = await AiohttpTransport.from_kubeconfig(self._kubeconfig)
        ending = asyncio.Event()

        async def loop() -> None:
            while not ending.is_set():
                await self._call(transport)
                await asyncio.sleep(PAUSE_S)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(loop())
                try:
                    yield
                finally:
                    ending.set()
        finally:
            await transport.aclose()

    async def _call(self, transport: AiohttpTransport) -> None:
        began = time.time()
        request = HttpRequest(
            method="POST",
            path=JOBSETS,
            query=(("dryRun", "All"),),
            body=self._body,
            content_type="application/json",
            timeout_s=patience.scaled(30),
        )
        try:
            answer = await transport.request(request)
        except TransportError as error:
            self.refused.append((began, str(error)))
            return
        # Defaults of the webhooks show that they were called.
        if answer.status == 201 and b'"enableDNSHostnames":true' in answer.body:
            self.answered.append(began)
            self.slowest_s = max(self.slowest_s, time.time() - began)
        else:
            self.refused.append((began, answer.body.decode(errors="replace")[:300]))
