"""Time from a failure until all ranks of a training step again; real pods, manager and agents.

PyTorch (DDP over gloo; 2.15 from PyPI as ``torch``, 1.13 from Debian as ``torch1``), JAX (gloo,
from PyPI) and a program without a framework (``plain``) in pods of real nodes, with a checkpoint on
a shared folder.

Failures: ``kill`` (SIGKILL of one rank), ``raise`` (one rank raises an exception), ``hang``
(SIGSTOP of one rank; only supervisors notice), ``pod`` (one pod is deleted without grace period),
``whole`` (SIGKILL of a pod's agent, and with it of all processes of its container), ``node`` (all
processes of a node end simultaneously, including kubelet and containers), ``silent`` (a node's link
drops everything, and no connection is closed), ``api`` (the API server is down for ``--away``
seconds, and no rank may end).

``node`` and ``silent`` need a second node, which has only ``--lost-pods`` pods of the training. It
returns after the measurement. A training that has not recovered within ``--limit`` seconds is
reported as such, and the next failure uses a new training.

Ways to restart: Recreate, sidecar, supervisor, supervisor with standbys that import a ``list`` of
modules or what the program imports (``auto``), the same with a program that keeps its compiled step
(``kept``), ``list`` with one or two spare pods (``spare-1``, ``spare-2``), the same with heartbeats
between agents (``ring-1``, ``ring-2``), and the elastic launchers ``torchrun`` and ``ft_launcher``
in the same pods, ``torchrun-more`` with one pod more than it needs (``nnodes=4:5``).

Without a spare, ``fewer`` continues with one pod less (``min-pods``; with heartbeats in
``fewer-ring``), as ``torchrun-fewer`` does (``nnodes=3:4``): a lost pod is measured until the other
ranks step, and again, as ``back``, from the successor's being ready until all step.

Results are lines of a file (``--results``), to which several runs may append; ``--report`` makes
the tables and the picture from it.
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
from hack.images.training import FRAMEWORKS, PLAIN, framework_image  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.agent_reports import PREPARED, READY
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import NotFoundError
from support import patience
from support.agents.training_kit import (
    CALM_S,
    FEWER,
    FRAMEWORKS_OF,
    GROW_AFTER_S,
    HANG_S,
    MODES,
    NAMESPACE,
    RANKS_HAVE,
    SHRINKING,
    SPARES,
    STANDBYS,
    START_LIMIT_S,
    SUPERVISED,
    Training,
    cordon,
    manifest,
)
from support.cluster.install import CONFIG, apply_manifest, connected, install_manager
from support.cluster.processes import pod_host_name, process_in
from support.restarts.scenario import build_images, manager_ready, pod_log_folders
from support.restarts.timeline import log_time

FAILURES = ("kill", "raise", "hang", "pod", "whole", "node", "silent")
BACK = "back"
"""Second part of the loss of a pod for which there is no spare."""

AWAY = "api"
"""Outage of the API server, which is not a failure of the training."""

OF_NODES = {"node", "silent"}
LOST = "node-2"
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
"""Aims with four pods: median, and maximum after the second start, in seconds."""

LIMIT_S = 180.0
"""Default limit for a restart; torchrun may never recover from the loss of a pod."""

PROGRAMS = tuple(FRAMEWORKS)


@attrs.frozen
class Round:
    """One failure, with the seconds until the last rank reached each step.

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
class Lost:
    """A training that did not step again within a limit."""

    framework: str
    pods: int
    mode: str
    failure: str
    limit_s: float


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


Result = Round | Lost | Memory


