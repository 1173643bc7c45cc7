"""What the tests of faults share: JobSets with played kubelets, and figures of a manager process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from jobsetpy.api import keys
from jobsetpy.client import Client, HttpRequest
from support import patience
from support.patience import eventually
from support.soak.soak_lives import KINDS
from support.soak.soak_world import World

STEP_S = 90.0


class Group:
    """JobSets of one namespace, each with two Jobs of two pods, played by a ``World``."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.world = World(client, namespace, random.Random(8))

    async def create(self, *kinds: str, wait: bool = True) -> None:
        """One JobSet of each kind, named after it."""
        for kind in kinds:
            if kind == "in-place":
                self.world.in_place.add(kind)
            body = KINDS[kind](kind, 2)
            body["spec"]["network"] = {"enableDNSHostnames": True}  # as the webhooks fill in
            await self.send("POST", self.jobsets, body)
        if wait:
            await self.running(*kinds)

    async def running(self, *names: str, restarts: int = 0, epoch: int = 0) -> None:
        """Wait until all pods run, after so many restarts or at least at that epoch."""

        def all_run() -> bool:
            for name in names:
                jobset = self.world.jobsets.get(name)
                pods = self.world.pods_of(name, running=True)
                if jobset is None or len(pods) != 4 or len(self.world.pods_of(name)) != 4:
                    return False
                if any(pod.attempt < restarts or pod.barrier.epoch < epoch for pod in pods):
                    return False
                if jobset.status.restarts < restarts or jobset.status.synced_epoch < epoch:
                    return False
            return True

        await self.world.until(all_run, STEP_S, f"all pods of {', '.join(names)} to run")

    async def fail(self, name: str) -> None:
        """One of its workers ends with an error."""
        pod = min(self.world.pods_of(name, running=True), key=lambda each: each.name)
        await self.world.fail(pod, 7)

    def fail_soon(self, *names: str) -> None:
        """The same in the background: the kubelet tells of it as soon as it can."""
        for name in names:
            self.world.start(self.fail(name))

    def restarts(self, name: str) -> int:
        """What its status says."""
        return self.world.jobsets[name].status.restarts

    def epochs(self, name: str) -> tuple[int, int]:
        """Synced and deprecated."""
        status = self.world.jobsets[name].status
        return status.synced_epoch, status.deprecated_epoch

    @property
    def jobsets(self) -> str:
        """Path of its JobSets."""
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Plain JSON to and from the API server."""
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = HttpRequest(method=method, path=path, body=data, content_type=kind, **more)
        return json.loads((await self.client.raw(request)).body)

    async def check_no_duplicates(self, restarts: int = 1) -> None:
        """One Job of a name, one pod of an index, one Service; each restart is told of once."""
        jobs = Counter(job.metadata.name for job in self.world.jobs.values())
        assert set(jobs.values()) <= {1}, jobs
        base = f"/api/v1/namespaces/{self.namespace}"
        pods = (await self.send("GET", f"{base}/pods"))["items"]
        places = Counter(
            (
                pod["metadata"]["ownerReferences"][0]["uid"],
                pod["metadata"]["annotations"][keys.COMPLETION_INDEX_ANNOTATION],
            )
            for pod in pods
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        )
        assert set(places.values()) <= {1}, places
        services = (await self.send("GET", f"{base}/services"))["items"]
        assert len(services) == len(self.world.jobsets), services
        told = await eventually(self.events, STEP_S, poll_s=0.2)
        assert max(told.values()) <= restarts, told

    async def events(self) -> Counter[tuple[str, str]]:
        """How often events of each reason were told of each JobSet."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        told: Counter[tuple[str, str]] = Counter()
        for event in (await self.send("GET", path))["items"]:
            if event["regarding"].get("kind") == "JobSet":
                count = (event.get("series") or {}).get("count", 1)
                told[event["regarding"]["name"], event["reason"]] += count
        return told


@contextlib.asynccontextmanager
async def attempt_of(client: Client, namespace: str) -> AsyncIterator[Group]:
    """A group that plays within the block, and whose JobSets are deleted in the end."""
    group = Group(client, namespace)
    async with group.world.playing():
        try:
            yield group
        finally:
            with contextlib.suppress(Exception):
                await group.send("DELETE", group.jobsets)


async def quiet(count: Callable[[], Awaitable[float]], *, most: float = 0) -> float:
    """Wait for a second in which ``count`` grows by no more than ``most``; what it is then."""
    async with patience.timeout(STEP_S):
        last = await count()
        while True:
            await asyncio.sleep(1.0)
            now = await count()
            if now - last <= most:
                return now
            last = now


def requests_of(series: dict[str, float], *methods: str, code: str = "") -> float:
    """How many requests a manager sent by its metrics, watches not counted.

    Args:
        series: as scraped.
        methods: only these; all when none is given.
        code: only those that were answered so, ``<error>`` for those that were not.
    """
    total = 0.0
    for name, value in series.items():
        if not name.startswith("rest_client_requests_total{"):
            continue
        labels = dict(
            part.split("=", 1) for part in name.partition("{")[2].rstrip("}").split(",") if part
        )
        method, answered = labels["method"].strip('"'), labels["code"].strip('"')
        if (not methods or method in methods) and (not code or answered == code):
            total += value
    return total
