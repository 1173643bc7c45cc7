"""Limits of one manager: memory, start, restarts, fairness and failover by number of pods.

A manager in its own process, as deployed, with the test kit's fake API server in this process, over
HTTP (``--server fake``). That accepts changes faster than a real one, so that the manager is the
bottleneck. ``--server real``: etcd and the API server, as far as the machine allows. No kubelets
and no Job controller: this program creates the pods and writes their epochs.

With ``--shards N``, N managers share the JobSets: measured are the memory of each, the longest turn
of a loop, and their total CPU. A failover is then that of one shard.

Every JobSet restarts in place. Unrelated JobSets of one Job are created meanwhile; for these, the
time from the creation to the first Job is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import uvloop

from bench import scale_plot
from bench.common import ROOT, create_namespace, in_parallel, say, table
from bench.scale_played import PlayedCluster
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import Client
from support.cluster.bare_pods import POD_SPEC
from support.cluster.install import connected
from support.cluster.manager_process import ManagerProcess
from support.cluster.objects import in_place_jobset

PER_JOB: Final = 100
TEAMS: Final = 20
"""Number of namespaces that the JobSets are spread over."""
SMALL: Final = "small"
"""The namespace of unrelated JobSets."""
SMALL_EVERY_S: Final = 0.5
AT_ONCE: Final = 50
LIMIT_S: Final = 900.0


@attrs.define
class Restart:
    """Duration and cost of one restart, or of several simultaneous ones."""

    jobsets: int = 0
    pods: int = 0
    cpu_s: float = 0.0
    took_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    small_s: list[float] = attrs.Factory(list)
    block_ms: float = 0.0


@attrs.define
class Figures:
    """Measurements of one size; the names are those of the JSON file."""

    server: str
    pods: int
    jobsets: int
    empty_mb: float = 0.0
    rest_mb: float = 0.0
    peak_mb: float = 0.0
    ready_s: float = 0.0
    ready_cpu_s: float = 0.0
    start_block_ms: float = 0.0
    one: Restart = attrs.Factory(Restart)
    many: Restart = attrs.Factory(Restart)
    failover_s: float = 0.0
    shards: int = 1
    rest_mb_each: list[float] = attrs.Factory(list)
    ready_cpu_s_each: list[float] = attrs.Factory(list)

    @property
    def kb_per_pod(self) -> float:
        """Memory at rest; of several managers, that of the largest."""
        return (self.rest_mb - self.empty_mb) * 1000 / self.pods


class Fake:
    """Interface of the benchmark to the simulated cluster."""

    def __init__(self, server: PlayedCluster) -> None:
        self.server = server

    async def add_namespace(self, name: str) -> None:
        self.server.add_namespace(name)

    async def add_jobset(self, namespace: str, body: dict[str, Any]) -> None:
        self.server.create(JobSet, body, namespace=namespace)

    async def jobs(self) -> list[dict[str, Any]]:
        return self.server.jobs()

    async def has_job(self, namespace: str, jobset: str) -> bool:
        return self.server.get("jobs.batch", f"{jobset}-w-0", namespace=namespace) is not None

    async def add_pods(self, job: dict[str, Any], count: int) -> list[ObjectKey]:
        await asyncio.sleep(0)
        return self.server.add_pods(job, count, 1)

    async def set_epochs(self, pods: Sequence[ObjectKey], epoch: int) -> None:
        for number, key in enumerate(pods):
            self.server.set_epoch(key, epoch)
            if number % 20 == 0:
                await asyncio.sleep(0)

    async def epochs(self, key: ObjectKey) -> tuple[int, int]:
        status = self.server.jobset(key.namespace, key.name).get("status", {})
        return int(status.get("syncedEpoch", 0)), int(status.get("deprecatedEpoch", 0))


class Real:
    """The same of a real API server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def add_namespace(self, name: str) -> None:
        await create_namespace(self.client, name)

    async def add_jobset(self, namespace: str, body: dict[str, Any]) -> None:
        await self.client.create(JobSet, namespace, body)

    async def jobs(self) -> list[dict[str, Any]]:
        found, token = [], ""
        while True:
            page = await self.client.list_page(Job, "", limit=500, continue_token=token)
            found += page.items
            token = page.continue_token
            if not token:
                return [
                    {"metadata": {"name": m.name, "namespace": m.namespace, "uid": m.uid,
                                  "labels": dict(m.labels)}}
                    for m in (job.metadata for job in found)
                ]  # fmt: skip

    async def has_job(self, namespace: str, jobset: str) -> bool:
        page = await self.client.list_page(
            Job, namespace, label_selector=f"{keys.JOBSET_NAME}={jobset}", limit=1
        )
        return bool(page.items)

    async def add_pods(self, job: dict[str, Any], count: int) -> list[ObjectKey]:
        meta = job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"],
                 "uid": meta["uid"], "controller": True}  # fmt: skip
        names = [f"{meta['name']}-{index}" for index in range(count)]

        async def create(name: str) -> None:
            body = {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": meta["labels"], "ownerReferences": [owner],
                             "annotations": {keys.EPOCH_ANNOTATION: "1"}},
                "spec": POD_SPEC,
            }  # fmt: skip
            await self.client.create(ChildPod, meta["namespace"], body)

        await in_parallel(32, [lambda n=name: create(n) for name in names])
        return [ObjectKey(meta["namespace"], name) for name in names]

    async def set_epochs(self, pods: Sequence[ObjectKey], epoch: int) -> None:
        body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}

        async def patch(key: ObjectKey) -> None:
            await self.client.merge_patch(ChildPod, key.namespace, key.name, body)

        await in_parallel(32, [lambda k=key: patch(k) for key in pods])

    async def epochs(self, key: ObjectKey) -> tuple[int, int]:
        status = (await self.client.get(JobSet, key.namespace, key.name)).status
        return status.synced_epoch, status.deprecated_epoch


