"""Gangs with the coscheduler and the real kube-scheduler, compared with the plain scheduler.

Etcd, API server and scheduler are real; nodes have no kubelets. All ways alternate in one cluster,
so that compared figures are from the same machine.

* throughput: 1,000 pods as 10 gangs of 100, 100 of 10 and one of 1,000, from the first creation to
  the last bind: plain pods with the plain scheduler; plain pods with the extender; gangs with
  scheduling gates; and gangs without gates, as the manager creates them while no gang waits. Ratios
  are those of each round.
* freed: a gang waits for the capacity of another; from the deletion of that to the gang's last
  bind.
* hopeless: a gang that can never fit, with and without the check of capacity: its cost, and the
  time until regular pods are bound next to it.
* held: thousands of simultaneously held binds (only with ``--part held``).
* decisions: maximum cost of a decision with 5,000 nodes; needs no cluster (only with ``--part
  decisions``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import attrs
import uvloop

from bench.common import ROOT, create_namespace, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.client import Client, HttpRequest, connect
from jobsetpy.coscheduler.engine.pods import GroupPod
from support.cluster.follow import following
from support.coscheduling.coscheduler_process import (
    CoschedulerProcess,
    ExtenderSite,
    coscheduler_process,
)
from support.coscheduling.gangs import (
    NAMESPACE,
    Binds,
    create_all,
    delete_all,
    make_node,
    pod_body,
    set_scheduler,
)
from support.patience import News, eventually

CRD = ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"
PARTS = ("throughput", "freed", "hopeless", "held")
SHAPES = ("10x100", "100x10", "1x1000")
PLAIN, EXTENDER, GANGS = "plain", "plain, with the extender", "gangs"
WAYS = (PLAIN, EXTENDER, GANGS)
QUICK = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
LIMIT_S = 120.0
FOREIGN = "bench.example/not-yet"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler")


@attrs.frozen
class Taken:
    """One round of one way: pods per second, CPU of each side per pod, and the widest gang."""

    rate: float
    parts_ms: dict[str, float]
    coscheduler_ms: float
    spread_s: float
    requests: float
    asked: float

    @property
    def control_plane_ms(self) -> float:
        """CPU of the control plane per pod."""
        return sum(self.parts_ms.values())

    @property
    def all_ms(self) -> float:
        """CPU of the control plane and the coscheduler per pod."""
        return self.control_plane_ms + self.coscheduler_ms


@resource("", "v1", "Pod", "pods")
@wire
class BoundPod:
    """The required fields of a pod that has a node."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


class BoundPods:
    """Times at which pods got their nodes. The watch reports only these, so each pod once."""

    def __init__(self, client: Client) -> None:
        self.times: dict[str, float] = {}
        self._client = client
        self._news = News()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[BoundPods]:
        """Watch within the block."""
        chosen = {"namespace": NAMESPACE, "field_selector": "spec.nodeName!="}
        async with following(self._client, BoundPod, self._note, **chosen):
            yield self

    def _note(self, pod: BoundPod, gone: bool) -> None:
        if not gone:
            self.times.setdefault(pod.metadata.name, time.monotonic())
            self._news.set()

    async def wait(self, number: int, limit_s: float) -> None:
        """Wait until the given number of pods has a node."""
        await self._news.until(lambda: len(self.times) >= number, limit_s)

    def spread(self, group: str) -> float:
        """From a group's first bind to its last, in seconds."""
        times = [at for name, at in self.times.items() if name.rpartition("-")[0] == group]
        return max(times) - min(times)


class Spent:
    """Start to measure the CPU of all sides."""

    def __init__(self, bench: Bench, process: CoschedulerProcess) -> None:
        self._bench, self._process = bench, process
        self._before, self._own = bench.cpu(), time.process_time()
        process.mark()

    def each_ms(self, number: int) -> str:
        """Return the amount per pod so far."""
        parts = {name: used - self._before[name] for name, used in self._bench.cpu().items()}
        parts |= {"coscheduler": self._process.cpu(), "bench": time.process_time() - self._own}
        return ", ".join(f"{name} {used / number * 1000:.1f} ms" for name, used in parts.items())


