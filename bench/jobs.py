"""Creation of 1,000 Jobs, and their recreation after a failure: the manager and a bare loop.

The bare loop sends the same requests (with the manager's bodies) by raw aiohttp with the same
number in flight, and does nothing else: no cache, no queue, no decisions. Etcd, API server, Job
controller and garbage collector are real; the Jobs have parallelism 0, so that pods do not affect
the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

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
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, connect
from support.cluster.follow import following
from support.cluster.objects import jobset
from support.patience import News


class JobWatch:
    """Existing Jobs of a namespace."""

    def __init__(self) -> None:
        self.live: dict[str, str] = {}
        self.on_deleted: Callable[[str], None] | None = None
        self.news = News()

    def note(self, job: Job, gone: bool) -> None:
        if gone:
            self.live.pop(job.metadata.name, None)
            if self.on_deleted is not None:
                self.on_deleted(job.metadata.name)
        else:
            self.live[job.metadata.name] = job.metadata.uid
        self.news.set()

    async def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 180) -> float:
        try:
            await self.news.until(condition, timeout_s)
        except TimeoutError:
            raise SystemExit(f"waited {timeout_s} s for {what}; {len(self.live)} Jobs") from None
        return time.monotonic()


async def bodies_of(client: Client, namespace: str) -> list[dict]:
    """Requests of the manager, derived from the stored objects."""
    answer = await client.raw(HttpRequest(method="GET", path=JOBS_PATH.format(namespace)))
    return [as_sent(item) for item in msgspec.json.decode(answer.body)["items"]]


async def fail_job(client: Client, namespace: str, name: str) -> None:
    """Mark a Job as failed, as the Job controller does."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "bench",
         "lastProbeTime": now, "lastTransitionTime": now}
        for kind in ("FailureTarget", "Failed")
    ]  # fmt: skip
    status: dict = {"conditions": conditions}
    job = await client.get(Job, namespace, name)
    if job.status.start_time is None:
        status["startTime"] = now
    await client.merge_patch(Job, namespace, name, {"status": status}, subresource="status")


def job_template() -> dict:
    container = {"name": "worker", "image": "bench.invalid/worker:1"}
    return {
        "spec": {
            "parallelism": 0,
            "completions": 1,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }
    }


