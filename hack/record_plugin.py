"""Record what ``kubectl jobset`` is shown with in the documentation, on a real cluster.

    record_plugin.py            write hack/recorded, then docs/images and docs/how-to/kubectl.md
    record_plugin.py NAME...    only some: sidecar, supervised

Sixteen real pods restart in place three times, with the agent as sidecar and as the worker's
parent. The JobSet is kept, which is all that ``restarts`` reads; ``hack/update_plugin_page.py``
makes texts and pictures of it. Recorded on an idle machine, the lengths are those of
``docs/explanation/figures.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from hack import update_plugin_page as page
from hack.cluster import Cluster
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, connect
from support import patience
from support.install import install_manager
from support.scenario import (
    NAMESPACE,
    build_images,
    gang_jobset,
    kill_worker,
    manager_ready,
    pod_log_folders,
    restart_once,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)
from support.timeline import Timeline

PODS: Final = 16
KILLS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
"""How workers end: as when memory runs out, and on a request. A container's first process takes
no notice of other signals that it does not handle."""
ALL: Final = ("sidecar", "supervised")
RUN_S: Final = 3.0
"""Workers run so long between restarts, as the counters' writes are held back after one."""

Json = dict[str, Any]


async def settled(client: Client, name: str) -> Json:
    """A JobSet without who wrote which field, once its last restart is over, and when that was.

    How long that restart's lift took is known if counters were written since.
    """
    path = JobSet.RESOURCE.path(NAMESPACE, name)
    async with patience.timeout(30):
        while True:
            answer = await client.raw(HttpRequest(method="GET", path=path))
            jobset = msgspec.json.decode(answer.body)
            jobset["metadata"].pop("managedFields", None)
            status = jobset["status"]
            if status["restartHistory"][-1].get("outcome") and status["state"] == "Running":
                now = datetime.now(UTC).isoformat(timespec="seconds")
                return {"running": {"now": now, "jobset": jobset}}
            await asyncio.sleep(0.3)


async def sixteen(
    client: Client,
    jobset: Json,
    logs: list[Path],
    restart: Callable[[Timeline, signal.Signals], Awaitable[object]],
) -> Json:
    """What is kept of a group of pods after some restarts."""
    async with run_gang(client, jobset, PODS, logs) as timeline:
        for number in KILLS:
            await asyncio.sleep(RUN_S)
            await restart(timeline, number)
        await asyncio.sleep(RUN_S)
        return await settled(client, jobset["metadata"]["name"])


async def _sidecar(timeline: Timeline, number: signal.Signals) -> object:
    return await restart_once(timeline, PODS, functools.partial(kill_worker, number=number))


async def _supervised(timeline: Timeline, number: signal.Signals) -> object:
    return await restart_supervised_once(timeline, PODS, "worker started", number=number)


async def record(cluster: Cluster, wanted: Collection[str]) -> None:
    """What is wanted of it."""
    client = await connect(kubeconfig=str(cluster.kubeconfig))
    logs = pod_log_folders(cluster)
    try:
        await install_manager(client)
        await manager_ready(client)
        if "sidecar" in wanted:
            jobset = gang_jobset("sidecar", PODS)
            save("sidecar", await sixteen(client, jobset, logs, _sidecar))
        if "supervised" in wanted:
            jobset = supervised_jobset("supervised", PODS)
            save("supervised", await sixteen(client, jobset, logs, _supervised))
    finally:
        await client.aclose()


def save(name: str, moments: Json) -> None:
    """So that a difference can be read."""
    text = json.dumps(moments, indent=1)
    (page.RECORDED / f"{name}.json").write_text(text + "\n")
    print(f"recorded {name}")


def main(argv: list[str]) -> int:
    """Record, then make what is made of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    wanted = parser.parse_args(argv).names or ALL
    sys.stdout.reconfigure(line_buffering=True)
    print("building the images")
    images = build_images()
    print("starting a cluster")
    with Cluster(nodes=1, images=images) as cluster:
        uvloop.run(record(cluster, wanted))
    return page.main([])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
