"""Soak test: random JobSets are created, restarted, suspended, resized, deleted for half an hour.

API server and Job controller are real; kubelets and agents are simulated.
Two manager processes serve the webhooks, and the leader is killed several times during the first
half. Pods of restarts in place are evicted, save their work and exit with 0: no rank may be lost.
The second half has no faults: growth in it is a leak. In the end everything is deleted, and nothing
may remain: no object of any JobSet, nothing cached or queued by the manager, and not more tasks and
connections than at the start.

    python hack/soak.py                       # 30 minutes
    python hack/soak.py --seconds 300 --lives 4 --seed 7 --json figures.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from hack.cluster import Cluster
from jobsetpy import aio
from jobsetpy.client import Client
from support.cluster.install import connected, create_namespace
from support.soak.soak_lives import Lives
from support.soak.soak_managers import Managers, Sample
from support.soak.soak_world import World

CRD = Path(__file__).resolve().parents[1] / "config" / "crd" / "jobset.x-k8s.io_jobsets.yaml"
NAMESPACE = "soak"
QUIET_S = 90.0
"""Timeout in seconds for a manager to become idle after the last JobSet was deleted."""
SLOPE_FROM_S = 900.0
"""Minimum time without faults, in seconds, for a slope to be judged; otherwise it is only shown."""
MAX_SLOPE_MB_H = 30.0
"""Limit of growth in the later half of that time; bounded caches (Events for six minutes, labels of
the last thousand Jobs) fill in the earlier half."""
MAX_MORE_TASKS = 40
MAX_MORE_FILES = 80
"""Allowed idle connections: the API server's to the webhooks, a pool of 64 to the API server."""

console = Console(highlight=False, width=100 if not sys.stdout.isatty() else None)


@attrs.frozen(kw_only=True)
class Settings:
    """Duration and load of a soak.

    Args:
        seconds: time after which no new JobSet is started.
        lives: number of simultaneous JobSets.
        pace_s: mean pause between two steps of a JobSet, in seconds.
        seed: seed of all random choices.
        kills: number of times that the leader is killed.
        outages: number of times that the API server is killed.
        lease_s: duration of the managers' leases; less than the default for short soaks.
    """

    seconds: float = 1800.0
    lives: int = 6
    pace_s: float = 1.0
    seed: int = 1
    kills: int = 6
    outages: int = 2
    lease_s: float = 15.0


@attrs.define
class Outcome:
    """Findings of a soak.

    Args:
        samples: samples of every manager process, by name.
        baseline: sample of the first leader when idle.
        rest: sample of the last leader when idle again.
        problems: problems, each of which fails the soak.
    """

    settings: Settings
    samples: dict[str, list[Sample]]
    baseline: Sample
    rest: Sample
    leader: str
    undisturbed_s: float
    slope_mb_h: float
    steps: dict[str, int]
    lived: dict[str, int]
    refused: int
    kills: int
    outages: int
    lost: int
    problems: list[str]


def new_cluster() -> Cluster:
    """Return a cluster for one soak.

    Its nodes are objects without kubelets, so no controller may check their heartbeats.
    """
    return Cluster(
        crds=[CRD], controller_manager_args=["--controllers=*,-node-lifecycle-controller"]
    )


async def soak(cluster: Cluster, folder: Path, settings: Settings) -> Outcome:
    """Run a soak in its own cluster, which has the CRD.

    Args:
        cluster: cluster without other workloads.
        folder: folder for logs and configuration.
        settings: parameters of the run.
    """
    async with connected(cluster.kubeconfig, qps=0) as client:
        for name in (NAMESPACE, "jobset-system"):
            await create_namespace(client, name)
        made = Managers(cluster, client, NAMESPACE, folder, lease_s=settings.lease_s)
        async with made.running() as managers:
            return await _soak(cluster, client, managers, settings)


