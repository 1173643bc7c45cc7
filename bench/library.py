"""The same small controller on this runtime, kopf and controller-runtime, with real servers.

Each ConfigMap of a namespace gets an annotation with a value from its data. In a round each program
starts with a number of objects without it; then objects are changed at a fixed rate. The programs
in ``library_programs`` use their libraries' defaults, except that no client limits its requests,
and that controller-runtime has as many workers as ours.

kopf is installed from PyPI into a venv, controller-runtime is built from its Go module; both on the
first run, and kept in the user's cache. CPU counts from the start of the process, including
imports; a process with one object measures the start alone. Each program has run once before, so
that its bytecode is compiled, as after an installation. Requests are counted by the API server's
metrics. The time from a change to its write is that between the two events of a watch by the
benchmark.

``--beside FOLDER`` runs our program of another checkout too, with the venv of that checkout, on the
same servers and in alternating order: the way to compare two versions, as CPU on two servers one
after the other differs by up to 10 % for the same version. ``--instructions`` counts instructions,
which do not depend on the machine's other work; times then mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import attrs
import uvloop

from bench.common import (
    console,
    counting_instructions,
    create_namespace,
    in_parallel,
    instructions,
    say,
)
from hack.cluster import Cluster, _build, _state  # type: ignore[import-not-found]
from hack.cluster._progress import Shown
from jobsetpy import runtime as rt
from jobsetpy.controller import DEFAULT_WORKERS
from support.cluster.manager_process import cpu_seconds, memory_mb

PROGRAMS = Path(__file__).with_name("library_programs")
ANNOTATION = "bench.example.com/value"
KOPF = "kopf==1.45.2"
OURS = "jobsetpy"
LIBRARIES = (OURS, "kopf", "kopf-events", "controller-runtime")
_REQUEST = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def kopf_folder(*more: str) -> Path:
    """A venv with kopf and further packages, made once."""
    name = "-".join((KOPF, *more)).replace("==", "-")
    folder = _state.cache_dir() / "bench" / name
    if not (folder / "done").exists():
        say(f"making a venv with {KOPF}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, KOPF, "uvloop", *more], check=True)
        (folder / "done").touch()
    return folder


def controller_runtime() -> Path:
    """The Go program, built once for each state of its source and modules."""
    source = PROGRAMS / "controller_runtime"
    files = sorted(path for path in source.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    program = _state.cache_dir() / "bench" / f"controller-runtime-{digest}"
    if not program.exists():
        say("building the program on controller-runtime; the first time this takes minutes")
        program.parent.mkdir(parents=True, exist_ok=True)
        go = _build.find_go(_state.cache_dir(), Shown())
        environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
        with tempfile.TemporaryDirectory(dir=program.parent) as place:
            out = Path(place, "out")
            command = [go, "build", "-ldflags", "-s -w", "-o", out, "."]
            subprocess.run(command, cwd=source, env=environ, check=True)
            out.replace(program)
    return program


@attrs.frozen
class Program:
    """How one library's program is started."""

    library: str
    workers: int
    kubeconfig: Path
    bytecode: Path
    folder: Path = PROGRAMS
    python: Path = Path(sys.executable)
    count_instructions: bool = False

    def command(self, namespace: str) -> list[str | Path]:
        match self.library:
            case "controller-runtime":
                flags = [f"-namespace={namespace}", f"-workers={self.workers}"]
                return [controller_runtime(), f"-kubeconfig={self.kubeconfig}", *flags]
            case "kopf" | "kopf-events":
                file = "with_kopf.py" if self.library == "kopf" else "with_kopf_events.py"
                kopf = kopf_folder() / "bin" / "kopf"
                return [kopf, "run", "--standalone", "-n", namespace, PROGRAMS / file]
            case _:
                run = [self.python, "-m", "jobsetpy.app.main", "run", "ours:setup"]
                return [*run, "--kubeconfig", self.kubeconfig, "--kube-api-qps", "0"]

    def environ(self, namespace: str) -> dict[str, str]:
        workers = {"BENCH_WORKERS": str(self.workers)} if self.workers else {}
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "BENCH_NAMESPACE": namespace,
            "PYTHONPYCACHEPREFIX": str(self.bytecode),
            "PYTHONDONTWRITEBYTECODE": "",
        } | workers


