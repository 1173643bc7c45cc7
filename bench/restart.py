"""Restart in place of a large JobSet, measured at the manager.

Etcd, API server and Job controller are real; without nodes, the pods stay Pending, and this program
simulates the agents: it patches each pod's epoch as fast as the API server allows. Measured for
each restart: the manager's CPU and memory, the time from the first new epoch until the old one is
deprecated, the time from the last one until the new one is synced, and the number of status writes.

The last two times contain the API server's delay until it delivers an event, which is most of them
while thousands of patches keep two cores busy. A watch of the last pod, opened by this program,
receives the event at the same time as the manager does; the time after it is the manager's share.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.common import (
    counting_instructions,
    create_namespace,
    in_parallel,
    install_crd,
    instructions,
    manager_process,
    say,
    spread,
    table,
)
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client, connect
from support.cluster.follow import following
from support.cluster.objects import in_place_jobset
from support.patience import News

NAMESPACE = "bench"


class PodWatch:
    """Records when each epoch of one pod is first delivered."""

    def __init__(self) -> None:
        self.delivered: dict[str, float] = {}

    def note(self, pod: ChildPod, gone: bool) -> None:
        if not gone:
            self.delivered.setdefault(pod.metadata.annotations.epoch or "", time.monotonic())


class JobSetWatch:
    """Records when each epoch first appears in the status, and every version that was written."""

    def __init__(self) -> None:
        self.synced: dict[int, float] = {}
        self.deprecated: dict[int, float] = {}
        self.versions: list[tuple[float, int, int]] = []
        self.news = News()

    def note(self, jobset: JobSet, gone: bool) -> None:
        if gone:
            return
        now = time.monotonic()
        pair = (jobset.status.synced_epoch, jobset.status.deprecated_epoch)
        if not self.versions or self.versions[-1][1:] != pair:
            self.versions.append((now, *pair))
        self.synced.setdefault(pair[0], now)
        self.deprecated.setdefault(pair[1], now)
        self.news.set()

    async def wait(self, seen: dict[int, float], epoch: int, timeout_s: float = 60) -> float:
        await self.news.until(lambda: epoch in seen, timeout_s)
        return seen[epoch]


async def pod_names(client: Client) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        page = await client.list_page(ChildPod, NAMESPACE, limit=500, continue_token=token)
        names += [
            pod.metadata.name for pod in page.items if pod.metadata.deletion_timestamp is None
        ]
        token = page.continue_token
        if not token:
            return names


async def measure(
    kubeconfig: str, jobs: int, pods_per_job: int, log: Path, options: argparse.Namespace
) -> None:
    rounds, report = options.rounds, log.with_suffix(".instructions")
    total = jobs * pods_per_job
    name = f"js{total}"
    client = await connect(kubeconfig=kubeconfig, qps=0)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        await install_crd(client)
        await create_namespace(client, NAMESPACE)
        manager = await stack.enter_async_context(
            manager_process(
                kubeconfig, log, python=[options.python],
                prefix=counting_instructions(report) if options.instructions else [],
            )
        )  # fmt: skip
        empty_mb = manager.rss_mb()
        await client.create(
            JobSet,
            NAMESPACE,
            in_place_jobset(
                name, jobs=jobs, pods=pods_per_job, max_restarts=1000,
                network={"enableDNSHostnames": False},
            ),
        )  # fmt: skip
        start = time.monotonic()
        names: list[str] = []
        while len(names) < total:
            await asyncio.sleep(1.0)
            names = await pod_names(client)
            if time.monotonic() - start > 600:
                raise SystemExit(f"only {len(names)} of {total} pods were created in 600 s")
        say(f"{total} pods created by the Job controller in {time.monotonic() - start:.0f} s")
        watch = JobSetWatch()
        await stack.enter_async_context(
            following(
                client, JobSet, watch.note, namespace=NAMESPACE,
                field_selector=f"metadata.name={name}",
            )
        )  # fmt: skip

        last_pod = PodWatch()
        await stack.enter_async_context(
            following(
                client, ChildPod, last_pod.note, namespace=NAMESPACE,
                field_selector=f"metadata.name={names[-1]}",
            )
        )  # fmt: skip

        async def patch(pod: str, epoch: int) -> None:
            body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
            await client.merge_patch(ChildPod, NAMESPACE, pod, body)

        async def all_to(epoch: int, pods: list[str]) -> None:
            await in_parallel(32, [lambda p=p: patch(p, epoch) for p in pods])

        await all_to(1, names)
        await watch.wait(watch.synced, 1)
        say("first start synced at epoch 1")
        cpu, to_deprecated, to_synced, share, writes, took = [], [], [], [], [], []
        for epoch in range(2, rounds + 2):
            await asyncio.sleep(3.0)  # let status counters and bookmarks settle
            manager.mark()
            seen = len(watch.versions)
            begin = time.monotonic()
            await patch(names[0], epoch)
            first = time.monotonic()
            deprecated = await watch.wait(watch.deprecated, epoch - 1)
            await all_to(epoch, names[1:-1])
            await patch(names[-1], epoch)
            last = time.monotonic()
            synced = await watch.wait(watch.synced, epoch)
            await asyncio.sleep(1.0)
            cpu.append(manager.cpu())
            to_deprecated.append((deprecated - first) * 1000)
            to_synced.append((synced - last) * 1000)
            share.append((synced - last_pod.delivered.get(str(epoch), synced)) * 1000)
            writes.append(len(watch.versions) - seen)
            took.append(synced - begin)
            say(
                f"epoch {epoch}: cpu {cpu[-1]:.2f} s, deprecated after {to_deprecated[-1]:.0f} ms, "
                f"synced after {to_synced[-1]:.0f} ms ({share[-1]:.0f} of them from the event on), "
                f"{writes[-1]} writes, {took[-1]:.1f} s in all"
            )
        table(
            f"Restart of {total} pods ({jobs} Jobs x {pods_per_job}), {rounds} rounds: min/med/max",
            [
                ("manager CPU per restart", spread(cpu, " s"), "<= 1.5 s at 5,000"),
                (
                    "manager CPU per pod",
                    spread([c / total * 1e6 for c in cpu], " us", 0),
                    "constant",
                ),
                ("peak memory", f"{manager.peak_mb():.0f} MB", "<= 130 MB at 5,000"),
                ("memory without pods", f"{empty_mb:.0f} MB", ""),
                (
                    "first epoch patch -> deprecatedEpoch",
                    spread(to_deprecated, " ms", 0),
                    "<= 30 ms",
                ),
                ("last epoch patch -> syncedEpoch", spread(to_synced, " ms", 0), "<= 80 ms"),
                ("last epoch delivered -> syncedEpoch", spread(share, " ms", 0), "<= 40 ms"),
                ("status writes of epochs", spread(writes, "", 0), "2"),
                ("whole restart (all patches)", spread(took, " s"), ""),
            ],
        )
        await client.delete(JobSet, NAMESPACE, name, propagation="Foreground")
        await until_gone(client)
    if options.instructions:
        say(f"instructions of the manager's whole life: {instructions(report) / 1e9:.2f} G")


async def until_gone(client: Client) -> None:
    start = time.monotonic()
    while await pod_names(client):
        await asyncio.sleep(1.0)
        if time.monotonic() - start > 300:
            raise SystemExit("the pods of the JobSet are not deleted after 300 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--size", action="append", metavar="JOBSxPODS", help="default 10x100, 50x100"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="that runs the manager, as of another checkout's .venv",
    )
    parser.add_argument(
        "--instructions", action="store_true", help="of the manager, with valgrind's cachegrind"
    )
    options = parser.parse_args()
    sizes = options.size or ["10x100", "50x100"]
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(
            name="bench-restart",
            controller_manager_args=[
                "--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-job-syncs=20",
                "--concurrent-gc-syncs=50",
            ],
        ) as cluster,
    ):  # fmt: skip
        for size in sizes:
            jobs, _, pods = size.partition("x")
            uvloop.run(
                measure(
                    str(cluster.kubeconfig), int(jobs), int(pods),
                    Path(folder) / f"manager-{size}.log", options,
                )
            )  # fmt: skip


if __name__ == "__main__":
    main()