async def _soak(
    cluster: Cluster, client: Client, managers: Managers, settings: Settings
) -> Outcome:
    rand = random.Random(settings.seed)
    world = World(client, NAMESPACE, random.Random(settings.seed + 1))
    lives = Lives(world, rand, pace_s=settings.pace_s)
    _, baseline = await managers.at_rest(QUIET_S)
    ending = asyncio.Event()
    started = time.monotonic()
    period_s = max(1.0, settings.seconds / 360)
    counts = {"kills": 0, "outages": 0, "since": started}
    async with world.playing():
        async with aio.supervise() as tasks:
            tasks.start(managers.sampling(period_s), name="samples")
            tasks.start(_disturb(cluster, managers, settings, counts, rand), name="faults")
            tasks.start(_tell(world, lives, managers, settings), name="progress")
            living = [
                tasks.start(lives.go_on(ending), name=f"life-{n}") for n in range(settings.lives)
            ]
            await asyncio.sleep(settings.seconds)
            ending.set()
            await asyncio.wait(living)
        problems = [f"stuck: {text}" for text in lives.stuck]
        problems += [f"rule broken: {text}" for text in world.violations]
        problems += await _left(world)
    try:
        leader, rest = await managers.at_rest(QUIET_S)
    except TimeoutError as problem:
        problems.append(str(problem))
        leader, rest = managers.led
    undisturbed_s = time.monotonic() - counts["since"]
    slope = managers.slope(leader, counts["since"] + undisturbed_s / 2)
    problems += [f"the manager exited unexpectedly: {text}" for text in managers.ended]
    problems += _leaks(baseline, rest, slope, undisturbed_s)
    return Outcome(
        settings=settings,
        samples=managers.samples,
        baseline=baseline,
        rest=rest,
        leader=leader,
        undisturbed_s=undisturbed_s,
        slope_mb_h=slope,
        steps=dict(lives.done),
        lived=dict(lives.lived),
        refused=lives.refused,
        kills=int(counts["kills"]),
        outages=int(counts["outages"]),
        lost=managers.lost,
        problems=problems,
    )


async def _disturb(
    cluster: Cluster,
    managers: Managers,
    settings: Settings,
    counts: dict[str, float],
    rand: random.Random,
) -> None:
    """Kill leaders and API servers at random times in the first half."""
    half = settings.seconds / 2
    faults = [("kills", rand.uniform(0.05, 0.95)) for _ in range(settings.kills)]
    faults += [("outages", rand.uniform(0.05, 0.95)) for _ in range(settings.outages)]
    started = time.monotonic()
    for what, when in sorted(faults, key=lambda fault: fault[1]):
        await asyncio.sleep(max(0.0, started + when * half - time.monotonic()))
        if what == "kills":
            say(f"killed the leader, {await managers.kill_leader()}")
        else:
            say("killed the API server")
            await asyncio.to_thread(cluster.restart_apiserver, kill=True)
        counts[what] += 1
        counts["since"] = time.monotonic()


async def _tell(world: World, lives: Lives, managers: Managers, settings: Settings) -> None:
    """Print a line of progress periodically."""
    started = time.monotonic()
    while True:
        await asyncio.sleep(max(5.0, settings.seconds / 60))
        last = {name: each[-1] for name, each in managers.samples.items() if each}
        figures = ", ".join(
            f"{name} {one.rss_mb:.0f} MB {one.tasks:.0f} tasks {one.files} files"
            for name, one in last.items()
            if name in managers.alive
        )
        say(
            f"{time.monotonic() - started:.0f} s: {sum(lives.lived.values())} lives, "
            f"{sum(lives.done.values())} steps, {len(world.pods)} pods; {figures}"
            + (f"; STUCK {len(lives.stuck)}" if lives.stuck else "")
            + (f"; BROKEN {len(world.violations)}" if world.violations else "")
        )


async def _left(world: World) -> list[str]:
    """Return the objects that remain after all JobSets ended and the garbage collector had time."""

    def names() -> list[str]:
        ours = {name for _, name in world.others} - {"kubernetes", "kube-root-ca.crt"}
        return sorted({*world.jobsets, *(pod.jobset for pod in world.pods.values()), *ours})

    with contextlib.suppress(TimeoutError):
        await world.until(lambda: not names() and not world.jobs, QUIET_S, "everything to go")
    left = [f"left behind: {name}: {world.left_of(name)}" for name in names()]
    return left + [f"left behind: job {job.metadata.name}" for job in world.jobs.values()]