class Bench:
    """One cluster, and pods as they are bound."""

    def __init__(
        self, cluster: Cluster, site: ExtenderSite, client: Client, folder: Path, seed: int
    ) -> None:
        self.cluster = cluster
        self.ways: tuple[str, ...] = WAYS
        self.site = site
        self.client = client
        self.folder = folder
        self.seed = seed
        self.binds = Binds()
        self.rows: list[tuple[str, str, str]] = []

    async def clear(self) -> None:
        """Delete all pods."""
        await delete_all(self.client)
        await self.binds.wait(lambda: not self.binds.there, LIMIT_S)

    async def plain(self, *, start: bool = True) -> None:
        """Run the plain scheduler."""
        await asyncio.to_thread(set_scheduler, self.cluster, QUICK, start=start)

    @contextlib.asynccontextmanager
    async def gangs(
        self, *arguments: str, installed: str = "cluster-scheduler"
    ) -> AsyncIterator[CoschedulerProcess]:
        """Run the scheduler with the extender, and the coscheduler within the block."""
        config = self.site.scheduler_config(installed)
        await asyncio.to_thread(set_scheduler, self.cluster, config)
        log = self.folder / "coscheduler.log"
        async with coscheduler_process(
            self.cluster.kubeconfig, log, self.site, *arguments, metrics=True
        ) as process:
            yield process

    def cpu(self) -> dict[str, float]:
        """CPU seconds of the control plane so far."""
        return {name: self.cluster.cpu_seconds(name) for name in CONTROL_PLANE}

    def stored(self) -> float:
        """CPU seconds of etcd and the API server so far."""
        return sum(self.cluster.cpu_seconds(name) for name in CONTROL_PLANE[:2])

    # -- throughput ---------------------------------------------------------------------------

    async def throughput(self, groups: int, size: int, rounds: int) -> None:
        """Measure all ways, in a different order in each round."""
        taken: dict[str, list[Taken]] = {way: [] for way in self.ways}
        for number in range(rounds):
            for way in self.order(number):
                taken[way].append(await self.taken(way, groups, size))
            rates = "; ".join(f"{way} {each[-1].rate:.0f}" for way, each in taken.items())
            say(f"{groups} x {size}, round {number + 1}, pods/s: {rates}")
        plain = [each.rate for each in taken[PLAIN]]
        for way, every in taken.items():
            what = f"{groups} x {size}, {way}"
            rates = [each.rate for each in every]
            self.rows.append((what, spread(rates, " pods/s", 0), ""))
            cpu = [each.control_plane_ms for each in every]
            self.rows.append(("    CPU per pod: control plane", spread(cpu, " ms"), ""))
            for part in CONTROL_PLANE:
                parts = [each.parts_ms[part] for each in every]
                self.rows.append((f"        {part}", spread(parts, " ms"), ""))
            requests = [each.requests for each in every]
            self.rows.append(("    requests to the API server per pod", spread(requests), ""))
            if way == PLAIN:
                continue
            ratios = [one / other for one, other in zip(rates, plain, strict=True)]
            aim = ">= 0.8" if way == GANGS else ""
            self.rows.append(("    to plain, round by round", spread(ratios), aim))
            own = [each.coscheduler_ms for each in every]
            self.rows.append(("    CPU per pod: coscheduler", spread(own, " ms"), ""))
            costs = [
                one.all_ms / other.all_ms for one, other in zip(every, taken[PLAIN], strict=True)
            ]
            self.rows.append(("    CPU of all of it, to plain", spread(costs), ""))
            asked = [each.asked for each in every]
            self.rows.append(("    binds asked for per pod", spread(asked), ""))
            if way != EXTENDER:
                spreads = [each.spread_s for each in every]
                aim = "<= 0.5 s" if size <= 100 else ""
                self.rows.append(("    first to last bind of a group", spread(spreads, " s"), aim))

    def order(self, number: int) -> list[str]:
        """Return the ways in an order that depends on the round, the same in each run."""
        order = list(self.ways)
        random.Random(self.seed + number).shuffle(order)
        return order

    async def taken(self, way: str, groups: int, size: int) -> Taken:
        """One way, once."""
        if way == PLAIN:
            await self.plain()
            return await self.measured(way, groups, size, None)
        async with self.gangs() as process:
            return await self.measured(way, groups, size, process)

    async def measured(
        self, way: str, groups: int, size: int, process: CoschedulerProcess | None
    ) -> Taken:
        """From the first creation to the last bind; groups come one after the other."""
        minimum = size if way == GANGS else 0
        bodies = [
            pod_body(f"g{group}-{at}", group=f"g{group}", minimum=minimum)
            for group in range(groups)
            for at in range(size)
        ]
        async with BoundPods(self.client).watching() as bound:
            await create_all(self.client, [pod_body("warm-0", group="warm")])
            await bound.wait(1, LIMIT_S)
            asked = 0.0 if process is None else self.asked(process)
            requests = await self.requests()
            if process is not None:
                process.mark()
            before, began = self.cpu(), time.monotonic()
            await create_all(self.client, bodies)
            await bound.wait(1 + len(bodies), LIMIT_S)
            spent = {name: used - before[name] for name, used in self.cpu().items()}
            own = 0.0 if process is None else process.cpu()
            took = max(bound.times.values()) - began
            widest = max(bound.spread(f"g{group}") for group in range(groups))
        requests = await self.requests() - requests
        asked = 0.0 if process is None else self.asked(process) - asked
        await delete_all(self.client)
        await eventually(self.nothing_is_left, LIMIT_S)
        number = len(bodies)
        parts = {name: used / number * 1000 for name, used in spent.items()}
        return Taken(
            number / took, parts, own / number * 1000, widest, requests / number, asked / number
        )

    async def requests(self) -> float:
        """Number of answered requests for pods, their binds, events and leases."""
        answer = await self.client.raw(
            HttpRequest(method="GET", path="/metrics", accept="text/plain")
        )
        counted = re.findall(
            r'^apiserver_request_total\{[^}]*resource="(?:pods|events|leases)"[^}]*\} (\S+)$',
            answer.body.decode(),
            re.MULTILINE,
        )
        return sum(map(float, counted))

    async def nothing_is_left(self) -> bool:
        """Return True if all pods are gone."""
        return not (await self.client.list_page(GroupPod, NAMESPACE)).items

    async def freed(self, rounds: int, size: int = 50) -> None:
        """Measure gangs that alternate on capacity for one and a half of them."""
        took = []
        async with self.gangs():
            turns = [f"f{number}" for number in range(rounds + 1)]
            await self.fill(turns[0], size)
            for old, new in itertools.pairwise(turns):
                await self.create(new, size)
                # The scheduler's own back-off changes the wait: let some of it pass.
                await asyncio.sleep(4.0)
                began = time.monotonic()
                await delete_all(self.client, old)
                await self.binds.wait(lambda new=new: self.binds.counts(new) == [size], LIMIT_S)
                took.append(max(self.binds.of(new)) - began)
            await self.clear()
        self.rows.append((f"capacity freed -> gang of {size} bound", spread(took, " s"), ""))

    async def create(self, group: str, size: int, **pod: object) -> None:
        """Create a group's pods."""
        bodies = [
            pod_body(f"{group}-{at}", group=group, minimum=size, **self.place(), **pod)  # type: ignore[arg-type]
            for at in range(size)
        ]
        await create_all(self.client, bodies)

    async def fill(self, group: str, size: int) -> None:
        """Create a group and wait until it is bound."""
        await self.create(group, size)
        await self.binds.wait(lambda: self.binds.counts(group) == [size], LIMIT_S)

    @staticmethod
    def place() -> dict[str, object]:
        """Place pods on the one small node."""
        return {"nodeSelector": {"pool": "small"}}

    # -- a group that never fits --------------------------------------------------------------

    async def hopeless(self, size: int = 200, seconds: float = 8.0) -> None:
        """Measure the cost, and the time until regular pods are bound meanwhile."""
        for way in ("none", "some"):
            async with self.gangs() as process:
                if way != "none":
                    await self.create("never", size)
                    await asyncio.sleep(10.0)
                process.mark()
                before, asked = self.cpu(), self.asked(process)
                began = time.monotonic()
                waits = []
                for number in range(30):
                    at = time.monotonic()
                    name = f"r-{number}"
                    await create_all(self.client, [pod_body(name, group="r", cpu="10m")])
                    await self.binds.wait(lambda name=name: name in self.binds.bound, LIMIT_S)
                    waits.append((self.binds.bound[name] - at) * 1000)
                    await asyncio.sleep(
                        max(0.0, began + (number + 1) * seconds / 30 - time.monotonic())
                    )
                spent = time.monotonic() - began
                cores = process.cpu() / spent * 100
                scheduler = (self.cpu()["kube-scheduler"] - before["kube-scheduler"]) / spent * 100
                binds = (self.asked(process) - asked - len(waits)) / spent
                await self.clear()
            what = "without one" if way == "none" else f"next to {size} that never fit"
            self.rows += [
                (f"regular pod bound, {what}", spread(waits, " ms", 0), ""),
                (
                    "    CPU: coscheduler, scheduler; futile bind requests",
                    f"{cores:.1f} %, {scheduler:.1f} %; {max(0.0, binds):.1f}/s",
                    "",
                ),
            ]
            say(f"hopeless, {way}: {spread(waits, ' ms', 0)}, {binds:.1f} futile bind requests/s")

    @staticmethod
    def asked(process: CoschedulerProcess) -> float:
        """Number of binds that the scheduler has requested."""
        return process.scrape().get('jobset_coscheduler_requests_total{code="200",verb="bind"}', 0)

    # -- a restart ----------------------------------------------------------------------------

    async def held(self, size: int) -> None:
        """Hold a number of binds, then release them; this runs last, since nothing is deleted."""
        async with self.gangs("--permit-timeout=75s") as process:
            empty = process.rss_mb()
            bodies = [
                pod_body(f"many-{at}", group="many", minimum=size + 1) for at in range(size + 1)
            ]
            bodies[-1]["spec"]["schedulingGates"] = [{"name": FOREIGN}]
            began, spent = time.monotonic(), Spent(self, process)
            await create_all(self.client, bodies, at_once=32)
            created_s, created_cpu = time.monotonic() - began, spent.each_ms(size)
            say(f"{size} pods created in {created_s:.0f} s")
            began, spent = time.monotonic(), Spent(self, process)
            lags = [0.0]
            while (now := self.held_and_lag(process, lags)) < size:
                if time.monotonic() - began > max(LIMIT_S, size / 8):
                    raise SystemExit(f"only {now:.0f} of {size} binds are held")
                await asyncio.sleep(0.2)
            held_s, held_cpu = time.monotonic() - began, spent.each_ms(size)
            files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            memory = process.rss_mb()
            say(f"{size} binds held: {files} open files, {memory:.0f} MB (empty: {empty:.0f} MB)")
            began, spent = time.monotonic(), Spent(self, process)
            await create_all(self.client, [pod_body("many-x", group="many", minimum=size + 1)])
            limit_s = max(LIMIT_S, size / 8)
            async with asyncio.timeout(limit_s):
                while len(self.binds.bound) <= size:
                    self.held_and_lag(process, lags)
                    await asyncio.sleep(0.2)
            times = self.binds.bound.values()
            took, within = max(times) - began, max(times) - min(times)
            self.rows += [
                (f"{size} binds held: open files, memory", f"{files}, {memory:.0f} MB", ""),
                ("first created -> last created", f"{created_s:.1f} s", ""),
                ("    CPU of each side per pod", created_cpu, ""),
                ("last of these created -> held", f"{held_s:.1f} s", ""),
                ("    CPU of each side per pod", held_cpu, ""),
                ("last pod created -> all bound", f"{took:.1f} s, {size / took:.0f} pods/s", ""),
                ("    CPU of each side per pod", spent.each_ms(size), ""),
                ("first to last bind of them", f"{within:.1f} s", ""),
                ("peak memory", f"{process.peak_mb():.0f} MB", ""),
                ("a timer of its loop was late by at most", f"{max(lags) * 1000:.0f} ms", ""),
            ]

    @staticmethod
    def held_and_lag(process: CoschedulerProcess, lags: list[float]) -> float:
        """Return the number of held binds; add the latest delay of the loop to ``lags``."""
        figures = process.scrape()
        lags.append(figures["event_loop_lag_seconds"])
        return figures["jobset_coscheduler_held_binds"]


