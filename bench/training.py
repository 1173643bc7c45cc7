"""From a failure until all ranks of a real training step again: real pods, manager and agents.

PyTorch (DDP over gloo; 2.15 from PyPI as ``torch``, 1.13 from Debian as ``torch1``) and JAX (gloo,
from PyPI) in pods of one real node, with a checkpoint on a shared folder.

Failures: ``kill`` (SIGKILL of one rank), ``raise`` (one rank raises an exception), ``hang``
(SIGSTOP of one rank; only supervisors notice), ``pod`` (one pod is deleted at once), ``whole``
(SIGKILL of a pod's agent, and with it of all processes of its container).

Ways to restart: Recreate, sidecar, supervisor, supervisor with standbys that import a ``list`` of
modules or what the program imports (``auto``), the same with a program that keeps its compiled step
(``kept``), ``list`` with one or two spare pods (``spare-1``, ``spare-2``), and the elastic
launchers ``torchrun`` and ``ft_launcher`` in the same pods.

Results are lines of a file (``--results``), to which several runs may add; ``--report`` makes the
tables and the picture from it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import uvloop

from bench.common import say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from hack.images.training import FRAMEWORKS, framework_image  # type: ignore[import-not-found]
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, connect
from jobsetpy.errors import NotFoundError
from support import patience
from support.agents.training_kit import (
    FRAMEWORKS_OF,
    HANG_S,
    MODES,
    NAMESPACE,
    RANKS_HAVE,
    SPARES,
    STANDBYS,
    START_LIMIT_S,
    SUPERVISED,
    Training,
    manifest,
)
from support.cluster.install import CONFIG, apply_manifest, install_manager
from support.restarts.scenario import (
    build_images,
    manager_ready,
    pod_log_folders,
    process_in,
)
from support.restarts.timeline import log_time

FAILURES = ("kill", "raise", "hang", "pod", "whole")
SIGNALS = {
    "kill": signal.SIGKILL,
    "raise": signal.SIGUSR2,
    "hang": signal.SIGSTOP,
    "whole": signal.SIGKILL,
}
SETTLE_S = 3.0
AIMS = {
    ("torch", "kill", "auto"): (0.6, 1.0),
    ("torch", "raise", "auto"): (0.6, None),
    ("torch1", "kill", "auto"): (0.45, 0.8),
    ("torch1", "kill", "list"): (0.45, 0.8),
    ("jax", "kill", "auto"): (0.8, None),
    ("jax", "kill", "kept"): (0.45, None),
}
"""With four pods: the median, and the most after the second start, in seconds."""

LIMIT_S = 180.0
"""How long a restart is waited for; torchrun may never come back from the loss of a pod."""


@attrs.frozen
class Round:
    """One failure: seconds from it until the last rank had come there.

    ``restart`` counts from 1 for the first restart of a training; ``load`` is the machine's.
    """

    framework: str
    pods: int
    mode: str
    failure: str
    imported: float
    joined: float
    stepping: float
    steps_lost: int
    noticed: float | None = None
    restart: int = 0
    load: float = 0.0


@attrs.frozen
class Memory:
    """Memory of one process, in bytes: its own, and with its share of what it shares."""

    framework: str
    what: str
    own: int
    share: int


def memory_of(process: int) -> tuple[int, int]:
    """Return the private memory of a process, and that with its share of shared pages, in bytes."""
    fields: dict[str, int] = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    return fields["Private_Clean"] + fields["Private_Dirty"], fields["Pss"]


class Bench:
    """A cluster with the manager, and what was measured on it.

    Args:
        client: of the cluster.
        cluster: with one node.
        results: the file that rounds are added to, if there is one.
    """

    def __init__(self, client: Client, cluster: Cluster, results: Path | None) -> None:
        self._client = client
        self._logs = pod_log_folders(cluster)
        self._results = results
        self.found: list[Round | Memory] = []

    def note(self, item: Round | Memory) -> None:
        """Keep a result."""
        self.found.append(item)
        if self._results:
            with self._results.open("a") as file:
                file.write(json.dumps(attrs.asdict(item)) + "\n")

    async def measure(
        self, framework: str, mode: str, pods: int, failures: Sequence[str], rounds: int
    ) -> None:
        """Failures of one training, one after the other."""
        wanted = [f for f in failures if f not in {"hang", "whole"} or mode in SUPERVISED]
        if not wanted:
            return
        restarts = 0
        async with self._running(framework, mode, pods) as training:
            for failure in wanted:
                for number in range(rounds):
                    try:
                        done = await self._round(training, framework, mode, failure, number)
                        restarts += 1
                        done = attrs.evolve(done, restart=restarts, load=os.getloadavg()[0])
                    except TimeoutError:
                        say(f"{framework}, {pods} pods, {mode}, {failure}: not within {LIMIT_S} s")
                        return
                    self.note(done)
                    said = f"{done.imported:.2f}, {done.joined:.2f}, {done.stepping:.2f} s"
                    seen = "" if done.noticed is None else f", noticed {done.noticed:.2f} s"
                    say(
                        f"{framework}, {pods} pods, {mode}, {failure} {number + 1}: {said}{seen}, "
                        f"{done.steps_lost} steps lost, load {done.load:.1f}"
                    )

    @asynccontextmanager
    async def _running(self, framework: str, mode: str, pods: int) -> AsyncIterator[Training]:
        name = f"{framework}-{mode}".replace("_", "-")
        with tempfile.TemporaryDirectory(prefix="training-") as place:
            training = Training(Path(place), pods)
            document = manifest(name, framework, mode, pods, training.folder)
            began = time.time()
            await self._client.create(JobSet, NAMESPACE, document)
            try:
                await training.stepping(0, START_LIMIT_S)
                say(f"{framework}, {pods} pods, {mode}: all step, {time.time() - began:.1f} s")
                yield training
            finally:
                await self._delete(name)

    async def _delete(self, name: str) -> None:
        await self._client.delete(JobSet, NAMESPACE, name, propagation="Foreground")
        async with patience.timeout(120):
            while True:
                try:
                    await self._client.get(JobSet, NAMESPACE, name)
                except NotFoundError:
                    return
                await asyncio.sleep(0.2)

    async def _settled(self, training: Training, framework: str, mode: str) -> dict[int, Any]:
        """The runs of a training that has been left in peace for a while."""
        while True:
            standbys = await training.standbys() if mode in STANDBYS else {}
            if mode in SPARES:
                await self._spares(f"{framework}-{mode}", SPARES[mode])
            before = training.runs()
            await asyncio.sleep(SETTLE_S)
            runs = training.runs()
            if runs == before:
                worker = runs[max(runs)]
                if standbys:
                    self._weigh(framework, standbys[worker["host"]], f"standby, {mode}")
                with suppress(LookupError):
                    process = process_in(worker["host"], worker["pid"], RANKS_HAVE)
                    self._weigh(framework, process, f"worker, {mode}")
                return runs

    async def _spares(self, name: str, count: int) -> None:
        """Wait until all spares are ready."""
        async with patience.timeout(START_LIMIT_S):
            while True:
                jobset = await self._client.get(JobSet, NAMESPACE, name)
                record = jobset.status.in_place_restart
                if record is not None and record.ready_spares == count:
                    return
                await asyncio.sleep(0.1)

    def _weigh(self, framework: str, process: int, what: str) -> None:
        with suppress(OSError):
            self.note(Memory(framework, what, *memory_of(process)))

    async def _round(
        self, training: Training, framework: str, mode: str, failure: str, number: int
    ) -> Round:
        runs = await self._settled(training, framework, mode)
        # Each rank in turn. The pod is always the last one: with the first one torchrun loses its
        # rendezvous as well.
        nth = 0 if failure in {"pod", "whole"} else number % training.pods
        victim = runs[training.pods - 1 - nth]
        if failure == "pod":
            pod = await self._pod(victim["host"])
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
            body = json.dumps({"gracePeriodSeconds": 0}).encode()
            moment = time.time()
            await self._client.raw(HttpRequest(method="DELETE", path=path, body=body))
        else:
            inner = 1 if failure == "whole" else victim["pid"]
            process = process_in(victim["host"], inner, RANKS_HAVE)
            moment = time.time()
            os.kill(process, SIGNALS[failure])
        runs = await training.stepping(moment, LIMIT_S)
        imported, joined, stepping = (
            max(run[key] for run in runs.values()) - moment for key in ("began", "joined", "at")
        )
        return Round(
            framework,
            training.pods,
            mode,
            failure,
            imported,
            joined,
            stepping,
            max(0, runs[0]["before"] - (runs[0]["step"] - 1)),
            self._noticed(moment) if failure == "hang" else None,
        )

    async def _pod(self, host: str) -> str:
        pods = (await self._client.list_page(Pod, NAMESPACE)).items
        return next(
            each.metadata.name
            for each in pods
            if each.metadata.name.rpartition("-")[0] == host
            and each.metadata.deletion_timestamp is None
        )

    def _noticed(self, moment: float) -> float | None:
        """When the first agent said that its worker hangs, in seconds since a moment."""
        said = [
            log_time(line.partition(" ")[0]) or 0.0
            for folder in self._logs
            for path in folder.glob(f"{NAMESPACE}_*/worker/*.log")
            for line in path.read_text().splitlines()
            if "the worker hangs" in line
        ]
        later = [each - moment for each in said if each > moment]
        return min(later) if later else None


async def run(cluster: Cluster, options: argparse.Namespace) -> list[Round | Memory]:
    """All that the options ask for, one after the other."""
    client = await connect(kubeconfig=str(cluster.kubeconfig))
    try:
        await install_manager(client)
        await manager_ready(client)
        for path in sorted((CONFIG / "agent").rglob("*.yaml")):
            if path.name != "kustomization.yaml":
                await apply_manifest(client, path)
        bench = Bench(client, cluster, options.results)
        for framework in options.framework:
            for pods in options.pods:
                for mode in options.modes:
                    if framework in FRAMEWORKS_OF.get(mode, FRAMEWORKS):
                        await bench.measure(framework, mode, pods, options.failure, options.rounds)
        return bench.found
    finally:
        await client.aclose()


def read(path: Path) -> list[Round | Memory]:
    """The results that earlier runs have kept."""
    items = [json.loads(line) for line in path.read_text().splitlines()]
    return [Memory(**each) if "own" in each else Round(**each) for each in items]


Key = tuple[str, int, str]
"""Framework, pods, failure."""


def grouped(found: Iterable[Round | Memory]) -> dict[Key, dict[str, list[Round]]]:
    """Rounds by what failed, and by the way to restart."""
    groups: dict[Key, dict[str, list[Round]]] = {}
    for each in found:
        if isinstance(each, Round):
            ways = groups.setdefault((each.framework, each.pods, each.failure), {})
            ways.setdefault(each.mode, []).append(each)
    return {key: {m: ways[m] for m in MODES if m in ways} for key, ways in groups.items()}


def middle(rounds: Iterable[Round]) -> float:
    """The median until all step again."""
    return statistics.median(each.stepping for each in rounds)


def later(rounds: Iterable[Round]) -> float:
    """The most until all step again, without the first restart of each training."""
    return max((each.stepping for each in rounds if each.restart != 1), default=0.0)


def aim_of(key: Key, mode: str) -> str:
    """Return the aim as text; empty if there is none."""
    framework, pods, failure = key
    median, most = AIMS.get((framework, failure, mode), (None, None)) if pods == 4 else (None, None)
    bound = f"; after the second start <= {most} s" if most else ""
    return f"median <= {median} s{bound}" if median else ""


def report(found: Sequence[Round | Memory]) -> None:
    """Tables, for people and for a page."""
    for key, ways in _in_order(found):
        framework, pods, failure = key
        rows = []
        for mode, rounds in ways.items():
            all_step = spread([r.stepping for r in rounds], " s")
            rows.append((f"{mode}: all step again", all_step, aim_of(key, mode)))
            rows.append(("  imported, or released", spread([r.imported for r in rounds], " s"), ""))
            rows.append(("  joined", spread([r.joined for r in rounds], " s"), ""))
            rows.append(("  steps lost", spread([r.steps_lost for r in rounds], "", 0), ""))
            noticed = [r.noticed for r in rounds if r.noticed is not None]
            if noticed:
                rows.append(("  noticed", spread(noticed, " s"), f"<= {HANG_S + 1} s"))
            if mode in STANDBYS:
                rows.append(("  most after the second start", f"{later(rounds):.2f} s", ""))
            elif "auto" in ways:
                ratio = f"{middle(rounds) / middle(ways['auto']):.1f} times"
                rows.append(("  as long as auto", ratio, ""))
        table(f"{NAMES[framework]}, {pods} pods, {failure}: min / med / max", rows)
    sizes: dict[tuple[str, str], list[Memory]] = {}
    for each in found:
        if isinstance(each, Memory):
            sizes.setdefault((each.framework, each.what), []).append(each)
    for (framework, what), some in sizes.items():
        own = spread([each.own / 1e6 for each in some], " MB", 0)
        share = spread([each.share / 1e6 for each in some], " MB", 0)
        say(f"{framework}, memory of a {what}: own {own}; with its share {share}")
    loads = [each.load for each in found if isinstance(each, Round)]
    say(f"load of the machine: {spread(loads, '', 1)}")
    print(markdown(found))


def _in_order(found: Iterable[Round | Memory]) -> list[tuple[Key, dict[str, list[Round]]]]:
    def place(item: tuple[Key, object]) -> tuple[int, int, int]:
        framework, pods, failure = item[0]
        return list(FRAMEWORKS).index(framework), pods, FAILURES.index(failure)

    return sorted(grouped(found).items(), key=place)


SAID = {
    "kill": "a rank is killed",
    "raise": "a rank raises an exception",
    "hang": f"a rank hangs (`hang-seconds` {HANG_S})",
    "pod": "a pod is deleted",
    "whole": "a pod is killed whole, agent included",
}


WAYS = ("recreate", "torchrun", "ft_launcher", "sidecar", "supervisor", "auto", "spare-1")
"""Columns of the README's table; a step that is kept has a row of its own."""


