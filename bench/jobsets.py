"""Creation of 200 JobSets of 10 Jobs: the manager and a bare loop of the same requests.

Etcd and API server are real. There is no Job controller by default: its requests would affect the
figures. Each JobSet costs its creation, a Service, its Jobs and one status write; the bare loop
sends exactly these, in that order for each JobSet and for all JobSets simultaneously, on as many
connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import msgspec
import uvloop

from bench.bare_loop import IN_FLIGHT, JOBS_PATH, BareLoop, as_sent
from bench.common import (
    create_namespace,
    in_parallel,
    install_crd,
    manager_process,
    say,
    spread,
    table,
)
from bench.jobs import JobWatch, job_template
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, connect
from support.cluster.follow import following
from support.cluster.manager_process import free_port
from support.cluster.objects import jobset

JOBSETS_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
SERVICES_PATH = "/api/v1/namespaces/{}/services"
SETTLE_S = 3.0
LIMITS = (500, 0)
"""The manager's limits of requests per second: its default (with a burst of 500), and none."""


def small_jobset(name: str, jobs: int, parallelism: int) -> dict:
    template = job_template()
    template["spec"]["parallelism"] = parallelism
    return jobset(
        name,
        {"name": "w", "replicas": jobs, "template": template},
        network={"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        successPolicy={"operator": "All"},
    )


class StatusWatch:
    """JobSets that have a status."""

    def __init__(self, watch: JobWatch) -> None:
        self.seen: set[str] = set()
        self.watch = watch

    def note(self, obj: JobSet, gone: bool) -> None:
        if not gone and obj.status.replicated_jobs_status:
            self.seen.add(obj.metadata.name)
        self.watch.news.set()


@contextlib.asynccontextmanager
async def watching(client: Client, namespace: str):
    """The Jobs of a namespace, and the JobSets with a status."""
    watch = JobWatch()
    statuses = StatusWatch(watch)
    async with (
        following(client, Job, watch.note, namespace=namespace),
        following(client, JobSet, statuses.note, namespace=namespace),
    ):
        yield watch, statuses


async def by_name(client: Client, path: str) -> dict[str, dict]:
    answer = await client.raw(HttpRequest(method="GET", path=path))
    return {item["metadata"]["name"]: item for item in msgspec.json.decode(answer.body)["items"]}


def writes(metrics_port: int) -> int:
    """Number of the manager's writes so far, except those of its Lease."""
    url = f"http://127.0.0.1:{metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in lines
        if line.startswith("rest_client_requests_total{")
        and 'method="GET"' not in line
        and 'resource="leases"' not in line
    )


@attrs.frozen
class Setup:
    """Cluster and settings of the manager."""

    kubeconfig: str
    log: Path
    job_controller: bool


async def by_manager(
    client: Client, setup: Setup, namespace: str, bodies: list[dict], *, jobs: int, qps: int
) -> dict[str, float]:
    """Create all JobSets, and wait for the manager with this limit."""
    count = len(bodies)
    async with contextlib.AsyncExitStack() as stack:
        port = free_port()
        flags = [
            f"--kube-api-qps={qps}",
            f"--metrics-bind-address=127.0.0.1:{port}",
            "--metrics-secure=false",
        ]
        manager = await stack.enter_async_context(
            manager_process(setup.kubeconfig, setup.log, *flags)
        )
        watch, statuses = await stack.enter_async_context(watching(client, namespace))
        idle_mb = manager.peak_mb()
        manager.mark()
        before = writes(port)
        start = time.monotonic()
        await in_parallel(
            IN_FLIGHT, [lambda b=b: client.create(JobSet, namespace, b) for b in bodies]
        )
        posted = time.monotonic() - start
        jobs_there = await watch.wait(lambda: len(watch.live) == count * jobs, "all Jobs") - start
        all_there = await watch.wait(lambda: len(statuses.seen) == count, "statuses") - start
        cpu = manager.cpu()
        await asyncio.sleep(SETTLE_S)
        return {
            "posted": posted, "jobs": jobs_there, "wall": all_there, "cpu": cpu,
            "settled": manager.cpu(), "idle_mb": idle_mb, "peak_mb": manager.peak_mb(),
            "writes": writes(port) - before,
        }  # fmt: skip


async def by_bare_loop(
    client: Client, kubeconfig: str, namespace: str, sets: list[tuple[bytes, ...]], jobs: int
) -> dict[str, float]:
    """Send the same requests; ``sets``: JobSet, Service, status and Jobs of each."""
    bare = BareLoop(kubeconfig)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(bare.close)
        watch, statuses = await stack.enter_async_context(watching(client, namespace))
        path = JOBSETS_PATH.format(namespace)

        async def one(name: str, own: bytes, service: bytes, status: bytes, *rest: bytes) -> None:
            await bare.send("POST", path, own)
            await bare.send("POST", SERVICES_PATH.format(namespace), service)
            async with asyncio.TaskGroup() as group:
                for body in rest:
                    group.create_task(bare.create_job(namespace, body))
            kind = "application/merge-patch+json"
            await bare.send("PATCH", f"{path}/{name}/status", status, content_type=kind)

        start = time.monotonic()
        tasks = await stack.enter_async_context(aio.supervise())
        for number, (own, service, status, *rest) in enumerate(sets):
            tasks.start(one(f"js-{number}", own, service, status, *rest), name="jobset")
        await watch.wait(lambda: len(watch.live) == len(sets) * jobs, "all Jobs")
        wall = await watch.wait(lambda: len(statuses.seen) == len(sets), "statuses") - start
        return {"wall": wall}