class Bench:
    """A cluster with the manager, and what was measured on it.

    Args:
        client: client of the cluster.
        cluster: cluster with one node, or with two for failures of nodes.
        options: options of the command line.
    """

    def __init__(self, client: Client, cluster: Cluster, options: argparse.Namespace) -> None:
        self._client = client
        self._cluster = cluster
        self._logs = pod_log_folders(cluster)
        self._options = options
        self.found: list[Result] = []
        self._grown_at = 0.0

    def note(self, item: Result) -> None:
        """Keep a result."""
        self.found.append(item)
        if self._options.results:
            with self._options.results.open("a") as file:
                file.write(json.dumps(attrs.asdict(item)) + "\n")

    async def measure(self, framework: str, mode: str, pods: int) -> None:
        """All failures, with as few trainings as possible."""
        failures = self._options.failure
        left = [f for f in failures if f not in {"hang", "whole"} or mode in SUPERVISED]
        while left:
            async with self._running(framework, mode, pods) as training:
                lost = await self._until_lost(training, framework, mode, left)
            if lost is None:
                return
            say(f"{framework}, {pods} pods, {mode}, {lost}: not within {self._options.limit:g} s")
            self.note(Lost(framework, pods, mode, lost, self._options.limit))
            left = left[left.index(lost) + 1 :]

    async def _until_lost(
        self, training: Training, framework: str, mode: str, failures: Sequence[str]
    ) -> str | None:
        """Cause the failures of one training; return one from which it has not recovered."""
        restarts = 0
        for failure in failures:
            for number in range(self._options.rounds):
                what = f"{framework}, {training.pods} pods, {mode}, {failure} {number + 1}"
                if failure == AWAY:
                    await self._away(training, framework, mode, what)
                    continue
                try:
                    done = await self._round(training, framework, mode, failure, number)
                except TimeoutError:
                    return failure
                restarts += 1
                done = attrs.evolve(done, restart=restarts, load=os.getloadavg()[0])
                self.note(done)
                said = f"{done.imported:.2f}, {done.joined:.2f}, {done.stepping:.2f} s"
                seen = "" if done.noticed is None else f", noticed {done.noticed:.2f} s"
                say(f"{what}: {said}{seen}, {done.steps_lost} steps lost, load {done.load:.1f}")
        return None

    @asynccontextmanager
    async def _running(self, framework: str, mode: str, pods: int) -> AsyncIterator[Training]:
        name = f"{framework}-{mode}".replace("_", "-")
        with tempfile.TemporaryDirectory(prefix="training-") as place:
            training = Training(Path(place), pods)
            spread_out = needs_nodes(self._options)
            document = manifest(
                name,
                framework,
                mode,
                pods,
                training.folder,
                spread=spread_out,
                standby_delay=self._options.standby_delay,
            )
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
        """Return the runs of a training that has been undisturbed for a while."""
        while True:
            standbys = await training.standbys() if mode in STANDBYS else {}
            if mode in SPARES:
                await self._spares(f"{framework}-{mode}", SPARES[mode])
            before = training.runs()
            await asyncio.sleep(SETTLE_S)
            runs = training.runs()
            if runs == before and all(run["world"] >= training.pods for run in runs.values()):
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

    async def _away(self, training: Training, framework: str, mode: str, what: str) -> None:
        """Stop the API server for a while: no rank may end or stop stepping."""
        runs = await self._settled(training, framework, mode)
        before = training.step()
        await asyncio.to_thread(self._cluster.stop_apiserver, kill=True)
        began = time.monotonic()
        await asyncio.sleep(self._options.away)
        steps, seconds = training.step() - before, time.monotonic() - began
        await asyncio.to_thread(self._cluster.start_apiserver)
        await asyncio.sleep(SETTLE_S)
        ended = sum(run != runs[rank] for rank, run in training.runs().items())
        last = training.step()
        await asyncio.sleep(1)
        say(
            f"{what}: {steps} steps in {seconds:.0f} s without an API server, {ended} ranks ended, "
            f"{training.step() - last} steps in the second after"
        )

    async def _on_lost_node(self) -> list[Pod]:
        pods = (await self._client.list_page(Pod, NAMESPACE)).items
        return [
            each
            for each in pods
            if each.spec.node_name == LOST
            and each.metadata.deletion_timestamp is None
            and each.status.phase == "Running"
        ]

    async def _holder_on_lost_node(self, training: Training, framework: str, mode: str) -> None:
        """Move pods until the node that will be lost is full and has a seat.

        A deleted pod's successor prefers the node with the fewest pods, and a spare there takes the
        seat of a pod that is deleted elsewhere. The first pod, the host of torchrun's rendezvous,
        is not moved.
        """
        while True:
            runs = await self._settled(training, framework, mode)
            there = await self._on_lost_node()
            hosts = {pod_host_name(each) for each in there}
            if len(there) == self._options.lost_pods and (
                mode not in SPARES or any(run["host"] in hosts for run in runs.values())
            ):
                return
            elsewhere = [run["host"] for run in runs.values() if run["host"] not in hosts]
            victim = max(elsewhere, key=lambda host: int(host.rpartition("-")[2]))
            moment = time.time()
            await self._client.delete(
                Pod, NAMESPACE, await self._pod(victim), grace_period_seconds=0
            )
            await training.stepping(moment, self._options.limit)

    @asynccontextmanager
    async def _node_failure(self, failure: str) -> AsyncIterator[None]:
        """Stop or disconnect a node, and restore it at the end."""
        cluster = self._cluster
        lose = cluster.stop_node if failure == "node" else cluster.unplug_node
        recover = cluster.start_node if failure == "node" else cluster.plug_in_node
        losing = asyncio.create_task(asyncio.to_thread(lose, LOST))
        try:
            yield
        finally:
            await losing
            await asyncio.to_thread(recover, LOST)

    async def _round(
        self, training: Training, framework: str, mode: str, failure: str, number: int
    ) -> Round:
        if failure in OF_NODES:
            await self._holder_on_lost_node(training, framework, mode)
            moment = time.time()
            async with self._node_failure(failure):
                runs = await self._left(training, mode).stepping(moment, self._options.limit)
            return self._result(training, framework, mode, failure, moment, runs)
        runs = await self._settled(training, framework, mode)
        if mode in SHRINKING:
            await asyncio.sleep(self._grown_at + CALM_S - time.time())
        # Ranks alternate. The pod is always the last one: with the first one, torchrun would
        # lose its rendezvous as well.
        nth = 0 if failure in {"pod", "whole"} else number % training.pods
        victim = runs[training.pods - 1 - nth]
        pod = await self._pod(victim["host"])
        if failure == "pod":
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
            body = json.dumps({"gracePeriodSeconds": 0}).encode()
            moment = time.time()
            await self._client.raw(HttpRequest(method="DELETE", path=path, body=body))
        else:
            inner = 1 if failure == "whole" else victim["pid"]
            process = process_in(victim["host"], inner, RANKS_HAVE)
            moment = time.time()
            os.kill(process, SIGNALS[failure])
        loses_pod = failure in {"pod", "whole"}
        left = self._left(training, mode) if loses_pod else training
        runs = await left.stepping(moment, self._options.limit)
        result = self._result(training, framework, mode, failure, moment, runs)
        if left.pods < training.pods:
            await self._back(training, framework, mode, pod)
        return result

    def _left(self, training: Training, mode: str) -> Training:
        """Return the ranks that are to step when a pod is lost."""
        return attrs.evolve(training, pods=training.pods - (mode in FEWER))

    async def _back(self, training: Training, framework: str, mode: str, lost: str) -> None:
        """Measure from a successor's being ready, or under torchrun its start, until all step.

        The group also waits until the others' standby processes are ready, and has its size for
        ``GROW_AFTER_S``: the last of the three counts, and the first is printed.
        """
        host = lost.rpartition("-")[0]

        def has_come(pod: Pod) -> bool:
            if mode in SHRINKING:
                return pod.metadata.annotations.get(keys.AGENT_STATE_ANNOTATION) == READY
            is_other = pod_host_name(pod) == host and pod.metadata.name != lost
            return is_other and pod.status.phase == "Running"

        jobset = await self._client.get(JobSet, NAMESPACE, f"{framework}-{mode}")
        record = jobset.status.in_place_restart
        resized = None if record is None else record.resize_time
        async with patience.timeout(self._options.limit):
            while True:
                pods = (await self._client.list_page(Pod, NAMESPACE)).items
                if any(map(has_come, pods)):
                    break
                await asyncio.sleep(0.05)
            come = moment = time.time()
            if resized is not None:  # not under torchrun
                moment = await self._prepared(training.pods)
                moment = max(moment, resized.timestamp() + GROW_AFTER_S)
                say(f"waited {moment - come:.2f} s for the others and the time between sizes")
            runs = await training.stepping(moment, self._options.limit)
        self._grown_at = time.time()
        back = self._result(training, framework, mode, BACK, moment, runs)
        self.note(attrs.evolve(back, load=os.getloadavg()[0]))
        say(f"{framework}, {training.pods} pods, {mode}, {BACK}: {back.stepping:.2f} s")

    async def _prepared(self, pods: int) -> float:
        """Return the time at which the last pod was ready to become larger."""
        seen: dict[str, float] = {}
        while True:
            found = (await self._client.list_page(Pod, NAMESPACE)).items
            for pod in found:
                if pod.metadata.annotations.get(keys.AGENT_STATE_ANNOTATION) in {PREPARED, READY}:
                    seen.setdefault(pod.metadata.uid, time.time())
            epochs = {pod.metadata.annotations.get(keys.EPOCH_ANNOTATION) for pod in found}
            if len(seen) >= pods or len(epochs) == 1:  # or all have left the smaller group
                return max(seen.values())
            await asyncio.sleep(0.02)

    def _result(
        self,
        training: Training,
        framework: str,
        mode: str,
        failure: str,
        moment: float,
        runs: dict[int, Any],
    ) -> Round:
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
            if pod_host_name(each) == host and each.metadata.deletion_timestamp is None
        )

    def _noticed(self, moment: float) -> float | None:
        """Return when the first agent reported that its worker hangs, in seconds since a time."""
        said = [
            log_time(line.partition(" ")[0]) or 0.0
            for folder in self._logs
            for path in folder.glob(f"{NAMESPACE}_*/worker/*.log")
            for line in path.read_text().splitlines()
            if "the worker hangs" in line
        ]
        later = [each - moment for each in said if each > moment]
        return min(later) if later else None