def _leaks(baseline: Sample, rest: Sample, slope: float, undisturbed_s: float) -> list[str]:
    problems = []
    if rest.tasks > baseline.tasks + MAX_MORE_TASKS:
        problems.append(f"{rest.tasks:.0f} tasks at rest, {baseline.tasks:.0f} at the start")
    if rest.files > baseline.files + MAX_MORE_FILES:
        problems.append(f"{rest.files} open files at rest, {baseline.files} at the start")
    if undisturbed_s >= SLOPE_FROM_S and slope > MAX_SLOPE_MB_H:
        problems.append(f"memory grows by {slope:.1f} MB an hour")
    return problems


def say(text: str) -> None:
    """Print a line of progress."""
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")


def report(outcome: Outcome) -> None:
    """Print tables of the steps and the findings."""
    settings = outcome.settings
    table = Table(
        title=f"Soak: {settings.seconds:.0f} s, {settings.lives} simultaneous JobSets, "
        f"seed {settings.seed}",
        title_justify="left",
    )
    for column in ("last leader", "start", "middle", "end", "at rest"):
        table.add_column(column, justify="left" if column == "last leader" else "right")
    first, *_ = series = outcome.samples[outcome.leader]
    columns = (first, series[len(series) // 2], series[-1], outcome.rest)
    for title, figure in (
        ("memory, MB", lambda one: f"{one.rss_mb:.1f}"),
        ("tasks", lambda one: f"{one.tasks:.0f}"),
        ("open files", lambda one: str(one.files)),
        ("queued", lambda one: f"{one.queued:.0f}"),
        ("cached JobSets, Jobs, pods", lambda one: f"{one.cached:.0f}"),
    ):
        table.add_row(title, *(figure(one) for one in columns))
    console.print(table)
    base = outcome.baseline
    judged = "" if outcome.undisturbed_s >= SLOPE_FROM_S else " (too short to be judged)"
    slope = f"{outcome.slope_mb_h:+.1f} MB an hour{judged}"
    lines = [
        f"first leader, at rest: {base.rss_mb:.1f} MB, {base.tasks:.0f} tasks, {base.files} files",
        f"last leader, later half of {outcome.undisturbed_s:.0f} s without faults: memory {slope}",
        f"{sum(outcome.lived.values())} JobSets lived: {_listed(outcome.lived)}",
        f"{sum(outcome.steps.values())} steps: {_listed(outcome.steps)}",
        f"killed: {outcome.kills} leaders, {outcome.outages} API servers",
        f"other losses of leadership: {outcome.lost}",
        f"requests refused while no webhook answered, and sent again: {outcome.refused}",
        f"stuck objects and broken rules: {len(outcome.problems)}",
    ]
    for line in [*lines, *(f"[red]{problem}[/red]" for problem in outcome.problems)]:
        console.print(line)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


@contextlib.asynccontextmanager
async def _folder(path: Path | None) -> AsyncIterator[Path]:
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="jobsetpy-soak-") as made:
        yield Path(made)


async def _main(settings: Settings, folder: Path | None, figures: Path | None) -> int:
    async with _folder(folder) as logs:
        with new_cluster() as cluster:
            outcome = await soak(cluster, logs, settings)
    report(outcome)
    if figures is not None:
        content: Any = attrs.asdict(outcome)
        figures.write_text(json.dumps(content, indent=1))
    return 1 if outcome.problems else 0


def main(argv: list[str] | None = None) -> int:
    """Run a soak; return 0 if no problem was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = Settings()
    parser.add_argument("--seconds", type=float, default=default.seconds)
    parser.add_argument("--lives", type=int, default=default.lives)
    parser.add_argument("--pace", type=float, default=default.pace_s, help="seconds between steps")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--kills", type=int, default=default.kills)
    parser.add_argument("--outages", type=int, default=default.outages)
    parser.add_argument("--logs", type=Path, help="keep the managers' logs in this folder")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(argv)
    settings = Settings(
        seconds=options.seconds,
        lives=options.lives,
        pace_s=options.pace,
        seed=options.seed,
        kills=options.kills,
        outages=options.outages,
    )
    return asyncio.run(_main(settings, options.logs, options.json))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
