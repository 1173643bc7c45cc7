"""Restarts in place of real pods on one real node: time until all workers run again.

The project's own images and manifests, a real kubelet; each round kills one worker with SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics

import uvloop
from common import say, spread, table

from cluster import Cluster  # type: ignore[import-not-found]
from install import install_manager
from jobsetpy.client import connect
from scenario import (
    build_images,
    gang_jobset,
    manager_ready,
    pod_log_folders,
    restart_once,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)


async def measure(cluster: Cluster, pods: int, rounds: int, mode: str) -> None:
    client = await connect(kubeconfig=str(cluster.kubeconfig))
    restarts = []
    try:
        await install_manager(client)
        await manager_ready(client)
        gang = (gang_jobset if mode == "sidecar" else supervised_jobset)("bench", pods)
        gang["spec"]["failurePolicy"]["maxRestarts"] = rounds + 1
        async with run_gang(client, gang, pods, pod_log_folders(cluster)) as timeline:
            say(f"{pods} workers run")
            for number in range(rounds):
                await asyncio.sleep(5.0)
                if mode == "sidecar":
                    restart = await restart_once(timeline, pods)
                else:
                    restart = await restart_supervised_once(timeline, pods, "worker started")
                restarts.append(restart)
                say(f"round {number + 1}: {restart.seconds:.2f} s")
    finally:
        await client.aclose()
    rows = [("all workers run again", spread([r.seconds for r in restarts], " s"), "")]
    for index, phase in enumerate(restarts[0].phases):
        moments = [r.phases[index].at for r in restarts]
        what = phase.what.replace("epoch 2", "the new epoch").replace("epoch 1", "the old one")
        rows.append((f"  {what}", spread(moments, " s"), ""))
    rows.append(("pods recreated", str(sum(r.recreated for r in restarts)), "0"))
    table(f"Restart of {pods} real pods, {mode} mode, {rounds} rounds: min/med/max", rows)
    say(f"median {statistics.median(r.seconds for r in restarts):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", choices=("sidecar", "supervisor"), default="sidecar")
    options = parser.parse_args()
    say("building the images and starting a cluster with one node")
    images = build_images()
    with Cluster(name="bench-pods", nodes=1, images=images) as cluster:
        uvloop.run(measure(cluster, options.pods, options.rounds, options.mode))


if __name__ == "__main__":
    main()
