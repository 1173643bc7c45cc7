"""The Memcached example and the same operator on kopf, with a real API server.

Each program starts with a number of Memcacheds. For each it must create a Deployment, a Service and
an address, and write its status. Then a field of each Memcached is changed; then another client
changes a field of each Deployment, which must be reverted. No Deployment controller runs, so that
all requests and all CPU are the programs' own.

The program on kopf uses the official ``kubernetes`` client, as the tutorials of kopf do, with its
default settings; ours runs without a limit of requests. CPU counts from the start of the process,
including imports.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import uvloop
import yaml

from bench.common import create_namespace, in_parallel, say
from bench.library import PROGRAMS, Program, kopf_folder, requests_by_kind, running
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy import runtime as rt
from support.cluster.install import apply_object
from support.patience import eventually

EXAMPLES = Path(__file__).resolve().parents[1] / "examples/controllers"
CLIENT = "kubernetes"
RESOURCES = ("memcacheds", "deployments", "services", "configmaps", "events")
LIBRARIES = ("jobsetpy", "kopf")
LIMIT_S = 600
CREATED, CHANGED, DRIFTED = "created", "size changed", "Deployment changed by others"
DEPLOYMENT = rt.unstructured(rt.Deployment.RESOURCE)


class Operator(Program):
    """Command that starts one of the two operators."""

    def command(self, namespace: str) -> list[str | Path]:
        if self.library == "kopf":
            kopf = kopf_folder(CLIENT) / "bin" / "kopf"
            program = PROGRAMS / "memcached_with_kopf.py"
            return [kopf, "run", "--standalone", "-n", namespace, program]
        run = [sys.executable, "-m", "jobsetpy.app.main", "run", "memcached:setup"]
        flags = ["--namespace", namespace, "--kube-api-qps", "0"]
        return [*run, "--kubeconfig", self.kubeconfig, *flags]


@attrs.define
class Phase:
    """Cost of one phase of a run, for all objects together."""

    wall_s: float
    cpu_s: float
    requests: dict[str, float]


@attrs.define
class Run:
    """Figures of one run of one program."""

    phases: dict[str, Phase] = attrs.field(factory=dict)
    peak_mb: float = 0.0


async def one_run(
    client: rt.Client, program: Program, namespace: str, count: int, log: Path
) -> Run:
    memcached: Any = importlib.import_module("memcached").Memcached
    await create_namespace(client, namespace)
    names = [f"m-{number}" for number in range(count)]

    def create(name: str):
        return lambda: client.create(memcached, namespace, {"metadata": {"name": name}})

    await in_parallel(16, (create(name) for name in names))
    result = Run()

    async def reported() -> bool:
        items = [each async for each in rt.list_objects(client, memcached, namespace)]
        return all(each.status.conditions for each in items)

    def replicas_are(number: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            items = [each async for each in rt.list_objects(client, DEPLOYMENT, namespace)]
            return len(items) == count and all(each.at("spec.replicas") == number for each in items)

        return check

    def patch(cls: Any, name: str, body: dict[str, Any]):
        return lambda: client.merge_patch(cls, namespace, name, body)

    async def counted() -> dict[str, float]:
        return await requests_by_kind(client, RESOURCES)

    before = await counted()
    async with running(program, namespace, log) as process:

        async def phase(
            name: str,
            since: tuple[float, float],
            check: Callable[[], Awaitable[bool]],
            own: str = "",
        ) -> None:
            """Wait for the phase's end; ``own``: this benchmark's requests, one per object."""
            nonlocal before
            begun, cpu = since
            await eventually(check, LIMIT_S, poll_s=0.1)
            wall = time.monotonic() - begun
            await process.settled()
            after = await counted()
            made = {kind: (after[kind] - before.get(kind, 0)) / count for kind in after}
            if own:
                made[own] -= 1
            made = {kind: number for kind, number in made.items() if number >= 0.05}
            result.phases[name] = Phase(wall, process.cpu() - cpu, made)
            before = after

        def now() -> tuple[float, float]:
            return time.monotonic(), process.cpu()

        await phase(CREATED, (process.begun, 0.0), reported)
        since = now()
        bigger = {"spec": {"size": 3}}
        await in_parallel(16, [patch(memcached, name, bigger) for name in names])
        await phase(CHANGED, since, replicas_are(3), "PATCH memcacheds")
        since = now()
        drift = {"spec": {"replicas": 7}}
        await in_parallel(16, [patch(DEPLOYMENT, name, drift) for name in names])
        await phase(DRIFTED, since, replicas_are(3), "PATCH deployments")
        result.peak_mb = process.memory("VmHWM")
    return result


def report(found: dict[str, list[Run]], count: int) -> None:
    """Print a markdown table: minimum, median, maximum of all rounds; requests of the last one."""

    def spread(values: list[float], digits: int = 1) -> str:
        shown = (min(values), statistics.median(values), max(values))
        return " / ".join(f"{value:.{digits}f}" for value in shown)

    lines = [["", *found], ["---"] * (len(found) + 1)]
    for phase in (CREATED, CHANGED, DRIFTED):
        for name, of in (("wall, s", "wall_s"), ("CPU, s", "cpu_s")):
            row = [
                spread([getattr(run.phases[phase], of) for run in runs]) for runs in found.values()
            ]
            lines.append([f"{phase}: {name}", *row])
        row = []
        for runs in found.values():
            kinds = sorted(runs[-1].phases[phase].requests.items())
            total = sum(number for _, number in kinds)
            parts = ", ".join(f"{number:.1f} {kind}" for kind, number in kinds)
            row.append(f"{total:.1f} ({parts})")
        lines.append([f"{phase}: requests for an object", *row])
    row = [spread([run.peak_mb for run in runs], 0) for runs in found.values()]
    lines.append(["peak memory, MB", *row])
    rounds = len(next(iter(found.values())))
    print(f"\n{count} objects, {rounds} rounds, load {os.getloadavg()[0]:.0f}\n")
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)


async def measure(cluster: Cluster, folder: Path, options: argparse.Namespace) -> None:
    client = await rt.connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    try:
        text = (PROGRAMS / "memcached_with_kopf.yaml").read_text()
        await apply_object(client, next(iter(yaml.safe_load_all(text))))
        found: dict[str, list[Run]] = {library: [] for library in options.libraries}
        for number in range(options.rounds + 1):  # the first compiles bytecode
            for library in options.libraries:
                count = options.objects if number else 1
                say(f"round {number}: {library}, {count} objects")
                cache, where = (
                    folder / f"{library}.bytecode",
                    PROGRAMS if library == "kopf" else EXAMPLES,
                )
                cache.mkdir(exist_ok=True)
                program = Operator(library, 0, cluster.kubeconfig, cache, where)
                name = f"{library}-{number}"
                run = await one_run(client, program, name, count, folder / f"{name}.log")
                if number:
                    found[library].append(run)
        report(found, options.objects)
    finally:
        await client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    options = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    if "kopf" in options.libraries:
        kopf_folder(CLIENT)
    with (
        tempfile.TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(name="bench-memcached", controller_manager=False, scheduler=False) as cluster,
    ):
        uvloop.run(measure(cluster, Path(folder), options))


if __name__ == "__main__":
    main()
