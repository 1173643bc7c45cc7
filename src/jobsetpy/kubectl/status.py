"""``status``: what a JobSet does and waits for, with its Jobs and pods as a tree."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from jobsetpy.aio import LoopClock
from jobsetpy.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    RetryableApiError,
    TransportError,
    UnauthorizedError,
)
from jobsetpy.kubectl import output, reasons
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.errors import CommandError, explain
from jobsetpy.kubectl.objects import IDLE, describe
from jobsetpy.kubectl.output import Branch, clean, paint

MAX_PODS: Final = 64
"""Maximum number of pods shown for each Job; ``--all`` shows all."""
EVERY_S: Final = 1.0
STARTS_S: Final = 30.0
"""Time in seconds for which an API server that was away may refuse requests: it serves them before
it has read roles and CRDs."""
_RESTARTS: Final = (
    ("inPlace", "in place"),
    ("notCounted", "in place not counted (asked for, resumed or resized)"),
    ("all", "of all jobs"),
    ("single", "of jobs"),
)


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
        print(drawn(found, _now(), everything=options.all))  # noqa: T201


async def _draw(cluster: Cluster, options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Redraw the whole screen of a terminal each second."""
    from rich.live import Live
    from rich.text import Text

    problem = ""
    with Live(auto_refresh=False, screen=True) as live:
        while True:
            shown = drawn(found, _now(), everything=options.all)
            shown = f"{shown}\n{clean(problem)}" if problem else shown
            live.update(Text.from_ansi(shown, no_wrap=True), refresh=True)
            found, problem = await later(cluster, options.name, found)