def markdown(found: Sequence[Round | Memory]) -> str:
    """The table of the README: medians, with the most for standbys."""
    heads = " | ".join(LABELS[mode] for mode in WAYS)
    lines = [f"|  | {heads} |", "|---" * (len(WAYS) + 1) + "|"]
    for (framework, pods, failure), ways in _in_order(found):
        what = f"{SAID[failure]}; {NAMES[framework]}, {pods} pods"
        lines.append(_row(what, [ways.get(mode) for mode in WAYS]))
        if kept := ways.get("kept"):
            kept_only = [kept if mode == "auto" else None for mode in WAYS]
            lines.append(_row(f"{what}, compiled step kept ({KEPT_LINES} lines)", kept_only))
    return "\n".join(lines)


def _row(what: str, cells: Iterable[list[Round] | None]) -> str:
    texts = []
    for rounds in cells:
        text = f"{middle(rounds):.2f} s" if rounds else "–"
        if rounds and rounds[0].mode in STANDBYS:
            text = f"**{text}** (≤ {max(each.stepping for each in rounds):.2f})"
        texts.append(text)
    return f"| {what} | {' | '.join(texts)} |"


NAMES = {each.name: each.title for each in FRAMEWORKS.values()}


def details(found: Sequence[Round | Memory]) -> str:
    """The table of the figures: all that was measured, with its extremes."""
    columns = ("", "imported, or released", "joined", "all step", "steps lost", "noticed")
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for (framework, pods, failure), ways in _in_order(found):
        for mode, rounds in ways.items():
            noticed = [each.noticed for each in rounds if each.noticed is not None]
            cells = (
                f"{failure}, {NAMES[framework]}, {pods} pods: {LABELS[mode]}",
                spread([each.imported for each in rounds], " s"),
                spread([each.joined for each in rounds], " s"),
                spread([each.stepping for each in rounds], " s"),
                spread([each.steps_lost for each in rounds], "", 0),
                spread(noticed, " s") if noticed else "–",
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fill(page: Path, found: Sequence[Round | Memory], drawn: Path | None) -> None:
    """Put the tables between their marks in a page, with the picture if there is one."""
    medians = markdown(found)
    if drawn:
        where = os.path.relpath(drawn, page.parent)
        medians = f"![Until all ranks step again, by the way to restart]({where})\n\n{medians}"
    text = page.read_text()
    for mark, made in (("medians", medians), ("details", details(found))):
        head, begin, rest = text.partition(f"<!-- bench/training.py: {mark} -->\n")
        if begin:
            _, end, tail = rest.partition("<!-- end -->")
            text = f"{head}{begin}\n{made}\n\n{end}{tail}"
    page.write_text(text)


LABELS = {
    "recreate": "Recreate",
    "torchrun": "torchrun, elastic",
    "ft_launcher": "ft_launcher (NVIDIA)",
    "sidecar": "in place, sidecar",
    "supervisor": "in place, supervisor",
    "list": "standbys, list by hand",
    "auto": "standbys, auto",
    "kept": "standbys, auto, step kept",
    "spare-1": "standbys, one spare pod",
    "spare-2": "standbys, two spare pods",
}
KEPT_LINES = 9
"""Lines that a user changes in the program for it; all other ways need none."""


def picture(found: Sequence[Round | Memory], key: Key) -> str:
    """Bars: the median of each way to restart, with its parts."""
    ways = grouped(found)[key]
    framework, pods, _ = key
    most = max(map(middle, ways.values()))
    parts = []
    for number, (mode, rounds) in enumerate(ways.items()):
        y = 62 + number * 34
        seconds = middle(rounds)
        imported = min(seconds, statistics.median(each.imported for each in rounds))
        scale = 400 / most
        is_auto = mode in ("auto", "kept")
        color, light = ("#1b7f5c", "#74c2a5") if is_auto else ("#51687f", "#a9b8c6")
        parts.append(
            f'<text x="178" y="{y + 16}" text-anchor="end">{LABELS[mode]}</text>'
            f'<rect x="186" y="{y}" width="{max(1.5, imported * scale):.1f}" height="22" '
            f'fill="{light}"/>'
            f'<rect x="{186 + imported * scale:.1f}" y="{y}" '
            f'width="{max(1.5, (seconds - imported) * scale):.1f}" height="22" fill="{color}"/>'
            f'<text x="{194 + seconds * scale:.1f}" y="{y + 16}" '
            f'font-weight="{"bold" if is_auto else "normal"}">{seconds:.2f} s</text>'
        )
    name = NAMES[framework]
    height = 76 + 34 * len(ways)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{height}" '
        f'viewBox="0 0 660 {height}" font-family="sans-serif" font-size="13" fill="#1f2933">'
        f'<rect width="660" height="{height}" fill="white"/>'
        f'<text x="16" y="24" font-size="15" font-weight="bold">One of {pods} ranks is killed: '
        f"until all step again</text>"
        f'<text x="16" y="44" fill="#52606d">{name}, real pods on one node; median; light: until '
        f"the framework is imported</text>{''.join(parts)}</svg>\n"
    )