def beside(checkout: Path, program: Program, bytecode: Path) -> Program:
    """Our program of another checkout."""
    return attrs.evolve(
        program,
        library=str(checkout),
        bytecode=bytecode,
        folder=checkout / "bench" / PROGRAMS.name,
        python=checkout / ".venv" / "bin" / "python",
    )


@attrs.define
class Figures:
    """Result of one run of one program."""

    start_cpu_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    idle_mb: float = 0.0
    requests: dict[str, float] = attrs.field(factory=dict)
    latencies_s: list[float] = attrs.field(factory=list)
    change_cpu_ms: float = 0.0
    instructions_g: float = 0.0


class Running:
    """A program's process, its CPU and its memory."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.begun = time.monotonic()

    def cpu(self) -> float:
        return cpu_seconds(self.process.pid)

    def memory(self, field: str) -> float:
        return memory_mb(self.process.pid, field)

    async def settled(self) -> None:
        """Return when it has used almost no CPU for a second."""
        before = self.cpu()
        for _ in range(60):
            await asyncio.sleep(1.0)
            now = self.cpu()
            if now - before < 0.03:
                return
            before = now


@contextlib.asynccontextmanager
async def running(program: Program, namespace: str, log: Path) -> AsyncIterator[Running]:
    report = log.with_suffix(".instructions")
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *(counting_instructions(report) if program.count_instructions else ()),
            *program.command(namespace),
            env=program.environ(namespace),
            cwd=program.folder,
            stdout=out,
            stderr=out,
        )
    try:
        yield Running(process)
        if process.returncode is not None:
            raise RuntimeError(f"{program.library} ended:\n{log.read_text()[-2000:]}")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


class Watcher:
    """Times at which a watch showed the change and the write of each object."""

    def __init__(self, client: rt.Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.changed: dict[tuple[str, str], float] = {}
        self.written: dict[tuple[str, str], float] = {}
        self.open = asyncio.Event()
        self._more = asyncio.Event()

    async def follow(self) -> None:
        page = await self._client.list_page(rt.ConfigMap, self._namespace, limit=1)
        async with self._client.watch(
            rt.ConfigMap,
            self._namespace,
            resource_version=page.resource_version,
            timeout_seconds=3600,
        ) as stream:
            self.open.set()
            while frames := await stream.read():
                now = time.monotonic()
                for frame in frames:
                    if frame.type in ("ADDED", "MODIFIED"):
                        self._note(rt_decode(frame.object), now)
                self._more.set()

    def _note(self, obj: rt.ConfigMap, now: float) -> None:
        name, value = obj.metadata.name, (obj.data or {})["value"]
        self.changed.setdefault((name, value), now)
        if obj.metadata.annotations.get(ANNOTATION) == value:
            self.written.setdefault((name, value), now)

    async def wait(self, count: int, seconds: float) -> None:
        """Wait until the given number of writes has been seen."""
        try:
            async with asyncio.timeout(seconds):
                while len(self.written) < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            text = f"{len(self.written)} of {count} writes after {seconds:.0f} s"
            raise RuntimeError(f"{text}; {len(self.changed)} changes") from None


def rt_decode(raw: object) -> rt.ConfigMap:
    import msgspec

    return msgspec.json.decode(raw, type=rt.ConfigMap)


async def requests_by_kind(
    client: rt.Client, resources: Collection[str] = ("configmaps", "events")
) -> dict[str, float]:
    """Number of answered requests of controllers, by verb and resource."""
    request = rt.HttpRequest(method="GET", path="/metrics", timeout_s=30)
    answer = await client.transport.request(request)
    counted: dict[str, float] = defaultdict(float)
    for labels, value in _REQUEST.findall(answer.body.decode()):
        found = dict(_LABEL.findall(labels))
        if found.get("resource") in resources and found["verb"] not in (
            "WATCH",
            "LIST",
        ):
            counted[f"{found['verb']} {found['resource']}"] += float(value)
    return counted


async def start_alone(client: rt.Client, program: Program, namespace: str, log: Path) -> float:
    """CPU seconds of a process with one object, in a new namespace."""
    await create_namespace(client, namespace)
    body = {"metadata": {"name": "only"}, "data": {"value": "first"}}
    await client.create(rt.ConfigMap, namespace, body)
    async with running(program, namespace, log) as process, asyncio.timeout(300):
        found = await client.get(rt.ConfigMap, namespace, "only")
        while ANNOTATION not in found.metadata.annotations:
            await asyncio.sleep(0.5)
            found = await client.get(rt.ConfigMap, namespace, "only")
        await process.settled()
        return process.cpu()


async def one_round(
    client: rt.Client, program: Program, namespace: str, options: argparse.Namespace, folder: Path
) -> Figures:
    figures = Figures()
    log = folder / f"{namespace}.log"
    await create_namespace(client, namespace)
    if not program.bytecode.exists():
        program.bytecode.mkdir()
        await start_alone(client, program, f"{namespace}-first", log)
    figures.start_cpu_s = await start_alone(client, program, f"{namespace}-start", log)

    def made(number: int):
        body = {"metadata": {"name": f"object-{number}"}, "data": {"value": "first"}}
        return lambda: client.create(rt.ConfigMap, namespace, body)

    watcher = Watcher(client, namespace)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(watcher.follow())
        await watcher.open.wait()
        await in_parallel(32, (made(number) for number in range(options.count)))
        before = await requests_by_kind(client)
        async with running(program, namespace, log) as process:
            await watcher.wait(options.count, 300)
            figures.wall_s = time.monotonic() - process.begun
            await process.settled()
            figures.cpu_s = process.cpu()
            figures.peak_mb = process.memory("VmHWM")
            after = await requests_by_kind(client)
            figures.requests = {
                kind: (value - before.get(kind, 0)) / options.count
                for kind, value in after.items()
                if value - before.get(kind, 0) >= options.count / 100
            }
            await asyncio.sleep(options.idle)
            figures.idle_mb = process.memory("VmRSS")
            if options.seconds:
                await changes(client, watcher, namespace, options)
                changed = int(options.rate * options.seconds)
                await process.settled()
                figures.change_cpu_ms = (process.cpu() - figures.cpu_s) / changed * 1000
        following.cancel()
    if program.count_instructions:
        figures.instructions_g = instructions(log.with_suffix(".instructions")) / 1e9
    figures.latencies_s = sorted(
        at - watcher.changed[key] for key, at in watcher.written.items() if key[1] != "first"
    )
    return figures


async def changes(
    client: rt.Client, watcher: Watcher, namespace: str, options: argparse.Namespace
) -> None:
    """Change objects at fixed times, without waiting for earlier answers."""
    begin = time.monotonic() + 0.1
    count = int(options.rate * options.seconds)

    async def one(number: int) -> None:
        await asyncio.sleep(max(0.0, begin + number / options.rate - time.monotonic()))
        body = {"data": {"value": f"value-{number}"}}
        name = f"object-{number * 7919 % options.count}"
        await client.merge_patch(rt.ConfigMap, namespace, name, body)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
    await watcher.wait(options.count + count, 60)


def percentile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def report(title: str, found: dict[str, list[Figures]]) -> None:
    """Print a markdown table: medians, and the ratios of the first library's to the others'.

    Rows of what was not measured are left out.
    """

    def middle(runs: list[Figures], of: str) -> float:
        return statistics.median(getattr(run, of) for run in runs)

    def requests(runs: list[Figures]) -> str:
        kinds = runs[-1].requests
        parts = (f"{value:.2f} {kind}" for kind, value in sorted(kinds.items(), reverse=True))
        return ", ".join(parts) or "none"

    measured = [run for runs in found.values() for run in runs]
    console.print(f"\n{title}\n")
    lines = [["", *found], ["---"] * (len(found) + 1)]
    for name, of, digits in (
        ("wall, s", "wall_s", 2),
        ("CPU, s", "cpu_s", 2),
        ("of it the start, s", "start_cpu_s", 2),
        ("peak memory, MB", "peak_mb", 0),
        ("idle memory, MB", "idle_mb", 0),
        ("CPU of a change, ms", "change_cpu_ms", 2),
        ("instructions of all, G", "instructions_g", 3),
    ):
        if not any(getattr(run, of) for run in measured):
            continue
        row = [name]
        for runs in found.values():
            values = [getattr(run, of) for run in runs]
            shown = (min(values), statistics.median(values), max(values))
            row.append(" / ".join(f"{value:.{digits}f}" for value in shown))
        lines.append(row)
    lines.append(["requests for an object", *(requests(runs) for runs in found.values())])
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        row = [f"change to write {name}, ms"]
        for runs in found.values():
            values = [percentile(run.latencies_s, part) * 1000 for run in runs]
            row.append(f"{statistics.median(values):.1f}")
        lines.append(row)
    first = next(iter(found.values()))
    for name, of in (
        ("CPU", "cpu_s"),
        ("instructions", "instructions_g"),
        ("peak memory", "peak_mb"),
        ("idle memory", "idle_mb"),
    ):
        if not any(getattr(run, of) for run in measured):
            continue
        row = [f"{name}: the first's part of it"]
        for runs in found.values():
            other = middle(runs, of)
            row.append(f"{middle(first, of) / other:.2f}" if other else "-")
        lines.append(row)
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)


async def measure(cluster: Cluster, folder: Path, options: argparse.Namespace) -> None:
    client = await rt.connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    programs = [
        Program(
            library,
            workers,
            cluster.kubeconfig,
            folder / f"{library}.bytecode",
            count_instructions=options.instructions,
        )
        for library in options.libraries
        for workers in (options.workers if library in (OURS, "controller-runtime") else [0])
    ]
    programs += [
        beside(checkout.resolve(), program, folder / f"beside-{number}")
        for number, checkout in enumerate(options.beside)
        for program in programs
        if program.library == OURS
    ]
    try:
        for count in options.objects:
            options.count = count
            found: dict[str, list[Figures]] = defaultdict(list)
            for number in range(options.rounds):
                for position, program in list(enumerate(programs))[:: -1 if number % 2 else 1]:
                    library, workers = program.library, program.workers
                    name = f"{library}, {workers} workers" if workers else library
                    say(f"{count} objects, round {number + 1}: {name}")
                    namespace = f"bench-{count}-{number}-{position}"
                    figures = await one_round(client, program, namespace, options, folder)
                    found[name].append(figures)
                    p50, p99 = (percentile(figures.latencies_s, part) for part in (0.5, 0.99))
                    say(
                        f"wall {figures.wall_s:.2f} s, CPU {figures.cpu_s:.2f} s (start "
                        f"{figures.start_cpu_s:.2f}), peak {figures.peak_mb:.0f} MB, idle "
                        f"{figures.idle_mb:.0f} MB, p50 {p50 * 1000:.1f} ms, p99 "
                        f"{p99 * 1000:.1f} ms"
                    )
            title = f"{count} objects, {options.rate:g} changes a second; min / median / max of "
            report(title + f"{options.rounds}; load {os.getloadavg()[0]:.0f}", found)
    finally:
        await client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[DEFAULT_WORKERS],
        help="number of workers of ours and of controller-runtime",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="other checkouts of jobsetpy, each with its .venv",
    )
    parser.add_argument("--instructions", action="store_true", help="with valgrind's cachegrind")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long; 0 for not at all")
    parser.add_argument("--idle", type=float, default=5.0, help="until memory is called idle")
    options = parser.parse_args()
    if any(library.startswith("kopf") for library in options.libraries):
        kopf_folder()
    if "controller-runtime" in options.libraries:
        controller_runtime()
    with (
        tempfile.TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(name="bench-library", controller_manager=False, scheduler=False) as cluster,
    ):
        uvloop.run(measure(cluster, Path(folder), options))


if __name__ == "__main__":
    main()