async def as_requests(client: Client, namespace: str, bodies: list[dict]) -> list[tuple]:
    """Return the requests of each JobSet, derived from the stored objects."""
    jobs = await by_name(client, JOBS_PATH.format(namespace))
    services = await by_name(client, SERVICES_PATH.format(namespace))
    stored = await by_name(client, JOBSETS_PATH.format(namespace))
    by_set: dict[str, list[bytes]] = {}
    for job_name, job in jobs.items():
        name = job_name.rsplit("-", 2)[0]
        by_set.setdefault(name, []).append(msgspec.json.encode(as_sent(job)))
    out = []
    for body in bodies:
        name = body["metadata"]["name"]
        wanted = services[name]["spec"]
        service = {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {k: wanted[k] for k in ("clusterIP", "selector", "publishNotReadyAddresses")},
        }  # fmt: skip
        out.append((
            msgspec.json.encode(body), msgspec.json.encode(service),
            msgspec.json.encode({"status": stored[name]["status"]}), *by_set[name],
        ))  # fmt: skip
    return out


async def remove(client: Client, namespace: str) -> None:
    """Delete everything without waiting for a garbage collector."""
    for path in (JOBS_PATH, JOBSETS_PATH):
        url = f"{path.format(namespace)}?propagationPolicy=Background"
        await client.raw(HttpRequest(method="DELETE", path=url))


async def measure(setup: Setup, count: int, jobs: int, rounds: int) -> None:
    # Without a Job controller there are no pods, and Jobs with parallelism 1 are not ready yet.
    parallelism = int(not setup.job_controller)
    client = await connect(kubeconfig=setup.kubeconfig, qps=0)
    ours: dict[int, list[dict[str, float]]] = {qps: [] for qps in LIMITS}
    bare: list[float] = []
    bodies = [small_jobset(f"js-{number}", jobs, parallelism) for number in range(count)]
    async with contextlib.aclosing(client):
        await install_crd(client)
        for number in range(rounds):
            sets: list[tuple] = []
            for qps in LIMITS:
                name = f"manager-{number}-{qps}"
                await create_namespace(client, name)
                ours[qps].append(await by_manager(client, setup, name, bodies, jobs=jobs, qps=qps))
                sets = await as_requests(client, name, bodies)
                await remove(client, name)
            name = f"loop-{number}"
            await create_namespace(client, name)
            bare.append((await by_bare_loop(client, setup.kubeconfig, name, sets, jobs))["wall"])
            await remove(client, name)
            walls = ", ".join(f"{ours[qps][-1]['wall']:.2f} s (qps {qps})" for qps in LIMITS)
            say(f"round {number + 1}: {walls}, bare {bare[-1]:.2f} s")
    rows = [("bare loop: wall", spread(bare, " s"), "")]
    for qps, results in ours.items():
        rows += figures(qps, results, bare, count * (jobs + 2))
    table(f"{count} JobSets of {jobs} Jobs, {rounds} rounds, min/median/max", rows)


def figures(
    qps: int, results: list[dict[str, float]], bare: list[float], least: int
) -> list[tuple[str, str, str]]:
    """Return the rows of one limit; ``least``: minimum number of writes."""

    def column(key: str, unit: str = " s", digits: int = 2) -> str:
        return spread([each[key] for each in results], unit, digits)

    walls = [each["wall"] for each in results]
    limit = f"{qps} requests a second" if qps else "no limit"
    return [
        (f"with {limit}: wall", column("wall"), f">= {(least - 500) / qps:.1f} s" if qps else ""),
        ("  all JobSets posted", column("posted"), ""),
        ("  all Jobs there", column("jobs"), ""),
        ("  ratio", spread([a / b for a, b in zip(walls, bare, strict=True)], "x"), ""),
        ("  ratio of medians", f"{statistics.median(walls) / statistics.median(bare):.2f}x", ""),
        ("  manager's writes", column("writes", "", 0), f"{least}"),
        ("  manager CPU", column("cpu"), ""),
        ("  manager CPU, 3 s later", column("settled"), ""),
        ("  memory before", column("idle_mb", " MB", 0), ""),
        ("  peak memory", column("peak_mb", " MB", 0), ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobsets", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job-controller", action="store_true", help="also run a Job controller")
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(
            name="bench-jobsets", controller_manager=options.job_controller, scheduler=False
        ) as cluster,
    ):
        setup = Setup(str(cluster.kubeconfig), Path(folder) / "manager.log", options.job_controller)
        uvloop.run(measure(setup, options.jobsets, options.jobs, options.rounds))


if __name__ == "__main__":
    main()
