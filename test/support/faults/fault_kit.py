"""JobSets with played kubelets, and metrics of a manager process, for tests of faults."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from jobsetpy.api import keys
from jobsetpy.client import Client
from support import patience
from support.cluster.json_api import send
from support.patience import eventually
from support.soak.soak_lives import KINDS
from support.soak.soak_world import World

STEP_S = 90.0


class Group:
    """JobSets of a namespace, each with two Jobs of two pods, played by a ``World``."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.world = World(client, namespace, random.Random(8))

    async def create(self, *kinds: str, wait: bool = True) -> None:
        """Create a JobSet of each kind, named after it."""
        for kind in kinds:
            if kind == "in-place":
                self.world.in_place.add(kind)
            body = KINDS[kind](kind, 2)
            body["spec"]["network"] = {"enableDNSHostnames": True}  # a default of the webhooks
            await self.send("POST", self.jobsets, body)
        if wait:
            await self.running(*kinds)

    async def running(self, *names: str, restarts: int = 0, epoch: int = 0) -> None:
        """Wait until all pods run, after a number of restarts or at an epoch at least."""

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
        """Fail a worker of a JobSet."""
        pod = min(self.world.pods_of(name, running=True), key=lambda each: each.name)
        await self.world.fail(pod, 7)

    def fail_soon(self, *names: str) -> None:
        """Fail workers in the background: the kubelet reports them as soon as it can."""
        for name in names:
            self.world.start(self.fail(name))

    def restarts(self, name: str) -> int:
        """Return the number of restarts in the status."""
        return self.world.jobsets[name].status.restarts

    def epochs(self, name: str) -> tuple[int, int]:
        """Return synced and deprecated epoch."""
        status = self.world.jobsets[name].status
        return status.synced_epoch, status.deprecated_epoch

    @property
    def jobsets(self) -> str:
        """Path of its JobSets."""
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send JSON to the API server; return its answer."""
        return await send(self.client, method, path, body, **more)

    async def check_no_duplicates(self, restarts: int = 1) -> None:
        """Check for one Job of a name, one pod of an index, one Service, and one event per restart."""
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
        counts = await eventually(self.events, STEP_S, poll_s=0.2)
        assert max(counts.values()) <= restarts, counts

    async def events(self) -> Counter[tuple[str, str]]:
        """Return the number of events by JobSet and reason."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        counts: Counter[tuple[str, str]] = Counter()
        for event in (await self.send("GET", path))["items"]:
            if event["regarding"].get("kind") == "JobSet":
                count = (event.get("series") or {}).get("count", 1)
                counts[event["regarding"]["name"], event["reason"]] += count
        return counts


@contextlib.asynccontextmanager
async def attempt_of(client: Client, namespace: str) -> AsyncIterator[Group]:
    """Play a group within the block, and delete its JobSets at the end."""
    group = Group(client, namespace)
    async with group.world.playing():
        try:
            yield group
        finally:
            with contextlib.suppress(Exception):
                await group.send("DELETE", group.jobsets)


async def quiet(count: Callable[[], Awaitable[float]], *, most: float = 0) -> float:
    """Wait for a second in which ``count`` grows by ``most`` at most; return its last value."""
    async with patience.timeout(STEP_S):
        last = await count()
        while True:
            await asyncio.sleep(1.0)
            now = await count()
            if now - last <= most:
                return now
            last = now


def requests_of(series: dict[str, float], *methods: str, code: str = "") -> float:
    """Return the number of requests in a manager's metrics, without watches.

    Args:
        series: as scraped.
        methods: only these; all when none is given.
        code: only those with this code, ``<error>`` for those without an answer.
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
