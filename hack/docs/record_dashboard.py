"""Record pictures of the dashboard's rows with the data of a real Prometheus server.

    record_dashboard.py                 write docs/images/dashboard
    record_dashboard.py --seconds 600   after a longer time

Two managers run with a real API server and Job controller. As in the soak, JobSets are created,
restarted as a whole, by Job and in place, suspended, resized and deleted; kubelets and agents are
simulated. Prometheus scrapes both managers. After some time each expression of the dashboard is
queried for that time, and a browser takes a picture of each row, at desktop and phone width.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from hack.cluster import Cluster
from hack.docs.browser import browser
from hack.docs.dashboard_page import Panel, Series, page
from hack.generate import monitoring_dashboard, update_monitoring
from jobsetpy import aio
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client
from jobsetpy.errors import ApiError
from support.cluster.install import connected, create_namespace, install_crd
from support.cluster.played_nodes import PlayedNodes
from support.cluster.prometheus import JOB, Prometheus, prometheus
from support.cluster.racks import exclusive_jobset
from support.features.groups_kit import Place, replicated_job
from support.soak.soak_lives import Lives
from support.soak.soak_managers import Managers
from support.soak.soak_world import World

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGES: Final = ROOT / "docs/images/dashboard"
WIDTHS: Final = (1280, 390)
NAMESPACE: Final = "team"
PLACED: Final = "placed"
GATHERED: Final = "gathered"
RACK: Final = "example.com/rack"
LIVES: Final = 6
RATE: Final = "1m"
"""Interval of queries; Grafana's would depend on the width of a graph."""
POINTS: Final = 120
_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")


def file_name(row: str) -> str:
    """Return the base name of a row's pictures, without width and suffix."""
    return re.sub(r"\W+", "-", row.lower())


def rows() -> dict[str, list[dict[str, Any]]]:
    """Return the panels of each row of the dashboard, by its title."""
    out: dict[str, list[dict[str, Any]]] = {}
    for panel in monitoring_dashboard.dashboard()["panels"]:
        if panel["type"] == "row":
            out[panel["title"]] = []
        else:
            out[next(reversed(out))].append(panel)
    return out


def asked(server: Prometheus, panel: Mapping[str, Any], begin: float, end: float) -> Panel:
    """Return a panel with the server's data."""
    series = []
    for target in panel["targets"]:
        expression = (
            target["expr"]
            .replace("$__rate_interval", RATE)
            .replace("$job", JOB)
            .replace("$namespace", ".*")
        )
        step = max(1.0, (end - begin) / POINTS)
        for found in server.range(expression, begin, end, step):
            labels = found["metric"]
            legend = _LABEL.sub(lambda name, of=labels: of.get(name[1], ""), target["legendFormat"])
            points = {float(at): float(value) for at, value in found["values"]}
            series.append(Series(legend.strip(), _with_gaps(points, begin, end, step)))
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return Panel(panel["title"], unit, [one for one in series if _has_data(one)])


def _with_gaps(
    points: Mapping[float, float], begin: float, end: float, step: float
) -> list[tuple[float, float]]:
    """Return a value for each step; NaN if the server has none."""
    known = {round((at - begin) / step): value for at, value in points.items()}
    count = int((end - begin) / step) + 1
    return [(begin + n * step, known.get(n, math.nan)) for n in range(count)]


def _has_data(series: Series) -> bool:
    return any(math.isfinite(value) for _, value in series.points)


def take_pictures(server: Prometheus, begin: float, end: float, folder: Path) -> list[str]:
    """Write the pictures of all rows; return the panels that have no data."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    empty = []
    with browser() as shown, tempfile.TemporaryDirectory() as place:
        for row, panels in rows().items():
            drawn = [asked(server, panel, begin, end) for panel in panels]
            empty += [f"{row}: {panel.title}" for panel in drawn if not panel.series]
            file = Path(place, f"{file_name(row)}.html")
            file.write_text(page(row, drawn, begin, end))
            for width in WIDTHS:
                shown.picture(file, width, folder / f"{file.stem}-{width}.png")
    return empty


async def groups(client: Client, ending: asyncio.Event) -> None:
    """Start JobSets with exclusive placement and with startup groups, one after the other."""
    nodes, place = PlayedNodes(client), Place(client, GATHERED)
    async with nodes.playing():
        for rack in ("a", "b", "c"):
            labels = {RACK: rack, "pool": PLACED}
            taint = {"key": "example.com/played", "effect": "NoSchedule"}
            await nodes.make(f"rack-{rack}", labels=labels, taints=[taint])
        number = 0
        while not ending.is_set():
            number += 1
            placed = exclusive_jobset(f"p{number}", key=RACK, pool=PLACED, jobs=3, pods=3)
            # Managers are being replaced: a write may find no webhook, or its pod gone.
            with contextlib.suppress(ApiError):
                await client.create(JobSet, PLACED, placed)
                await place.create(replicated_job("w", pods=4), name=f"g{number}")
                await asyncio.sleep(5)
                await place.start(*(await place.pods()).values())
            await asyncio.sleep(10)
            for namespace, name in ((PLACED, f"p{number}"), (GATHERED, f"g{number}")):
                with contextlib.suppress(ApiError):
                    await client.delete(JobSet, namespace, name)
            await asyncio.sleep(3)


async def record(cluster: Cluster, folder: Path, seconds: float, images: Path) -> None:
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        for name in (NAMESPACE, PLACED, GATHERED):
            await create_namespace(client, name)
        world = World(client, NAMESPACE, random.Random(2))
        lives = Lives(world, random.Random(1), pace_s=1.0)
        async with Managers(cluster, client, NAMESPACE, folder).running() as managers:
            ports = {name: one.metrics_port for name, one in managers.alive.items()}
            async with prometheus(folder, ports, update_monitoring.RULES) as server:
                begin, ending = time.time(), asyncio.Event()
                async with world.playing(), aio.supervise() as tasks:
                    for number in range(LIVES):
                        tasks.start(lives.go_on(ending), name=f"life-{number}")
                    tasks.start(groups(client, ending), name="groups")
                    await asyncio.sleep(seconds)
                    end = begin + seconds
                    empty = await asyncio.to_thread(take_pictures, server, begin, end, images)
                    ending.set()
                for text in empty:
                    print(f"no data: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, default=IMAGES)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="jobsetpy-dashboard-") as folder,
        Cluster(name="recordings-dashboard") as cluster,
    ):
        uvloop.run(record(cluster, Path(folder), options.seconds, options.out))


if __name__ == "__main__":
    sys.exit(main())
