"""Nodes without kubelets: their pods run as soon as they are bound, and end when a test says so.

Only pods on these nodes are changed, so that a real node may exist as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from jobsetpy import aio
from jobsetpy.api.core import Node, Pod
from jobsetpy.client import Client
from jobsetpy.errors import ApiError, NotFoundError
from support.cluster import pod_status
from support.cluster.follow import following
from support.cluster.racks import kill, make_node

PREFIX = "played-"


class PlayedNodes:
    """Nodes for pods of any namespace, with names that begin with ``played-``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tasks: aio.Supervisor | None = None
        self._handled: dict[str, str] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        """Pods on these nodes, by namespace and name."""

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[PlayedNodes]:
        """Start and end pods within the block."""
        async with aio.supervise() as tasks:
            self._tasks = tasks
            async with following(self._client, Pod, self._note):
                yield self

    async def make(
        self,
        name: str,
        *,
        cpu: int = 8,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> str:
        """Create a ready node; return its name in the cluster."""
        name = f"{PREFIX}{name}"
        own = {"kubernetes.io/hostname": name, **(labels or {})}
        await make_node(self._client, name, cpu, memory="64Gi", taints=taints, **own)
        return name

    async def remove(self, *names: str) -> None:
        """Delete nodes."""
        for name in names:
            with contextlib.suppress(NotFoundError):
                await self._client.delete(Node, "", name)

    async def finish(self, namespace: str, part: str = "", *, code: int = 0) -> None:
        """End the pods of a namespace whose names contain ``part``."""
        for (space, name), pod in list(self.pods.items()):
            ended = pod.status.phase in {"Failed", "Succeeded"}  # the watch may lag behind a start
            if space == namespace and part in name and not ended:
                await self._end(pod, code)

    def _note(self, pod: Pod, gone: bool) -> None:
        meta = pod.metadata
        if not pod.spec.node_name.startswith(PREFIX):
            return
        if gone:
            self.pods.pop((meta.namespace, meta.name), None)
            self._handled.pop(meta.uid, None)
            return
        self.pods[meta.namespace, meta.name] = pod
        assert self._tasks is not None
        if meta.deletion_timestamp is not None:
            if self._handled.get(meta.uid) != "ended":
                self._handled[meta.uid] = "ended"
                self._tasks.start(self._remove(pod), name=f"end of {meta.name}")
        elif pod.status.phase == "Pending" and meta.uid not in self._handled:
            self._handled[meta.uid] = "runs"
            self._tasks.start(self._run(pod), name=f"start of {meta.name}")

    async def _run(self, pod: Pod) -> None:
        await self._report(pod, pod_status.running("c"))

    async def _end(self, pod: Pod, code: int) -> None:
        await self._report(pod, pod_status.ended(code, "c"))

    async def _remove(self, pod: Pod) -> None:
        if pod.status.phase not in {"Failed", "Succeeded"}:
            await self._end(pod, 143)
        with contextlib.suppress(NotFoundError):
            await kill(self._client, pod.metadata.namespace, pod.metadata.name)

    async def _report(self, pod: Pod, status: dict[str, Any]) -> None:
        meta = pod.metadata
        with contextlib.suppress(ApiError):  # it may be gone
            await self._client.merge_patch(
                Pod, meta.namespace, meta.name, {"status": status}, subresource="status"
            )