def needs_nodes(options: argparse.Namespace) -> bool:
    """Return True if a node is to be lost."""
    return bool(OF_NODES & set(options.failure))


async def run(cluster: Cluster, options: argparse.Namespace) -> list[Result]:
    """Run everything that the options select, one after the other."""
    async with connected(cluster.kubeconfig) as client:
        if needs_nodes(options):  # the manager is not on the node that will be lost
            await cordon(client, LOST, cordoned=True)
        await install_manager(client)
        await manager_ready(client)
        if needs_nodes(options):
            await cordon(client, LOST, cordoned=False)
        for path in sorted((CONFIG / "agent").rglob("*.yaml")):
            if path.name != "kustomization.yaml":
                await apply_manifest(client, path)
        bench = Bench(client, cluster, options)
        for framework in options.framework:
            for pods in options.pods:
                for mode in options.modes:
                    if framework in FRAMEWORKS_OF.get(mode, PROGRAMS):
                        await bench.measure(framework, mode, pods)
        return bench.found


def read(path: Path) -> list[Result]:
    """Return the results of earlier runs."""
    kinds: dict[str, type[Result]] = {"own": Memory, "limit_s": Lost}
    items = [json.loads(line) for line in path.read_text().splitlines()]
    return [next((kinds[k] for k in kinds if k in each), Round)(**each) for each in items]


