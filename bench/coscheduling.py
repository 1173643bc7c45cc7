"""Gangs with the coscheduler beside the real kube-scheduler, against the plain scheduler.

Real etcd, API server and scheduler; nodes without kubelets. Everything runs in turns in one
cluster, so that a figure and what it is compared with see the same machine.

* throughput: 1,000 pods in groups of 100. For the plain scheduler all pods are there when it
  starts; for the coscheduler, all but the last pod of each group. From the first bind (plain) or
  the creation of those last pods (coscheduler) to the last bind.
* freed: a group waits for the room of another; from the deletion of that to the group's last bind.
* hopeless: a group that can never fit, with and without the check of capacity: what it costs, and
  how soon regular pods are bound beside it.
* held: thousands of binds held at once (only with ``--part held``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.common import create_namespace, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.client import Client, connect
from support.coscheduler_process import CoschedulerProcess, ExtenderSite, coscheduler_process
from support.gangs import Binds, create_all, delete_all, make_node, pod_body, set_scheduler

PARTS = ("throughput", "freed", "hopeless", "held")
QUICK = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
LIMIT_S = 120.0
FOREIGN = "bench.example/not-yet"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler")


class Bench:
    """One cluster, and pods as they are bound."""

    def __init__(
        self, cluster: Cluster, site: ExtenderSite, client: Client, folder: Path, seed: int
    ) -> None:
        self.cluster = cluster
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
        """Have the plain scheduler run."""
        await asyncio.to_thread(set_scheduler, self.cluster, QUICK, start=start)

    @contextlib.asynccontextmanager
    async def gangs(self, *arguments: str) -> AsyncIterator[CoschedulerProcess]:
        """Have the scheduler with the extender run, and the coscheduler within the block."""
        config = self.site.scheduler_config()
        await asyncio.to_thread(set_scheduler, self.cluster, config)
        log = self.folder / "coscheduler.log"
        async with coscheduler_process(
            self.cluster.kubeconfig, log, self.site, *arguments, metrics=True
        ) as process:
            yield process

    def cpu(self) -> dict[str, float]:
        """CPU seconds of the control plane so far."""
        return {name: self.cluster.cpu_seconds(name) for name in CONTROL_PLANE}

    # -- throughput ---------------------------------------------------------------------------

    async def throughput(self, groups: int, size: int, rounds: int) -> None:
        """Both schedulers in turns."""
        total = groups * size
        plain, gang, cpu, control, spreads = [], [], [], [], []
        alone = []
        for number in range(rounds):
            rate, spent = await self.plain_round(groups, size)
            plain.append(rate)
            alone.append(spent * 1000)
            async with self.gangs() as process:
                await create_all(
                    self.client,
                    [
                        pod_body(f"g{group}-{at}", group=f"g{group}", minimum=size)
                        for at in range(size - 1)
                        for group in self.shuffled(groups, number)
                    ],
                )
                await asyncio.sleep(1.0)
                process.mark()
                before, began = self.cpu(), time.monotonic()
                await create_all(
                    self.client,
                    [
                        pod_body(f"g{group}-{size}", group=f"g{group}", minimum=size)
                        for group in self.shuffled(groups, number)
                    ],
                )
                await self.binds.wait(lambda: len(self.binds.bound) == total, LIMIT_S)
                gang.append(total / (max(self.binds.bound.values()) - began))
                cpu.append(process.cpu() / total * 1000)
                after = self.cpu()
                control.append(sum(after[n] - before[n] for n in after) / total * 1000)
                for group in range(groups):
                    times = self.binds.of(f"g{group}")
                    spreads.append(max(times) - min(times))
                await self.clear()
            say(
                f"round {number + 1}: plain {plain[-1]:.0f} pods/s, gangs {gang[-1]:.0f} pods/s, "
                f"coscheduler {cpu[-1]:.2f} ms CPU a pod, control plane {control[-1]:.2f} ms, "
                f"with plain pods {alone[-1]:.2f} ms"
            )
        ratio = [one / other for one, other in zip(gang, plain, strict=True)]
        self.rows += [
            (f"plain scheduler, {total} pods", spread(plain, " pods/s", 0), ""),
            (f"gangs of {size}", spread(gang, " pods/s", 0), ""),
            ("ratio, round by round", spread(ratio), ">= 0.8"),
            ("first to last bind of a group", spread(spreads, " s"), "<= 0.5 s"),
            ("coscheduler CPU per pod", spread(cpu, " ms"), ""),
            ("control plane CPU per pod, with gangs", spread(control, " ms"), ""),
            ("the same with plain pods, scheduler's start included", spread(alone, " ms"), ""),
        ]

    async def plain_round(self, groups: int, size: int) -> tuple[float, float]:
        """Pods a second of the plain scheduler, and the control plane's CPU seconds per pod."""
        await self.plain(start=False)
        bodies = [
            pod_body(f"p{group}-{at}", group=f"p{group}")
            for at in range(size)
            for group in range(groups)
        ]
        await create_all(self.client, bodies)
        before = sum(self.cluster.cpu_seconds(name) for name in CONTROL_PLANE[:-1])
        self.cluster.start_component("kube-scheduler")
        await self.binds.wait(lambda: len(self.binds.bound) == len(bodies), LIMIT_S)
        spent = (sum(self.cpu().values()) - before) / len(bodies)
        times = self.binds.bound.values()
        rate = len(bodies) / (max(times) - min(times))
        await self.clear()
        return rate, spent

    def shuffled(self, groups: int, number: int) -> list[int]:
        """Groups in an order of their own for each round, the same in each run."""
        order = list(range(groups))
        random.Random(self.seed + number).shuffle(order)
        return order

    # -- room that gets free ------------------------------------------------------------------

    async def freed(self, rounds: int, size: int = 50) -> None:
        """Room for one and a half groups; they take turns."""
        for check in (True, False):
            took = []
            async with self.gangs(f"--capacity-check={check}"):
                turns = [f"f{number}" for number in range((rounds if check else 3) + 1)]
                await self.fill(turns[0], size)
                for old, new in itertools.pairwise(turns):
                    await self.create(new, size)
                    # With the scheduler's own back-off the wait differs: let some of it pass.
                    await asyncio.sleep(1.0 if check else 4.0)
                    began = time.monotonic()
                    await delete_all(self.client, old)
                    await self.binds.wait(lambda new=new: self.binds.counts(new) == [size], LIMIT_S)
                    took.append(max(self.binds.of(new)) - began)
                await self.clear()
            how = "by capacity" if check else "no check"
            say(f"freed, {how}: {spread(took, ' s')}")
            aim = "<= 1 s (median)" if check else ""
            self.rows.append(
                (f"room freed -> group of {size} bound, {how}", spread(took, " s"), aim)
            )

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
        """The one node that is small."""
        return {"nodeSelector": {"pool": "small"}}

    # -- a group that never fits --------------------------------------------------------------

    async def hopeless(self, size: int = 200, seconds: float = 8.0) -> None:
        """What it costs, and how soon regular pods are bound beside it."""
        for way in ("none", "by capacity", "no check"):
            async with self.gangs(f"--capacity-check={way != 'no check'}") as process:
                if way != "none":
                    await self.create("never", size)
                    await asyncio.sleep(10.0 if way == "no check" else 2.0)
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
            what = "without one" if way == "none" else f"beside {size} that never fit, {way}"
            self.rows += [
                (f"regular pod bound, {what}", spread(waits, " ms", 0), ""),
                (
                    "    CPU: coscheduler, scheduler; binds asked for in vain",
                    f"{cores:.1f} %, {scheduler:.1f} %; {max(0.0, binds):.1f}/s",
                    "",
                ),
            ]
            say(f"hopeless, {way}: {spread(waits, ' ms', 0)}, {binds:.1f} binds/s in vain")

    @staticmethod
    def asked(process: CoschedulerProcess) -> float:
        """How many binds the scheduler has asked for."""
        return process.scrape().get('jobset_coscheduler_requests_total{code="200",verb="bind"}', 0)

    # -- thousands of held binds --------------------------------------------------------------

    async def held(self, size: int) -> None:
        """Hold so many binds, then release them."""
        async with self.gangs("--permit-timeout=75s") as process:
            empty = process.rss_mb()
            bodies = [
                pod_body(f"many-{at}", group="many", minimum=size + 1) for at in range(size + 1)
            ]
            bodies[-1]["spec"]["schedulingGates"].append({"name": FOREIGN})
            await create_all(self.client, bodies, at_once=32)
            began = time.monotonic()
            while (now := process.scrape()["jobset_coscheduler_held_binds"]) < size:
                if time.monotonic() - began > LIMIT_S:
                    raise SystemExit(f"only {now:.0f} of {size} binds are held")
                await asyncio.sleep(0.2)
            files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            memory = process.rss_mb()
            say(f"{size} binds held: {files} open files, {memory:.0f} MB (empty: {empty:.0f} MB)")
            began = time.monotonic()
            await create_all(self.client, [pod_body("many-x", group="many", minimum=size + 1)])
            await self.binds.wait(lambda: len(self.binds.bound) >= size + 1, LIMIT_S)
            times = self.binds.bound.values()
            took, within = max(times) - began, max(times) - min(times)
            self.rows += [
                (f"{size} binds held: open files, memory", f"{files}, {memory:.0f} MB", ""),
                ("last pod created -> all bound", f"{took:.1f} s, {size / took:.0f} pods/s", ""),
                ("first to last bind of them", f"{within:.1f} s", ""),
                ("peak memory", f"{process.peak_mb():.0f} MB", ""),
            ]
            await self.clear()


