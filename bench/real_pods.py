"""Restarts of real pods on a real node, in three ways: time until all workers run again.

With the project's images and manifests and a real kubelet; each round kills one worker with
SIGKILL. ``recreate`` uses the same JobSet without agents, whose Jobs are all recreated.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import uvloop

from bench.common import say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.client import Client
from support.restarts.scenario import (
    Restart,
    build_images,
    gang_jobset,
    managed,
    pod_log_folders,
    recreated_jobset,
    restart_by_recreation_once,
    restart_once,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)
from support.restarts.timeline import Timeline

SETTLE_S = 3.0
AIMS = {("sidecar", 16): 4.5, ("supervisor", 16): 0.3, ("supervisor", 40): 0.6}


@attrs.frozen
class Mode:
    """A way to restart: the JobSet's manifest, and the function for one restart."""

    jobset: Callable[[str, int], dict[str, Any]]
    restart: Callable[[Timeline, int], Awaitable[Restart]]


async def _supervised(timeline: Timeline, pods: int) -> Restart:
    return await restart_supervised_once(timeline, pods, "worker started")


MODES = {
    "recreate": Mode(recreated_jobset, restart_by_recreation_once),
    "sidecar": Mode(gang_jobset, restart_once),
    "supervisor": Mode(supervised_jobset, _supervised),
}


async def measure(
    client: Client, cluster: Cluster, mode: str, pods: int, rounds: int
) -> list[Restart]:
    """Restarts of one gang, one after the other."""
    gang = MODES[mode].jobset(f"{mode}-{pods}", pods)
    gang["spec"]["failurePolicy"]["maxRestarts"] = rounds + 1
    restarts = []
    began = time.monotonic()
    async with run_gang(client, gang, pods, pod_log_folders(cluster)) as timeline:
        say(f"{mode}: {pods} workers run after {time.monotonic() - began:.1f} s")
        for number in range(rounds):
            await asyncio.sleep(SETTLE_S)
            restart = await MODES[mode].restart(timeline, pods)
            restarts.append(restart)
            steps = ", ".join(f"{p.at:.2f}" for p in restart.phases)
            say(f"{mode}, {pods} pods, round {number + 1}: {restart.seconds:.2f} s ({steps})")
    return restarts


async def run(
    cluster: Cluster, gangs: list[tuple[str, int]], rounds: int
) -> dict[tuple[str, int], list[Restart]]:
    """All gangs, one after the other, on the same node."""
    async with managed(cluster.kubeconfig) as client:
        return {
            (mode, pods): await measure(client, cluster, mode, pods, rounds) for mode, pods in gangs
        }


def report(results: dict[tuple[str, int], list[Restart]], rounds: int) -> None:
    """One table: all gangs side by side, and below each where its time goes."""
    rows = []
    for (mode, pods), restarts in results.items():
        aim = AIMS.get((mode, pods))
        seconds = spread([r.seconds for r in restarts], " s")
        rows.append((f"{mode}, {pods} pods: all run again", seconds, f"<= {aim} s" if aim else ""))
        for index, phase in enumerate(restarts[0].phases[:-1]):
            what = phase.what.replace("epoch 2", "the new epoch").replace("epoch 1", "the old one")
            rows.append((f"  {what}", spread([r.phases[index].at for r in restarts], " s"), ""))
        wanted = "all" if mode == "recreate" else "0"
        rows.append(("  pods recreated", str(sum(r.recreated for r in restarts)), wanted))
    table(f"Restarts of real pods on one node, {rounds} rounds: min / med / max", rows)


def _gang(text: str) -> tuple[str, int]:
    mode, _, pods = text.partition(":")
    if mode not in MODES:
        raise SystemExit(f"--modes: {mode!r} is none of {', '.join(MODES)}")
    return mode, int(pods or 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=16, help="pods of a MODE alone (default 16)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--modes",
        default="recreate,sidecar,supervisor,supervisor:40",
        help="MODE or MODE:PODS, with commas (default %(default)s)",
    )
    options = parser.parse_args()
    gangs = [(mode, n or options.pods) for mode, n in map(_gang, options.modes.split(","))]
    say("building the images and starting a cluster with one node")
    images = build_images()
    with Cluster(name="bench-pods", nodes=1, images=images) as cluster:
        results = uvloop.run(run(cluster, gangs, options.rounds))
    report(results, options.rounds)


if __name__ == "__main__":
    main()