Key = tuple[str, int, str]
"""Framework, pods, failure."""


def grouped(found: Iterable[Result]) -> dict[Key, dict[str, list[Round]]]:
    """Rounds by what failed, and by the way to restart."""
    groups: dict[Key, dict[str, list[Round]]] = {}
    for each in found:
        if isinstance(each, Round):
            ways = groups.setdefault((each.framework, each.pods, each.failure), {})
            ways.setdefault(each.mode, []).append(each)
    return {key: {m: ways[m] for m in MODES if m in ways} for key, ways in groups.items()}


def outcomes(found: Iterable[Result]) -> dict[Key, dict[str, list[Round] | Lost]]:
    """Rounds, or what was not seen to restart, by what failed and by the way to restart."""
    known = list(found)
    groups: dict[Key, dict[str, list[Round] | Lost]] = {
        key: dict(ways) for key, ways in grouped(known).items()
    }
    for each in known:
        if isinstance(each, Lost):
            key = (each.framework, each.pods, each.failure)
            groups.get(key, {}).setdefault(each.mode, each)
    return groups


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


def report(found: Sequence[Result]) -> None:
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
    for each in found:
        if isinstance(each, Lost):
            say(
                f"{NAMES[each.framework]}, {each.pods} pods, {each.mode}, {each.failure}: "
                f"not within {each.limit_s:g} s"
            )
    loads = [each.load for each in found if isinstance(each, Round)]
    if loads:
        say(f"load of the machine: {spread(loads, '', 1)}")
        print(markdown(found))


def _in_order(found: Iterable[Result]) -> list[tuple[Key, dict[str, list[Round]]]]:
    def place(item: tuple[Key, object]) -> tuple[int, int, int]:
        framework, pods, failure = item[0]
        return PROGRAMS.index(framework), pods, (*FAILURES, BACK).index(failure)

    return sorted(grouped(found).items(), key=place)


MORE = "torchrun-more"
SAID = {
    "kill": "a rank is killed",
    "raise": "a rank raises an exception",
    "hang": f"a rank hangs (`hang-seconds` {HANG_S})",
    "pod": "a pod is deleted",
    "whole": "a pod is killed whole, agent included",
    "node": "a node is killed",
    "silent": "a node falls silent",
    BACK: "its successor is ready",
}