async def run(
    options: argparse.Namespace, cluster: Cluster, site: ExtenderSite, folder: Path
) -> None:
    """All parts."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    parts = options.part or ["throughput", "freed", "hopeless"]
    bench = Bench(cluster, site, client, folder, options.seed)
    bench.ways = tuple(way for way in WAYS if way == PLAIN or way in (options.way or WAYS))
    async with contextlib.aclosing(client):
        await create_namespace(client, "jobset-system")
        room = max(40, options.held // 100 + 2) if "held" in parts else 40
        for number in range(100):
            await make_node(client, f"n{number}", room)
        await make_node(client, "small", 75, pool="small")
        for shape in (options.shape or SHAPES) if "throughput" in parts else ():
            groups, _, size = shape.partition("x")
            await bench.throughput(int(groups), int(size), options.rounds)
        async with bench.binds.watching(client):
            if "freed" in parts:
                await bench.freed(2 * options.rounds)
            if "hopeless" in parts:
                await bench.hopeless()
            if "held" in parts:
                await bench.held(options.held)
        table(f"Coscheduling, {options.rounds} rounds: min/med/max", bench.rows)


def main() -> None:
    """Parse flags and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="default: the first three")
    parser.add_argument(
        "--shape", action="append", metavar="GROUPSxPODS", help=f"default: {', '.join(SHAPES)}"
    )
    parser.add_argument(
        "--way", choices=WAYS[1:], action="append", help="in addition to plain pods; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", type=int, default=3000, help="simultaneous binds; default 3000")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobsetpy-bench-") as folder:
        site = ExtenderSite(Path(folder) / "extender")
        with Cluster(
            name="bench-coscheduling",
            controller_manager=False,
            # No kubelets report the state of their nodes.
            controller_manager_args=["--controllers=*,-node-lifecycle-controller"],
            crds=[CRD],
            scheduler_config=site.scheduler_config(),
        ) as cluster:
            uvloop.run(run(options, cluster, site, Path(folder)))


if __name__ == "__main__":
    main()