async def by_manager(
    client: Client, kubeconfig: str, namespace: str, count: int, log: Path
) -> dict[str, float]:
    """Create and recreate through the manager; return wall and CPU seconds."""
    async with contextlib.AsyncExitStack() as stack:
        manager = await stack.enter_async_context(manager_process(kubeconfig, log))
        watch = JobWatch()
        await stack.enter_async_context(following(client, Job, watch.note, namespace=namespace))
        manager.mark()
        start = time.monotonic()
        await client.create(
            JobSet,
            namespace,
            jobset(
                "js",
                {"name": "w", "replicas": count, "template": job_template()},
                network={"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                successPolicy={"operator": "All"},
                failurePolicy={"maxRestarts": 100},
            ),
        )
        created = await watch.wait(lambda: len(watch.live) == count, f"{count} Jobs") - start
        create_cpu = manager.cpu()
        await asyncio.sleep(3.0)
        settled_cpu = manager.cpu()
        old = dict(watch.live)
        manager.mark()
        start = time.monotonic()
        await fail_job(client, namespace, "js-w-0")
        recreated = (
            await watch.wait(
                lambda: (
                    len(watch.live) == count
                    and all(old[name] != uid for name, uid in watch.live.items())
                ),
                f"{count} new Jobs",
            )
            - start
        )
        restart_cpu = manager.cpu()
        await asyncio.sleep(3.0)
        restart_settled_cpu = manager.cpu()
        bodies = await bodies_of(client, namespace)
        Path(log.parent / "bodies.json").write_bytes(msgspec.json.encode(bodies))
        await client.delete(JobSet, namespace, "js", propagation="Foreground")
        await watch.wait(lambda: not watch.live, "no Jobs")
        return {
            "create": created, "create_cpu": create_cpu, "create_settled": settled_cpu,
            "recreate": recreated, "recreate_cpu": restart_cpu,
            "recreate_settled": restart_settled_cpu, "peak_mb": manager.peak_mb(),
        }  # fmt: skip


async def by_bare_loop(
    client: Client, kubeconfig: str, namespace: str, bodies: list[bytes], names: list[str]
) -> dict[str, float]:
    """Create and recreate by the bare loop; return wall seconds."""
    count = len(bodies)
    by_name = dict(zip(names, bodies, strict=True))
    bare = BareLoop(kubeconfig)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(bare.close)
        tasks = await stack.enter_async_context(aio.supervise())
        watch = JobWatch()
        await stack.enter_async_context(following(client, Job, watch.note, namespace=namespace))
        start = time.monotonic()
        await in_parallel(IN_FLIGHT, [lambda b=b: bare.create_job(namespace, b) for b in bodies])
        created = await watch.wait(lambda: len(watch.live) == count, f"{count} Jobs") - start
        await asyncio.sleep(3.0)
        old = dict(watch.live)
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def create(name: str) -> None:
            async with limit:
                await bare.create_job(namespace, by_name[name])

        watch.on_deleted = lambda name: tasks.start(create(name), name="create") and None
        start = time.monotonic()
        await in_parallel(IN_FLIGHT, [lambda n=n: bare.delete_job(namespace, n) for n in names])
        recreated = (
            await watch.wait(
                lambda: (
                    len(watch.live) == count
                    and all(old[name] != uid for name, uid in watch.live.items())
                ),
                f"{count} new Jobs",
            )
            - start
        )
        watch.on_deleted = None
        await in_parallel(IN_FLIGHT, [lambda n=n: bare.delete_job(namespace, n) for n in names])
        await watch.wait(lambda: not watch.live, "no Jobs")
        return {"create": created, "recreate": recreated}


async def measure(kubeconfig: str, count: int, rounds: int, log: Path) -> None:
    client = await connect(kubeconfig=kubeconfig, qps=0)
    ours: list[dict[str, float]] = []
    bare: list[dict[str, float]] = []
    async with contextlib.aclosing(client):
        await install_crd(client)
        for number in range(rounds):
            namespace = f"bench-{number}"
            await create_namespace(client, namespace)
            ours.append(await by_manager(client, kubeconfig, namespace, count, log))
            data = msgspec.json.decode((log.parent / "bodies.json").read_bytes())
            bodies = [msgspec.json.encode(body) for body in data]
            names = [body["metadata"]["name"] for body in data]
            bare.append(await by_bare_loop(client, kubeconfig, namespace, bodies, names))
            say(
                f"round {number + 1}: create {ours[-1]['create']:.2f} s (bare "
                f"{bare[-1]['create']:.2f}), recreate {ours[-1]['recreate']:.2f} s (bare "
                f"{bare[-1]['recreate']:.2f}), cpu {ours[-1]['create_cpu']:.2f} / "
                f"{ours[-1]['recreate_cpu']:.2f} s"
            )

    def ratio(key: str) -> str:
        return spread([a[key] / b[key] for a, b in zip(ours, bare, strict=True)], "x")

    def medians(key: str) -> str:
        mine = statistics.median([a[key] for a in ours])
        return f"{mine / statistics.median([b[key] for b in bare]):.2f}x"

    def column(key: str) -> str:
        return spread([a[key] for a in ours], " s")

    table(
        f"{count} Jobs, {rounds} rounds, min/median/max",
        [
            ("created: wall", column("create"), ""),
            ("created: bare loop", spread([b["create"] for b in bare], " s"), ""),
            ("created: ratio", ratio("create"), "<= 1.2x"),
            ("created: ratio of medians", medians("create"), "<= 1.2x"),
            ("created: manager CPU", column("create_cpu"), "<= 0.75 s"),
            ("created: manager CPU, 3 s later", column("create_settled"), ""),
            ("recreated: wall", column("recreate"), ""),
            ("recreated: bare loop", spread([b["recreate"] for b in bare], " s"), ""),
            ("recreated: ratio", ratio("recreate"), "<= 1.2x"),
            ("recreated: ratio of medians", medians("recreate"), "<= 1.2x"),
            ("recreated: manager CPU", column("recreate_cpu"), "<= 2.8 s"),
            ("recreated: manager CPU, 3 s later", column("recreate_settled"), ""),
            ("peak memory", spread([a["peak_mb"] for a in ours], " MB", 0), ""),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(
            name="bench-jobs",
            controller_manager_args=[
                "--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-job-syncs=20",
                "--concurrent-gc-syncs=50",
            ],
        ) as cluster,
    ):  # fmt: skip
        uvloop.run(
            measure(
                str(cluster.kubeconfig), options.jobs, options.rounds, Path(folder) / "manager.log"
            )
        )


if __name__ == "__main__":
    main()
