"""A crash loop of a supervised group on one real node, with the back-off of restarts and without.

One worker fails two seconds after each start, for some minutes; then the group runs. Later one
worker is killed: the long run has ended the series, so that restart is not delayed. The benchmark
counts restarts in place and the API server's requests.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from typing import Any

import attrs
import uvloop

from bench.common import say, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest
from support.restarts.scenario import (
    NAMESPACE,
    WORKER_SCRIPT,
    build_images,
    managed,
    pod_log_folders,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)

RUN_S = 2
FIRST_RUN_S = 20
RESET_S = 60
CRASHING = (
    f'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then since=/dev/shm/since; '
    f"[ -e $since ] || {{ date +%s >$since; sleep {FIRST_RUN_S}; exit 1; }}; "
    f'if [ $(($(date +%s) - $(cat $since))) -lt "$CRASH_S" ]; then sleep {RUN_S}; exit 1; fi; '
    f"fi; {WORKER_SCRIPT}"
)
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)


@attrs.frozen
class Loop:
    """Observations of one crash loop."""

    seconds: float
    restarts: int
    waits: list[float]
    requests: Counter[str]
    condition: str


async def requests(client: Client) -> Counter[str]:
    """Number of requests that the API server has answered, by verb and resource."""
    text = (await client.raw(HttpRequest(method="GET", path="/metrics"))).body.decode()
    out: Counter[str] = Counter()
    for labels, value in _REQUESTS.findall(text):
        by = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        resource = "/".join(filter(None, (by["resource"], by.get("subresource"))))
        if by["group"] == "events.k8s.io" or resource == "events":
            resource = "events"
        out[f"{by['verb']} {resource}"] += round(float(value))
    return out


def crashing(name: str, pods: int, seconds: float, backoff: str | None) -> dict[str, Any]:
    """A group whose first worker crashes for a given time."""
    environ = {"CRASH_S": str(round(FIRST_RUN_S + seconds))}
    jobset = supervised_jobset(name, pods, command=("sh", "-c", CRASHING), environ=environ)
    jobset["spec"]["failurePolicy"]["maxRestarts"] = 100_000
    notes = jobset["metadata"]["annotations"]
    del notes[keys.RESTART_BACKOFF_ANNOTATION]
    notes[keys.RESTART_BACKOFF_RESET_ANNOTATION] = f"{RESET_S}s"
    if backoff is not None:
        notes[keys.RESTART_BACKOFF_ANNOTATION] = backoff
    return jobset


async def crash_loop(
    client: Client, cluster: Cluster, pods: int, seconds: float, backoff: str | None
) -> tuple[Loop, float]:
    """Measure a crash loop, and a restart after a long run."""
    name = "crash-loop" if backoff is None else f"crash-loop-{backoff}"
    jobset = crashing(name, pods, seconds, backoff)
    async with run_gang(client, jobset, pods, pod_log_folders(cluster)) as timeline:
        await timeline.wait(lambda: 2 in timeline.synced, 120, "the first restart")
        began = time.time()
        before = await requests(client)
        condition = ""
        while (left_s := began + seconds - time.time()) > 0:
            await asyncio.sleep(min(5, left_s))
            for each in (await client.get(JobSet, NAMESPACE, name)).status.conditions:
                if "waits" in each.message:
                    condition = each.message
        spent = await requests(client)
        spent.subtract(before)
        synced, old = dict(timeline.synced), dict(timeline.deprecated)
        restarts = sum(1 for epoch in synced if epoch > 2)
        waits = [synced[e] - old[e - 1] for e in sorted(synced) if e - 1 in old and e > 1]
        loop = Loop(time.time() - began, restarts, waits, spent, condition)
        say(f"{name}: {restarts} restarts in {loop.seconds:.0f} s; waits for the last start")
        quiet_since = time.time()
        newest = max(timeline.synced)
        while time.time() - quiet_since < RESET_S + 3:
            await asyncio.sleep(1)
            if max(timeline.synced) != newest:
                newest, quiet_since = max(timeline.synced), time.time()
            jobset_now = await client.get(JobSet, NAMESPACE, name)
            if jobset_now.status.deprecated_epoch >= jobset_now.status.synced_epoch:
                quiet_since = time.time()
        restart = await restart_supervised_once(timeline, pods, "worker started", script=CRASHING)
        return loop, restart.seconds


def report(pods: int, results: dict[str, tuple[Loop, float]]) -> None:
    """One table for each loop."""
    for name, (loop, again_s) in results.items():
        minutes = loop.seconds / 60
        rows = [
            ("restarts", str(loop.restarts), f"{loop.restarts / minutes:.1f} a minute"),
            ("from the failure to the start", ", ".join(f"{w:.1f}" for w in loop.waits[:14]), "s"),
            ("the last condition that waits", loop.condition.rpartition("; ")[2], ""),
        ]
        total = sum(count for count in loop.requests.values() if count > 0)
        rows.append(("requests", str(total), f"{total / minutes:.0f} a minute"))
        rows += [
            (f"  {what}", str(count), f"{count / minutes:.1f} a minute")
            for what, count in loop.requests.most_common(8)
            if count > 0
        ]
        rows.append((f"a restart after {RESET_S} s of running", f"{again_s:.2f} s", "not delayed"))
        table(f"Crash loop, {pods} supervised pods, {minutes:.0f} min, back-off {name}", rows)


async def run(cluster: Cluster, options: argparse.Namespace) -> dict[str, tuple[Loop, float]]:
    """Measure without the back-off, then with it."""
    async with managed(cluster.kubeconfig) as client:
        results = {}
        if options.off_minutes:
            off_s = options.off_minutes * 60
            results["off"] = await crash_loop(client, cluster, options.pods, off_s, "0")
        minutes = options.minutes * 60
        results["on"] = await crash_loop(client, cluster, options.pods, minutes, None)
        return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10, help="with the back-off (default 10)")
    parser.add_argument("--off-minutes", type=float, default=1, help="without it (default 1)")
    options = parser.parse_args()
    say("building the images and starting a cluster with one node")
    images = build_images()
    with Cluster(name="crash-loop", nodes=1, images=images) as cluster:
        results = uvloop.run(run(cluster, options))
    report(options.pods, results)


if __name__ == "__main__":
    main()