async def run(
    options: argparse.Namespace, cluster: Cluster, site: ExtenderSite, folder: Path
) -> None:
    """All parts."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    groups, _, size = options.size.partition("x")
    parts = options.part or ["throughput", "freed", "hopeless"]
    bench = Bench(cluster, site, client, folder, options.seed)
    try:
        await create_namespace(client, "jobset-system")
        for number in range(100):
            await make_node(client, f"n{number}", 40)
        await make_node(client, "small", 75, pool="small")
        async with bench.binds.watching(client):
            if "throughput" in parts:
                await bench.throughput(int(groups), int(size), options.rounds)
            if "freed" in parts:
                await bench.freed(2 * options.rounds)
            if "hopeless" in parts:
                await bench.hopeless()
            if "held" in parts:
                await bench.held(options.held)
        table(f"Coscheduling, {options.rounds} rounds: min/med/max", bench.rows)
    finally:
        await client.aclose()


def main() -> None:
    """Parse flags and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all but held")
    parser.add_argument("--size", default="10x100", metavar="GROUPSxPODS", help="default 10x100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", type=int, default=3000, help="binds at once; default 3000")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobsetpy-bench-") as folder:
        site = ExtenderSite(Path(folder) / "extender")
        with Cluster(
            name="bench-coscheduling",
            controller_manager=False,
            scheduler_config=site.scheduler_config(),
        ) as cluster:
            uvloop.run(run(options, cluster, site, Path(folder)))


if __name__ == "__main__":
    main()