def chosen(choices: Iterable[str], text: str) -> list[str]:
    """Words with commas, each of them one that there is."""
    words = text.split(",")
    if unknown := set(words) - set(choices):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: none of {choices}")
    return words


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--framework", type=lambda text: chosen(tuple(FRAMEWORKS), text), default=list(FRAMEWORKS))
    add("--pods", type=lambda text: [int(each) for each in text.split(",")], default=[4, 8])
    add("--failure", type=lambda text: chosen(FAILURES, text), default=list(FAILURES))
    add("--modes", type=lambda text: chosen(MODES, text), default=list(MODES))
    add("--rounds", type=int, default=5)
    add("--results", type=Path, help="a file to add results to")
    add("--report", type=Path, help="measure nothing: tables from such a file")
    add("--fill", type=Path, action="append", default=[], help="a page with marks for tables")
    add("--picture", type=Path, help="write a picture (SVG) there: PyTorch, least pods, kill")
    options = parser.parse_args()
    if options.report:
        found = read(options.report)
    else:
        say("building the images and starting a cluster with one node")
        images = [*build_images(), *map(framework_image, options.framework)]
        with Cluster(
            name=f"bench-training-{os.getpid()}", nodes=1, dns=True, images=images, timeout_s=300
        ) as cluster:
            found = uvloop.run(run(cluster, options))
    report(found)
    if options.picture:
        key = min(
            (key for key in grouped(found) if key[2] == "kill"),
            key=lambda key: (list(FRAMEWORKS).index(key[0]), key[1]),
        )
        options.picture.write_text(picture(found, key))
    for page in options.fill:
        fill(page, found, options.picture)


if __name__ == "__main__":
    main()