WAYS = (
    *("recreate", "torchrun", "ft_launcher", "sidecar", "supervisor", "auto", "spare-1", "ring-1"),
    *("fewer", "fewer-ring", "torchrun-fewer"),
)
"""Ways in the README's tables, as far as they were measured; a step that is kept has a row of its
own, and torchrun with one pod more is in the column of torchrun."""


def markdown(found: Sequence[Result]) -> str:
    """The tables of the README: medians, with the most for standbys.

    The first has all ways for the first failure. The second has those that other failures were
    measured with: few enough columns for a window of 1,280 pixels.
    """
    known, order = outcomes(found), [key for key, _ in _in_order(found)]
    if not order:
        return ""
    first, *others = order
    usual = f"{NAMES[first[0]]}, {first[1]} pods"
    lines = [f"| {usual}: {SAID[first[2]]} | all ranks step again after |", "|---|---|"]
    lines += [_row(LABELS[way], [known[first][way]]) for way in WAYS if way in known[first]]
    measured = {_mode(each) for key in others for each in known[key].values()}
    measured |= {"torchrun"} if MORE in measured else set()
    columns = [mode for mode in WAYS if mode in measured]
    heads = " | ".join(LABELS[mode] for mode in columns)
    lines += ["", f"| {usual} | {heads} |", "|---" * (len(columns) + 1) + "|"]
    for framework, pods, failure in others:
        ways = known[framework, pods, failure]
        case = f"{NAMES[framework]}, {pods} pods"
        what = SAID[failure] if case == usual else f"{SAID[failure]}; {case}"
        if MORE in ways:
            ways.setdefault("torchrun", ways[MORE])
        lines.append(_row(what, [ways.get(mode) for mode in columns]))
        if kept := ways.get("kept"):
            kept_only = [kept if mode == "auto" else None for mode in columns]
            lines.append(_row(f"{what}, compiled step kept ({KEPT_LINES} lines)", kept_only))
    return "\n".join(lines)


def _mode(rounds: list[Round] | Lost) -> str:
    return rounds.mode if isinstance(rounds, Lost) else rounds[0].mode


def _row(what: str, cells: Iterable[list[Round] | Lost | None]) -> str:
    texts = []
    for rounds in cells:
        more = ", with one pod more" if rounds and _mode(rounds) == MORE else ""
        if isinstance(rounds, Lost):
            texts.append(f"not within {rounds.limit_s:g} s{more}")
            continue
        text = f"{middle(rounds):.2f} s{more}" if rounds else "–"
        if rounds and rounds[0].mode in STANDBYS:
            text = f"**{text}** (≤ {max(each.stepping for each in rounds):.2f})"
        texts.append(text)
    return f"| {what} | {' | '.join(texts)} |"


NAMES = {each.name: each.title for each in FRAMEWORKS.values()}


def details(found: Sequence[Result]) -> str:
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


def fill(page: Path, found: Sequence[Result], drawn: Path | None) -> None:
    """Write the tables between their marks in a page, with the picture if there is one."""
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
    "torchrun-more": "torchrun, one pod more",
    "ft_launcher": "ft_launcher (NVIDIA)",
    "sidecar": "in place, sidecar",
    "supervisor": "in place, supervisor",
    "list": "standbys, list by hand",
    "auto": "standbys, auto",
    "kept": "standbys, auto, step kept",
    "spare-1": "standbys, one spare pod",
    "spare-2": "standbys, two spare pods",
    "ring-1": "one spare pod, heartbeats",
    "ring-2": "two spare pods, heartbeats",
    "fewer": "no spare, all pods but one",
    "fewer-ring": "no spare, all pods but one, heartbeats",
    "torchrun-fewer": "torchrun, all pods but one",
}
KEPT_LINES = 9
"""Number of lines that a user changes in the program for it; other ways need none."""


TITLES = {
    "kill": "One of {pods} ranks is killed: until all step again",
    "pod": "One of {pods} pods is deleted: until all step again",
    "whole": "One of {pods} pods is killed whole: until all step again",
    "node": "The node of one of {pods} pods is killed: until all step again",
    "silent": "The node of one of {pods} pods falls silent: until all step again",
}


