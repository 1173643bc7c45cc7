"""Cost of a process with a share of the pods (KEP-5866), with a real API server.

Pods of 6 kB are created without a Job controller. In each way, processes with an informer of pods
like the manager's list them, and then each pod is changed once: one process with all pods, two for
which the server sends one half each (with its feature gate), and two that receive all pods and drop
the other half.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import uvloop

from bench.common import ROOT, in_parallel, say, table
from bench.memory import pod_json
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.aio import supervise
from jobsetpy.api import keys
from jobsetpy.api.core import Namespace
from jobsetpy.api.jobset import ChildPod
from jobsetpy.client import Client, connect
from jobsetpy.informers import NullObserver, Shard, SharedInformer, WatchOptions

NAMESPACES = ("research", "vision", "speech", "search", "ads", "maps", "robotics", "weather")


class Observer(NullObserver):
    """Counts decoded events."""

    def __init__(self) -> None:
        self.events = 0
        self.by_server: bool | None = None

    def on_event(self, kind: str, type_: str) -> None:  # noqa: ARG002 - the hook's signature
        self.events += 1

    def on_shard(self, kind: str, *, by_server: bool) -> None:  # noqa: ARG002 - as above
        self.by_server = by_server


async def follow(kubeconfig: str, shard: Shard | None) -> None:
    """The measured process; reports at the end of its list, and when it receives a line."""
    client = await connect(kubeconfig=kubeconfig, qps=0)
    observer = Observer()
    began = time.process_time()
    options = WatchOptions(label_selector=keys.JOBSET_NAME, shard=shard, observer=observer)
    informer = SharedInformer(client, ChildPod, options)

    def report() -> None:
        nonlocal began
        now = time.process_time()
        figures = {
            "cpu_s": now - began,
            "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
            "pods": len(informer.store),
            "events": observer.events,
            "by_server": observer.by_server,
        }
        began = now
        print(json.dumps(figures), flush=True)

    async with supervise() as tasks:
        following = tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()
        report()
        await asyncio.to_thread(sys.stdin.readline)
        report()
        following.cancel()
    await client.aclose()


@contextlib.asynccontextmanager
async def follower(kubeconfig: str, shard: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.sharded_watches", "--follow", kubeconfig, "--shard", shard,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def report_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(600):
        line = await process.stdout.readline()
    figures: dict[str, Any] = json.loads(line)
    return figures


async def make_pods(client: Client, count: int) -> None:
    for name in NAMESPACES:
        await client.create(Namespace, "", {"metadata": {"name": name}})

    async def create(number: int) -> None:
        body = json.loads(pod_json(number // 100, number % 100))
        meta = body["metadata"]
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            del meta[name]
        meta |= {"name": f"p{number}", "namespace": NAMESPACES[number % len(NAMESPACES)]}
        body["spec"]["restartPolicy"] = "Never"
        await client.create(ChildPod, meta["namespace"], body)

    await in_parallel(32, [lambda n=number: create(n) for number in range(count)])


async def change_pods(client: Client, count: int, text: str) -> None:
    body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: text}}}

    async def change(number: int) -> None:
        namespace = NAMESPACES[number % len(NAMESPACES)]
        await client.merge_patch(ChildPod, namespace, f"p{number}", body)

    await in_parallel(32, [lambda n=number: change(n) for number in range(count)])


async def measure(
    kubeconfig: str, pods: int, ways: dict[str, list[str]]
) -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Return each process's reports after the list, and after the changes."""
    client = await connect(kubeconfig=kubeconfig, qps=0)
    results = {}
    try:
        await make_pods(client, pods)
        say(f"{pods} pods created")
        for number, (way, shards) in enumerate(ways.items()):
            async with contextlib.AsyncExitStack() as stack:
                running = [
                    await stack.enter_async_context(follower(kubeconfig, shard)) for shard in shards
                ]
                listed = [await report_of(each) for each in running]
                await change_pods(client, pods, str(number + 1))
                await asyncio.sleep(3)
                for each in running:
                    assert each.stdin is not None
                    each.stdin.write(b"\n")
                changed = [await report_of(each) for each in running]
                results[way] = list(zip(listed, changed, strict=True))
    finally:
        await client.aclose()
    return results


def described(listed: dict[str, Any], changed: dict[str, Any]) -> str:
    """The figures of one process."""
    filtered = {True: ", filtered by the server", False: ", filtered by itself"}
    return (
        f"{listed['pods']:,} pods, {changed['mb']:.0f} MB; list {listed['cpu_s']:.2f} s, changes "
        f"{changed['cpu_s']:.2f} s of CPU, {changed['events']:,} events"
        f"{filtered.get(listed['by_server'], '')}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--follow", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    parser.add_argument("--shard", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        shard = Shard.parse(options.shard) if options.shard else None
        uvloop.run(follow(options.follow, shard))
        return
    rows = []
    halves = ["0/2", "1/2"]
    for gate, ways in (
        ("true", {"one process": [""], "two, the server sends halves": halves}),
        ("false", {"two, the server sends everything": halves}),
    ):
        arguments = [f"--feature-gates=ShardedListAndWatch={gate}"]
        with Cluster(
            name="bench-shards", controller_manager=False, scheduler=False,
            apiserver_args=arguments,
        ) as cluster:  # fmt: skip
            results = uvloop.run(measure(str(cluster.kubeconfig), options.pods, ways))
        for way, processes in results.items():
            for number, (listed, changed) in enumerate(processes):
                rows.append((f"{way}: process {number}", described(listed, changed), ""))
    table(f"{options.pods:,} pods, each changed once", rows)


if __name__ == "__main__":
    main()
