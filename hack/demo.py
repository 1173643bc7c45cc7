"""Demonstration of restart in place: real pods, of which one worker is killed.

Starts a real cluster with one node, builds and loads the project's images, installs the manager
from its manifests, runs a JobSet, kills one worker's process with SIGKILL, waits until all workers
run again in their old pods, and prints the timeline of the restart. First with the agent as a
sidecar (the kubelet restarts the containers), then with the agent as the worker's parent (only the
worker's process restarts).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import uvloop
from rich.console import Console
from rich.table import Table

from hack.cluster import Cluster, ClusterError
from support.restarts.scenario import (
    Restart,
    build_images,
    gang_jobset,
    managed,
    pod_log_folders,
    restart_once,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)

MODES = ("sidecar", "supervisor")

console = Console(highlight=False, width=100 if not sys.stdout.isatty() else None)


def say(text: str, start: float) -> None:
    """Print a line of progress with the seconds since the start."""
    console.print(f"[dim]{time.monotonic() - start:6.1f} s[/dim]  {text}")


def show(restart: Restart, total: int, number: int) -> None:
    """Print one restart's timeline."""
    table = Table(title=f"Restart {number}: {restart.pod} was killed", title_justify="left")
    table.add_column("after", justify="right")
    table.add_column("what happened")
    for phase in sorted(restart.phases, key=lambda each: each.at):
        table.add_row(f"{phase.at:.2f} s", phase.what)
    console.print(table)
    console.print(
        f"All {total} workers run again [bold]{restart.seconds:.2f} s[/bold] after the failure, in "
        f"the same pods on the same node; {restart.recreated} pods were recreated."
    )


async def demo(
    cluster: Cluster, pods: int, rounds: int, modes: tuple[str, ...], start: float
) -> None:
    async with managed(cluster.kubeconfig) as client:
        say("manager installed from config/ and ready", start)
        for mode in modes:
            say(f"a JobSet of {pods} workers, agent as {mode}", start)
            jobset = (gang_jobset if mode == "sidecar" else supervised_jobset)(f"demo-{mode}", pods)
            jobset["spec"]["failurePolicy"]["maxRestarts"] = rounds + 1
            async with run_gang(client, jobset, pods, pod_log_folders(cluster)) as timeline:
                say(f"all {pods} workers run: synced at epoch {max(timeline.synced)}", start)
                for number in range(1, rounds + 1):
                    await asyncio.sleep(2.0)
                    if mode == "sidecar":
                        restart = await restart_once(timeline, pods)
                    else:
                        restart = await restart_supervised_once(timeline, pods, "worker started")
                    show(restart, pods, number)
            say("JobSet deleted", start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
    options = parser.parse_args()
    modes = MODES if options.mode == "both" else (options.mode,)
    start = time.monotonic()
    say("building the images", start)
    try:
        images = build_images()
        say("starting a real cluster with one node", start)
        with Cluster(name="demo", nodes=1, images=images) as cluster:
            say("cluster is up", start)
            uvloop.run(demo(cluster, options.pods, options.rounds, modes, start))
    except ClusterError as error:
        console.print(f"[red]demo:[/red] {error}")
        return 1
    say("cluster ended; nothing is left running", start)
    return 0


if __name__ == "__main__":
    sys.exit(main())