def picture(found: Sequence[Result], key: Key) -> str:
    """Bars: the median of each way to restart, with its parts, or what was not seen to restart."""
    framework, pods, failure = key
    ways = outcomes(found)[key]
    shown = [(mode, ways[mode]) for mode in MODES if mode in ways]
    most = max(middle(rounds) for _, rounds in shown if not isinstance(rounds, Lost))
    parts = [_bar(62 + 34 * number, *way, 400 / most) for number, way in enumerate(shown)]
    nodes = "two nodes" if failure in OF_NODES else "one node"
    height = 76 + 34 * len(shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{height}" '
        f'viewBox="0 0 660 {height}" font-family="sans-serif" font-size="13" fill="#1f2933">'
        f'<rect width="660" height="{height}" fill="white"/>'
        f'<text x="16" y="24" font-size="15" font-weight="bold">{TITLES[failure].format(pods=pods)}'
        f'</text><text x="16" y="44" fill="#52606d">{NAMES[framework]}, real pods on {nodes}; '
        f"median; light: until the framework is imported, or a standby has the seat</text>"
        f"{''.join(parts)}</svg>\n"
    )


def _bar(y: int, mode: str, rounds: list[Round] | Lost, scale: float) -> str:
    label = f'<text x="178" y="{y + 16}" text-anchor="end">{LABELS[mode]}</text>'
    if isinstance(rounds, Lost):
        return (
            f'{label}<rect x="186" y="{y}" width="400" height="22" fill="#f1d5d3"/>'
            f'<text x="194" y="{y + 16}">not within {rounds.limit_s:g} s</text>'
        )
    seconds = middle(rounds)
    imported = min(seconds, statistics.median(each.imported for each in rounds))
    color, light = ("#1b7f5c", "#74c2a5") if mode in STANDBYS else ("#51687f", "#a9b8c6")
    return (
        f'{label}<rect x="186" y="{y}" width="{max(1.5, imported * scale):.1f}" height="22" '
        f'fill="{light}"/>'
        f'<rect x="{186 + imported * scale:.1f}" y="{y}" '
        f'width="{max(1.5, (seconds - imported) * scale):.1f}" height="22" fill="{color}"/>'
        f'<text x="{194 + seconds * scale:.1f}" y="{y + 16}" '
        f'font-weight="{"bold" if mode in STANDBYS else "normal"}">{seconds:.2f} s</text>'
    )


def chosen(choices: Iterable[str], text: str) -> list[str]:
    """Parse words with commas, each of which must be a choice."""
    words = text.split(",")
    if unknown := set(words) - set(choices):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: none of {choices}")
    return words


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--framework",
        type=lambda text: chosen(PROGRAMS, text),
        default=[each for each in PROGRAMS if each != PLAIN],
    )
    add("--pods", type=lambda text: [int(each) for each in text.split(",")], default=[4, 8])
    usual = [each for each in FAILURES if each not in OF_NODES]
    add("--failure", type=lambda text: chosen((*FAILURES, AWAY), text), default=usual)
    add("--modes", type=lambda text: chosen(MODES, text), default=list(MODES))
    add("--rounds", type=int, default=5)
    add("--standby-delay", type=int, default=1, help="seconds from a worker to its standby")
    add("--limit", type=float, default=LIMIT_S, help="seconds for a restart; default %(default)s")
    add("--lost-pods", type=int, default=1, help="pods on the lost node; default %(default)s")
    add("--away", type=float, default=300.0, help="seconds without API server; default %(default)s")
    add("--results", type=Path, help="a file to add results to")
    add("--report", type=Path, help="measure nothing: tables from such a file")
    add("--fill", type=Path, action="append", default=[], help="a page with marks for tables")
    add("--picture", type=Path, help="write a picture (SVG) there: PyTorch, least pods")
    add("--picture-of", choices=TITLES, default="kill", help="its failure; default %(default)s")
    options = parser.parse_args()
    if options.report:
        found = read(options.report)
    else:
        nodes = 1 + needs_nodes(options)
        say(f"building the images and starting a cluster with {nodes} nodes")
        images = [*build_images(), *map(framework_image, options.framework)]
        with Cluster(
            name=f"bench-training-{os.getpid()}",
            nodes=nodes,
            dns=True,
            images=images,
            kubelet_config={LOST: {"maxPods": options.lost_pods}},
            timeout_s=300 * nodes,
        ) as cluster:
            found = uvloop.run(run(cluster, options))
    report(found)
    if options.picture:
        key = min(
            (key for key in grouped(found) if key[2] == options.picture_of),
            key=lambda key: (PROGRAMS.index(key[0]), key[1]),
        )
        options.picture.write_text(picture(found, key))
    for page in options.fill:
        fill(page, found, options.picture)


if __name__ == "__main__":
    main()