class Managers:
    """One manager, or several that share the JobSets, as one."""

    def __init__(self, members: Sequence[ManagerProcess], names: Sequence[str]) -> None:
        self.members = list(members)
        self.names = list(names)

    async def start(self) -> None:
        for one in self.members:
            await one.start(wait=False)
        for one in self.members:
            await one.wait_ready()

    async def stop(self) -> None:
        for one in self.members:
            await one.stop()

    def mark(self) -> None:
        for one in self.members:
            one.mark()

    def cpu(self) -> list[float]:
        return [one.cpu() for one in self.members]

    def rss_mb(self) -> list[float]:
        return [one.rss_mb() for one in self.members]

    def peak_mb(self) -> float:
        return max(one.peak_mb() for one in self.members)


class Bench:
    """One size on one server."""

    def __init__(self, site: Fake | Real, kubeconfig: Path, folder: Path, figures: Figures) -> None:
        self.site = site
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.figures = figures
        self.gangs: dict[ObjectKey, list[ObjectKey]] = {}
        self.epoch = 1
        self._smalls = 0

    async def run(self, *, failover: bool) -> None:
        """All of it."""
        await self.prepare()
        manager = self.managers("first")
        await self.start(manager)
        try:
            self.figures.one = await self.restart(manager, list(self.gangs)[:1])
            if len(self.gangs) > 1:
                self.figures.many = await self.restart(manager, list(self.gangs)[:AT_ONCE])
        finally:
            await manager.stop()
        if failover:
            await self.failover()

    def manager(self, name: str, *arguments: str) -> ManagerProcess:
        """A manager with a probe of its loop."""
        prefix = (sys.executable, "-m", "bench.scale_probe", str(self.folder / f"{name}.beats"))
        return ManagerProcess(
            self.kubeconfig, self.folder / f"{name}.log", "--log-level=warning", *arguments,
            prefix=prefix,
        )  # fmt: skip

    def managers(self, name: str, *arguments: str) -> Managers:
        """As many as there are shards."""
        count = self.figures.shards
        if count > 1:
            arguments = (*arguments, f"--config={self.election()}", f"--shards={count}")
        names = [f"{name}-{number}" if count > 1 else name for number in range(count)]
        return Managers([self.manager(each, *arguments) for each in names], names)

    def election(self) -> Path:
        """Configuration file with leader election."""
        config = self.folder / "config.yaml"
        config.write_text(
            "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"
            "leaderElection: {leaderElect: true, resourceNamespace: default}\n"
        )
        return config

    async def prepare(self) -> None:
        """Measure an empty manager, let it create all Jobs, end it, and create the pods."""
        figures = self.figures
        per_jobset = figures.pods // figures.jobsets
        jobs = max(1, per_jobset // PER_JOB)
        for name in [SMALL, *(f"team-{number}" for number in range(TEAMS))]:
            await self.site.add_namespace(name)
        manager = self.manager("empty")
        await manager.start()
        try:
            await asyncio.sleep(1)
            figures.empty_mb = manager.rss_mb()
            for number in range(figures.jobsets):
                key = ObjectKey(f"team-{number % TEAMS}", f"gang-{number}")
                body = in_place_jobset(key.name, jobs=jobs, pods=per_jobset // jobs)
                body["spec"]["network"] = {"enableDNSHostnames": False}
                await self.site.add_jobset(key.namespace, body)
                self.gangs[key] = []
                await asyncio.sleep(0)
            async with asyncio.timeout(LIMIT_S):
                while len(found := await self.site.jobs()) < jobs * figures.jobsets:  # noqa: ASYNC110 - another process makes them
                    await asyncio.sleep(0.5)
        finally:
            await manager.stop()
        for job in found:
            gang = job["metadata"]["labels"][keys.JOBSET_NAME]
            pods = await self.site.add_pods(job, per_jobset // jobs)
            self.gangs[ObjectKey(job["metadata"]["namespace"], gang)] += pods
        say(f"{figures.pods} pods of {figures.jobsets} JobSets, {len(found)} Jobs are there")

    async def start(self, manager: Managers) -> None:
        """Start with all pods, until ready and at rest."""
        figures = self.figures
        began = time.monotonic()
        await manager.start()
        if figures.shards == 1:
            figures.ready_s, figures.ready_cpu_s = time.monotonic() - began, sum(manager.cpu())
        await self.until(list(self.gangs), synced=1)
        if figures.shards > 1:  # the caches of a share are filled after that
            figures.ready_s, figures.ready_cpu_s = time.monotonic() - began, sum(manager.cpu())
        figures.ready_cpu_s_each = manager.cpu()
        await asyncio.sleep(15)  # status writes, and a pass of the garbage collector
        figures.rest_mb_each = manager.rss_mb()
        figures.rest_mb, figures.peak_mb = max(figures.rest_mb_each), manager.peak_mb()
        figures.start_block_ms = self.longest_block(manager.names, began)
        say(
            f"ready after {figures.ready_s:.1f} s ({figures.ready_cpu_s:.1f} s of CPU), "
            f"{figures.rest_mb:.0f} MB, {figures.kb_per_pod:.2f} kB a pod, at most "
            f"{figures.peak_mb:.0f} MB, longest block {figures.start_block_ms:.0f} ms"
        )

    async def restart(self, manager: Managers, gangs: Sequence[ObjectKey]) -> Restart:
        """Set the next epoch of all pods of some JobSets, as fast as the server allows."""
        self.epoch += 1
        epoch = self.epoch
        result = Restart(jobsets=len(gangs), pods=sum(len(self.gangs[key]) for key in gangs))
        manager.mark()
        async with self.unrelated(result.small_s):
            began = time.monotonic()
            for key in gangs:
                await self.site.set_epochs(self.gangs[key][:1], epoch)
            await self.until(gangs, deprecated=epoch - 1)
            result.first_s = time.monotonic() - began
            for key in gangs:
                await self.site.set_epochs(self.gangs[key][1:], epoch)
            last = time.monotonic()
            await self.until(gangs, synced=epoch)
            result.took_s, result.last_s = time.monotonic() - began, time.monotonic() - last
        await asyncio.sleep(1)
        result.cpu_s = sum(manager.cpu())
        result.block_ms = self.longest_block(manager.names, began)
        say(
            f"{result.jobsets} JobSets, {result.pods} pods restarted in {result.took_s:.1f} s, "
            f"{result.cpu_s:.2f} s of CPU, first {result.first_s * 1000:.0f} ms, last "
            f"{result.last_s * 1000:.0f} ms; others' first Job after at most "
            f"{max(result.small_s):.2f} s; longest block {result.block_ms:.0f} ms"
        )
        return result

    @contextlib.asynccontextmanager
    async def unrelated(self, took: list[float]) -> AsyncIterator[None]:
        """Create small JobSets meanwhile, one after the other."""
        over = asyncio.Event()

        async def create() -> None:
            while not (over.is_set() and took):
                self._smalls += 1
                name = f"small-{self._smalls}"
                body = in_place_jobset(name, jobs=1, pods=1)
                body["spec"]["network"] = {"enableDNSHostnames": False}
                began = time.monotonic()
                await self.site.add_jobset(SMALL, body)
                async with asyncio.timeout(LIMIT_S):
                    while not await self.site.has_job(SMALL, name):  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0.002)
                took.append(time.monotonic() - began)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SMALL_EVERY_S):
                        await over.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(create())
            yield
            over.set()

    async def failover(self) -> None:
        """Kill a leader during a restart; a standby manager takes over."""
        arguments = [f"--config={self.election()}"] if self.figures.shards == 1 else []
        managers = self.managers("leader", *arguments)
        standby = self.managers("standby", *arguments)
        standby.members = standby.members[:1]
        try:
            await managers.start()
            await self.until(list(self.gangs), synced=self.epoch)
            await asyncio.sleep(5)
            await standby.start()
            self.epoch += 1
            gangs = list(self.gangs)[: 4 * self.figures.shards if self.figures.shards > 1 else 1]
            for gang in gangs:
                pods = self.gangs[gang]
                await self.site.set_epochs(pods[: len(pods) // 2], self.epoch)
            await managers.members[0].kill()
            began = time.monotonic()
            for gang in gangs:
                pods = self.gangs[gang]
                await self.site.set_epochs(pods[len(pods) // 2 :], self.epoch)
            await self.until(gangs, synced=self.epoch)
            self.figures.failover_s = time.monotonic() - began
            say(f"killed: the next has finished the restart after {self.figures.failover_s:.1f} s")
        finally:
            await managers.stop()
            await standby.stop()

    async def until(
        self, gangs: Sequence[ObjectKey], *, synced: int = 0, deprecated: int = 0
    ) -> None:
        """Wait until all of them have reached that state."""
        async with asyncio.timeout(LIMIT_S):
            for key in gangs:
                while True:
                    now = await self.site.epochs(key)
                    if now[0] >= synced and now[1] >= deprecated:
                        break
                    await asyncio.sleep(0.002)

    def longest_block(self, names: Sequence[str], since: float) -> float:
        """CPU milliseconds of the longest turn of a loop."""
        lines = [
            line
            for name in names
            for line in (self.folder / f"{name}.beats").read_text().splitlines()
        ]
        turns = [tuple(map(float, line.split())) for line in lines]
        return max((cpu for at, cpu, _ in turns if at >= since), default=0.0) * 1000


@contextlib.asynccontextmanager
async def fake_site(folder: Path) -> AsyncIterator[tuple[Fake, Path]]:
    """The fake API server in this process."""
    async with PlayedCluster() as server:
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )  # fmt: skip
        yield Fake(server), path


@contextlib.asynccontextmanager
async def real_site(cluster: Cluster) -> AsyncIterator[tuple[Real, Path]]:
    """A real one."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        yield Real(client), Path(cluster.kubeconfig)


async def measure(
    pods: int,
    jobsets: int,
    *,
    failover: bool,
    cluster: Cluster | None = None,
    keep: Path | None = None,
    shards: int = 1,
) -> Figures:
    """One size."""
    figures = Figures("fake" if cluster is None else "real", pods, jobsets, shards=shards)
    with tempfile.TemporaryDirectory(prefix="jobsetpy-scale-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        made = fake_site(folder) if cluster is None else real_site(cluster)
        async with made as (site, kubeconfig):
            await Bench(site, kubeconfig, folder, figures).run(failover=failover)
    return figures


def report(figures: Figures) -> None:
    """One table."""

    def restarted(result: Restart) -> list[tuple[str, str, str]]:
        what = f"restart of {result.jobsets:,} ({result.pods:,} pods)"
        small, each = result.small_s, result.cpu_s / result.pods * 1e6
        return [
            (f"{what}: CPU", f"{result.cpu_s:.2f} s, {each:.0f} us a pod", ""),
            ("  first pod -> all deprecated", f"{result.first_s * 1000:.0f} ms", ""),
            ("  last pod -> all synced", f"{result.last_s * 1000:.0f} ms", ""),
            ("  all of it", f"{result.took_s:.1f} s", ""),
            (
                "  unrelated JobSet's first Job, med / max",
                f"{statistics.median(small):.3f} / {max(small):.3f} s of {len(small)}",
                "<= 1 s",
            ),
            ("  longest turn of the loop (CPU)", f"{result.block_ms:.0f} ms", "<= 50 ms"),
        ]  # fmt: skip

    rows = [
        ("memory at rest", ", ".join(f"{each:.0f} MB" for each in figures.rest_mb_each), ""),
        ("  for each pod", f"{figures.kb_per_pod:.2f} kB", "<= 3 kB"),
        ("  at most", f"{figures.peak_mb:.0f} MB", ""),
        (
            "start until ready",
            f"{figures.ready_s:.1f} s, {figures.ready_cpu_s:.1f} s of CPU",
            "<= 60 s",
        ),
        ("  longest turn of the loop (CPU)", f"{figures.start_block_ms:.0f} ms", "<= 50 ms"),
        *restarted(figures.one),
        *(restarted(figures.many) if figures.many.jobsets else ()),
    ]
    if figures.failover_s:
        took = f"{figures.failover_s:.1f} s"
        rows.append(("killed in a restart -> finished by the next", took, "<= 20 s"))
    table(
        f"{figures.pods:,} pods in {figures.jobsets:,} JobSets, {figures.shards} shards, "
        f"{figures.server} API server",
        rows,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[20_000, 50_000, 100_000])
    parser.add_argument("--jobsets", type=int, nargs="+", default=[1, 100, 2_000])
    parser.add_argument("--server", choices=("fake", "real"), default="fake")
    parser.add_argument("--shards", type=int, default=1, help="managers that share the JobSets")
    parser.add_argument("--no-failover", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for logs and records of long loop turns")
    parser.add_argument("--results", type=Path, help="JSON lines; new figures are appended")
    parser.add_argument("--plot", type=Path, help="only draw all of --results to this SVG")
    options = parser.parse_args()
    if options.plot:
        lines = options.results.read_text().splitlines()
        options.plot.write_text(scale_plot.drawn([json.loads(line) for line in lines]))
        return
    for pods in options.pods:
        for jobsets in options.jobsets:
            with contextlib.ExitStack() as stack:
                cluster = None
                if options.server == "real":
                    crd = ROOT / "config" / "crd" / "jobset.x-k8s.io_jobsets.yaml"
                    cluster = stack.enter_context(
                        Cluster(name="bench-scale", crds=[crd], controller_manager=False,
                                scheduler=False)
                    )  # fmt: skip
                figures = uvloop.run(
                    measure(
                        pods,
                        jobsets,
                        failover=not options.no_failover,
                        cluster=cluster,
                        keep=options.keep,
                        shards=options.shards,
                    )
                )
            report(figures)
            if options.results:
                with options.results.open("a") as out:
                    print(json.dumps(attrs.asdict(figures)), file=out)


if __name__ == "__main__":
    main()
