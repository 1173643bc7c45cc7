"""``status``: a JobSet, its Jobs and pods as a tree, and who holds the barrier."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from jobsetpy.aio import LoopClock
from jobsetpy.errors import RetryableApiError, TransportError
from jobsetpy.kubectl import output
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import told
from jobsetpy.kubectl.objects import describe

if TYPE_CHECKING:
    from rich.tree import Tree

MAX_PODS: Final = 64
"""So many pods of a Job are shown; all of them with ``--all``."""
EVERY_S: Final = 1.0
_TOLD: Final = frozenset({"Failed", "BarrierStalled", "RestartingInPlace", "RestartingJobSet"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="the JobSet")
    parser.add_argument("-w", "--watch", action="store_true", help="draw it again each second")
    parser.add_argument("-a", "--all", action="store_true", help="show all pods of large Jobs")


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Show the JobSet."""
    found = await look(cluster, options.name)
    if options.watch:
        await (_draw if sys.stdout.isatty() and not options.output else _follow)(
            cluster, options, found
        )
    else:
        _show(found, options)
    return 0


def _show(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.output:
        output.write(found, options.output)
    else:
        output.console().print(tree(found, _now(), everything=options.all))


async def _draw(cluster: Cluster, options: argparse.Namespace, found: dict[str, Any]) -> None:
    """On a terminal: the whole screen, again each second."""
    from rich.console import Group
    from rich.live import Live

    problem = ""
    with Live(console=output.console(), auto_refresh=False, screen=True) as live:
        while True:
            drawn = tree(found, _now(), everything=options.all)
            live.update(Group(drawn, problem) if problem else drawn, refresh=True)
            found, problem = await _later(cluster, options.name, found)


async def _follow(cluster: Cluster, options: argparse.Namespace, found: dict[str, Any]) -> None:
    """For files and programs: once more with each change."""
    shown: dict[str, Any] = {}
    while True:
        if found != shown:
            _show(found, options)
            sys.stdout.flush()
            shown = found
        found, _ = await _later(cluster, options.name, found)


async def _later(cluster: Cluster, name: str, found: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The JobSet in a second; what was found before, and why, if the server is away then."""
    await asyncio.sleep(EVERY_S)
    try:
        return await look(cluster, name), ""
    except (TransportError, RetryableApiError) as error:
        return found, told(error, cluster.server)


async def look(cluster: Cluster, name: str) -> dict[str, Any]:
    """A JobSet with all that belongs to it."""
    jobset = await cluster.jobset(name)
    try:
        async with asyncio.TaskGroup() as group:
            jobs = group.create_task(cluster.jobs(name))
            pods = group.create_task(cluster.pods(name))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return describe(jobset, jobs.result(), pods.result())


def tree(found: dict[str, Any], now: datetime, *, everything: bool = False) -> Tree:
    """As rich draws it."""
    from rich.markup import escape
    from rich.tree import Tree

    top = Tree(_title(found, now))
    for line in _lines(found, now):
        top.add(line)
    for item in found["replicatedJobs"]:
        jobs = item["jobs"]
        branch = top.add(f"[bold]{escape(item['name'])}[/] {len(jobs)}/{item['replicas']} jobs")
        for job in jobs:
            leaf = branch.add(_job(job))
            shown = job["pods"] if everything else job["pods"][:MAX_PODS]
            for pod in shown:
                leaf.add(_pod(pod))
            if len(shown) < len(job["pods"]):
                leaf.add(f"[dim]and {len(job['pods']) - len(shown)} more (--all)[/]")
    return top


def _title(found: dict[str, Any], now: datetime) -> str:
    word = found["state"]
    style = output.STYLES.get(word, "white")
    age = output.ago(found["created"], now)
    return f"[bold]{found['namespace']}/{found['name']}[/] [{style}]{word}[/] [dim]{age}[/]"


def _lines(found: dict[str, Any], now: datetime) -> list[str]:
    from rich.markup import escape

    counts = found["restarts"]
    told = [
        f"{counts[key]} {text}"
        for key, text in (("inPlace", "in place"), ("all", "of all jobs"), ("single", "of jobs"))
        if counts[key]
    ]
    line = f"restarts: {', '.join(told) or 'none'}"
    budget = found.get("budget")
    if budget is not None:
        line += f"; {budget['left']} of {budget['max']} left"
    lines = [line]
    epoch, barrier = found.get("epoch"), found.get("barrier")
    if epoch is not None and barrier is not None:
        if not barrier["closed"]:
            lines.append(f"epoch {epoch['synced']}: workers run")
        else:
            since = output.ago(barrier["since"], now)
            late = barrier["waitsFor"]
            lines.append(
                f"[yellow]barrier of epoch {barrier['epoch']} is closed[/] for {since}, "
                f"{len(late)} {'pod' if len(late) == 1 else 'pods'} to come"
            )
            for pod in late[:10]:
                where = f" on {pod['node']}" if pod["node"] else ""
                lines.append(f"  waits for {escape(pod['pod'])}{where}: {escape(pod['why'])}")
    lines += [
        f"{each['type']}: {escape(each['message'] or '')}"
        for each in found["conditions"]
        if each["type"] in _TOLD
    ]
    return lines


def _job(job: dict[str, Any]) -> str:
    style = output.STYLES.get(job["state"], "white")
    done = f", {job['succeeded']} succeeded" if job["succeeded"] else ""
    return (
        f"{job['name']} [{style}]{job['state']}[/] {job['ready']}/{job['parallelism']} ready{done}"
    )


def _pod(pod: dict[str, Any]) -> str:
    from rich.markup import escape

    phase = pod["phase"] or "Unknown"
    parts = [escape(pod["name"]), f"[{output.STYLES.get(phase, 'white')}]{phase}[/]"]
    if phase == "Running":
        parts.append("ready" if pod["ready"] else "not ready")
    if pod.get("waiting"):
        parts.append(f"[yellow]{escape(pod['waiting'])}[/]")
    if "epoch" in pod:
        parts.append(f"epoch {pod['epoch']}")
    if pod["restarts"]:
        parts.append(f"{pod['restarts']} restarts")
    parts.append(f"[dim]{escape(pod['node'] or 'no node')}[/]")
    return " ".join(parts)


def _now() -> datetime:
    return LoopClock().now().astimezone(UTC)