async def _follow(cluster: Cluster, options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write the JobSet again after each change, for files and programs."""
    shown: dict[str, Any] = {}
    while True:
        if found != shown:
            _show(found, options)
            sys.stdout.flush()
            shown = found
        found, _ = await later(cluster, options.name, found)


async def later(
    cluster: Cluster, name: str, found: dict[str, Any], after_s: float | None = None
) -> tuple[dict[str, Any], str]:
    """Look again in a second; if the server cannot be reached, return what was known and why."""
    await asyncio.sleep(EVERY_S if after_s is None else after_s)
    now = asyncio.get_running_loop().time()
    try:
        found = await look(cluster, name)
    except (TransportError, RetryableApiError) as error:
        cluster.away_at = now
        return found, explain(error, cluster.server)
    except (ForbiddenError, UnauthorizedError, CommandError) as error:
        if now - cluster.away_at > STARTS_S:
            raise
        text = explain(error, cluster.server) if isinstance(error, ApiError) else str(error)
        return found, text
    cluster.away_at = -inf
    return found, ""


async def look(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a JobSet with its Jobs and pods."""
    jobset = await cluster.jobset(name)
    try:
        async with asyncio.TaskGroup() as group:
            jobs = group.create_task(cluster.jobs(name))
            pods = group.create_task(cluster.pods(name))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    found = describe(jobset, jobs.result(), pods.result())
    answer = reasons.explain(found, jobset, jobs.result(), pods.result(), _now())
    why = await _missing_accounts(cluster, jobs.result())
    if found["state"] == "Waiting" and any(
        len(item["jobs"]) < item["replicas"] for item in found["replicatedJobs"]
    ):
        why += await _refusals(cluster, jobset)
    why += [each for each in answer.sentences if not why or each != reasons.NO_REASON]
    return found | {"why": why, "more": answer.more}


async def _refusals(cluster: Cluster, jobset: dict[str, Any]) -> list[str]:
    """Return the last event about an object that the manager could not create."""
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    query = ("fieldSelector", f"regarding.uid={jobset['metadata']['uid']}")
    try:
        found = await cluster.items(path, query)
    except ApiError:
        return []  # no right to read them, which is no reason to show nothing
    found = [each for each in found if each["reason"].endswith("CreationFailed")]
    return [each["note"] for each in sorted(found, key=lambda each: str(each["eventTime"]))[-1:]]


async def _missing_accounts(cluster: Cluster, jobs: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each service account without which Jobs get no pods."""
    wanted = {
        job["spec"].get("template", {}).get("spec", {}).get("serviceAccountName")
        for job in jobs
        if not job["spec"].get("suspend") and not job.get("status", {}).get("active")
    }
    out = []
    for name in sorted(filter(None, wanted)):
        try:
            await cluster.get(f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{name}")
        except NotFoundError:
            out.append(
                f"No pod can be created: the service account {name} is missing; for agents: "
                f"kubectl -n {cluster.namespace} apply -k config/agent/account"
            )
        except ApiError:
            continue  # no right to read it, which is no reason to show nothing
    return out


def drawn(found: dict[str, Any], now: datetime, *, everything: bool = False) -> str:
    """The text that people see."""
    return "\n".join(output.tree(_tree(found, now, everything=everything)))


def _tree(found: dict[str, Any], now: datetime, *, everything: bool) -> Branch:
    top = Branch(_title(found, now), _lines(found, now))
    for item in found["replicatedJobs"]:
        jobs = item["jobs"]
        branch = Branch(f"{paint(item['name'], 'bold')} {len(jobs)}/{item['replicas']} jobs", [])
        top.branches.append(branch)
        for job in jobs:
            pods = job["pods"]
            shown = pods if everything else pods[:MAX_PODS]
            leaves = [Branch(_pod(pod), []) for pod in shown]
            if left := len(pods) - len(shown):
                leaves.append(Branch(paint(f"and {left} more (--all)", "dim"), []))
            branch.branches.append(Branch(_job(job), leaves))
    return top


def _title(found: dict[str, Any], now: datetime) -> str:
    word = found["state"]
    name = paint(f"{found['namespace']}/{found['name']}", "bold")
    age = paint(output.ago(found["created"], now), "dim")
    return f"{name} {_state(word)} {age}"


def _state(word: str) -> str:
    return paint(clean(word), output.STYLES.get(word, ""))


def _lines(found: dict[str, Any], now: datetime) -> list[Branch]:
    counts = found["restarts"]
    parts = [f"{counts[key]} {text}" for key, text in _RESTARTS if counts[key]]
    line = f"restarts: {', '.join(parts) or 'none'}"
    if budget := found.get("budget"):
        line += f"; {budget['left']} of {budget['max']} left"
    more = [f"more: {found['more']}"] if found["why"] else []
    lines = [Branch(clean(each), []) for each in (*found["why"], *more, line)]
    if (run := found.get("run")) and run["since"] and found["state"] not in IDLE:
        text = f"attempt {run['attempt']}, for {output.ago(run['since'], now)}"
        if run["deadlineSeconds"]:
            text += f" of {run['deadlineSeconds']} s"
        lines.append(Branch(text, []))
    epoch, barrier = found.get("epoch"), found.get("barrier")
    if epoch is not None and barrier is not None:
        if found["state"] in IDLE:
            lines.append(Branch(f"epoch {epoch['synced']}", []))
        elif not barrier["closed"]:
            lines.append(Branch(f"epoch {epoch['synced']}: workers run", []))
        else:
            since = output.ago(barrier["since"], now)
            late = barrier["waitsFor"]
            closed = paint(f"barrier of epoch {barrier['epoch']} is closed", "yellow")
            text = f"{len(late)} {'pod' if len(late) == 1 else 'pods'} to come"
            lines.append(Branch(f"{closed} for {since}, {text}", []))
    if spares := found.get("spares"):
        text = f"spares: {spares['ready']} of {spares['of']} ready"
        if "jobs" in spares:
            jobs = spares["jobs"]
            text += f", {jobs} spare {'job' if jobs == 1 else 'jobs'}"
        lines.append(Branch(text if spares["ready"] else paint(text, "yellow"), []))
    return lines


def _job(job: dict[str, Any]) -> str:
    done = f", {job['succeeded']} succeeded" if job["succeeded"] else ""
    if "worksFor" in job:
        done += f", seats of {job['worksFor']}" if job["worksFor"] else ", spare"
    if job.get("missing"):
        done += paint(
            f", works with {job['seats'] - job['missing']} of {job['seats']} pods", "yellow"
        )
    return f"{job['name']} {_state(job['state'])} {job['ready']}/{job['parallelism']} ready{done}"


def _pod(pod: dict[str, Any]) -> str:
    phase = pod["phase"] or "Unknown"
    parts = [pod["name"], _state(phase)]
    if phase == "Running":
        parts.append("ready" if pod["ready"] else "not ready")
    if pod.get("waiting"):
        parts.append(paint(clean(pod["waiting"]), "yellow"))
    if "epoch" in pod:
        parts.append(f"epoch {pod['epoch']}")
    if "failed" in pod:
        parts.append(paint(f"({clean(pod['failed'])})", "red"))
    if "spare" in pod:
        parts.append("no seat" if pod["spare"] == "ended" else f"spare, {clean(pod['spare'])}")
    elif "seat" in pod:
        parts.append(f"seat {pod['seat']}")
    if pod["restarts"]:
        parts.append(f"{pod['restarts']} restarts")
    parts.append(paint(pod["node"] or "no node", "dim"))
    return " ".join(parts)


def _now() -> datetime:
    return LoopClock().now().astimezone(UTC)
