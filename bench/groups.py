"""Startup groups (KEP-498): a large group without nodes, and a real one on a real node.

Simulated: etcd, API server and Job controller are real; this program simulates the kubelets and
reports that each pod's barrier runs. Measured: the manager's CPU, its writes, and the time from the
last start to the signal. Each further round first removes the signal and all starts.

Real: the deployed manager with its webhooks, the project's images, a real kubelet. One pod is
unschedulable at first. Measured from the time at which the API server shows its start: the signal,
and the first line of the first and the last worker. Three paths: ``Within``, where agents hold the
workers' containers; ``Watch`` and ``Volume``, where an init container waits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import uvloop

from bench.common import (
    create_namespace,
    in_parallel,
    install_crd,
    manager_process,
    say,
    spread,
    table,
)
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap, Node, Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client, HttpRequest, connect
from jobsetpy.errors import NotFoundError
from support.cluster import objects
from support.cluster.follow import following
from support.cluster.install import install_manager
from support.patience import News
from support.restarts.scenario import build_images, manager_ready, pod_log_folders
from support.restarts.timeline import log_time

NAMESPACE, NAME = "bench", "group"
MAP = f"{NAME}-group-scheduling"
LINE = "worker started"
SETTLE_S = 2.0
LATE = "bench.example/late"
STEPS = ("signal", "last barrier open", "first worker", "last worker")


def jobset(*jobs: dict[str, Any], barrier: str = "init-container") -> dict[str, Any]:
    """A JobSet that starts as a group."""
    return objects.jobset(
        NAME,
        *jobs,
        annotations={keys.GROUP_BARRIER_ANNOTATION: barrier},
        network={"enableDNSHostnames": False},
        successPolicy={"operator": "All"},
        groupSchedulingConfig={"timeoutAfterSeconds": 3600},
    )


def job(name: str, replicas: int, pods: int, **pod: Any) -> dict[str, Any]:
    """A ReplicatedJob whose workers print a line and sleep."""
    script = f"echo {LINE}; trap 'exit 143' TERM; while :; do sleep 1 & wait $!; done"
    ends = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    spec = {**ends, "containers": [objects.shell_worker(script)], **pod}
    job = {"completionMode": "Indexed", "backoffLimit": 0}
    return objects.replicated_job(spec, pods, name=name, replicas=replicas, **job)


class Signal:
    """Every version of the group's ConfigMap, and of the JobSet's status."""

    def __init__(self) -> None:
        self.map_versions: set[str] = set()
        self.conditions: set[tuple[str, ...]] = set()
        self.at = 0.0
        self.news = News()

    def note_map(self, config_map: ConfigMap, gone: bool) -> None:
        """A state of the ConfigMap."""
        if config_map.metadata.name != MAP or gone:
            return
        self.map_versions.add(config_map.metadata.resource_version)
        released = "started" in (config_map.data or {})
        self.at = (self.at or time.time()) if released else 0.0
        self.news.set()

    def note_jobset(self, changed: JobSet, gone: bool) -> None:
        """A state of the JobSet."""
        if not gone:
            self.conditions.add(
                tuple(f"{c.type}={c.status} {c.message}" for c in changed.status.conditions)
            )

    async def wait(self, timeout_s: float = 60.0) -> float:
        """Unix time of the signal."""
        await self.news.until(lambda: self.at, timeout_s)
        return self.at


async def set_barrier(client: Client, pod: str, state: dict[str, Any]) -> None:
    """Report a pod's status in place of the kubelet."""
    status = {
        "name": keys.GROUP_INIT_CONTAINER,
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    await client.raw(
        HttpRequest(
            method="PATCH",
            path=f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status",
            body=msgspec.json.encode({"status": {"initContainerStatuses": [status]}}),
            content_type="application/merge-patch+json",
        )
    )


async def pod_names(client: Client) -> list[str]:
    """Return the values of all pods of the namespace."""
    names: list[str] = []
    token = ""
    while True:
        page = await client.list_page(ChildPod, NAMESPACE, limit=500, continue_token=token)
        names += [pod.metadata.name for pod in page.items]
        token = page.continue_token
        if not token:
            return names


async def simulated(kubeconfig: str, jobs: int, pods: int, rounds: int, log: Path) -> None:
    """Start a large group several times."""
    total = jobs * pods
    client = await connect(kubeconfig=kubeconfig, qps=0)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        await install_crd(client)
        await create_namespace(client, NAMESPACE)
        manager = await stack.enter_async_context(manager_process(kubeconfig, log))
        empty_mb = manager.rss_mb()
        signal = Signal()
        for cls, note in ((ConfigMap, signal.note_map), (JobSet, signal.note_jobset)):
            await stack.enter_async_context(following(client, cls, note, namespace=NAMESPACE))
        await client.create(JobSet, NAMESPACE, jobset(job("w", jobs, pods)))
        names: list[str] = []
        began = time.monotonic()
        while len(names) < total:
            await asyncio.sleep(1.0)
            names = await pod_names(client)
            if time.monotonic() - began > 600:
                raise SystemExit(f"only {len(names)} of {total} pods were created in 600 s")
        say(f"{total} pods created by the Job controller in {time.monotonic() - began:.0f} s")
        cpu, latency, map_writes, changes = [], [], [], []
        for number in range(rounds):
            await asyncio.sleep(SETTLE_S)
            manager.mark()
            signal.map_versions.clear()
            before = len(signal.conditions)
            starting: list[Callable[[], Awaitable[None]]] = [
                partial(set_barrier, client, name, {"running": {}}) for name in names[:-1]
            ]
            await in_parallel(32, starting)
            await set_barrier(client, names[-1], {"running": {}})
            last = time.time()
            latency.append((await signal.wait() - last) * 1000)
            await asyncio.sleep(1.0)
            cpu.append(manager.cpu())
            map_writes.append(len(signal.map_versions))
            changes.append(len(signal.conditions) - before)
            say(
                f"round {number + 1}: cpu {cpu[-1]:.2f} s, signal after {latency[-1]:.0f} ms, "
                f"{map_writes[-1]} writes of the ConfigMap"
            )
            if number + 1 < rounds:
                stopping: list[Callable[[], Awaitable[None]]] = [
                    partial(set_barrier, client, name, {"waiting": {}}) for name in names
                ]
                await in_parallel(32, stopping)
                await client.merge_patch(ConfigMap, NAMESPACE, MAP, {"data": None})
        table(
            f"Start of {total} pods ({jobs} Jobs x {pods}), {rounds} rounds: min/med/max",
            [
                ("manager CPU until released", spread(cpu, " s"), ""),
                ("the same per pod", spread([c / total * 1e6 for c in cpu], " us", 0), "constant"),
                ("peak memory", f"{manager.peak_mb():.0f} MB", ""),
                ("memory without pods", f"{empty_mb:.0f} MB", ""),
                ("last start -> signal stored", spread(latency, " ms", 0), "<= 80 ms"),
                ("writes of the ConfigMap", spread(map_writes, "", 0), "1, and progress"),
                ("changes of conditions", spread(changes, "", 0), "O(1)"),
            ],
        )


class RealPods:
    """Unix times at which the API server first showed the start of each pod.

    Args:
        within: if true, the start is that of the worker's container, else of an init container.
    """

    def __init__(self, *, within: bool) -> None:
        self.within = within
        self.at_barrier: dict[str, float] = {}
        self.uids: dict[str, str] = {}
        self.running: set[str] = set()
        self.news = News()

    def note(self, pod: Pod, gone: bool) -> None:
        """A state of a pod."""
        name = pod.metadata.name
        if gone:
            self.at_barrier.pop(name, None)
            self.running.discard(name)
        statuses = pod.status.init_container_statuses
        if self.within:
            statuses = pod.status.container_statuses
        for status in () if gone else statuses:
            came = status.state.running or status.state.terminated
            if came and status.name in {keys.GROUP_INIT_CONTAINER, "worker"}:
                self.at_barrier.setdefault(name, time.time())
                self.uids[name] = pod.metadata.uid
        if not gone and any(status.state.running for status in pod.status.container_statuses):
            self.running.add(name)
        self.news.set()


def line_time(folders: list[Path], pod: tuple[str, str], container: str, text: str) -> float:
    """Unix time at which a container printed a line with that text; 0 if it did not."""
    for folder in folders:
        for path in folder.glob(f"{NAMESPACE}_{pod[0]}_{pod[1]}/{container}/*.log"):
            for line in path.read_text().splitlines():
                if text in line:
                    return log_time(line.partition(" ")[0]) or 0.0
    return 0.0


async def until_gone(client: Client) -> None:
    """Wait until the JobSet is deleted."""
    for _ in range(300):
        try:
            await client.get(JobSet, NAMESPACE, NAME)
        except NotFoundError:
            return
        await asyncio.sleep(0.2)
    raise SystemExit("the JobSet is not deleted after a minute")


async def real_once(
    client: Client, cluster: Cluster, signal: Signal, pods: int, path: str, token: dict[str, Any]
) -> tuple[float, float, float, float]:
    """Start one group; return seconds from the last start to the steps of :data:`STEPS`."""
    (node,) = (await client.list_page(Node)).items

    async def label(value: str | None) -> None:
        body = {"metadata": {"labels": {LATE: value}}}
        await client.merge_patch(Node, "", node.metadata.name, body)

    await label(None)
    signal.at = 0.0
    within = path == "Within"
    seen = RealPods(within=within)
    jobs = (
        job("early", 1, pods - 1, **token),
        job("late", 1, 1, nodeSelector={LATE: "yes"}, **token),
    )
    async with following(client, Pod, seen.note, namespace=NAMESPACE):
        barrier = "supervisor" if within else "init-container"
        await client.create(JobSet, NAMESPACE, jobset(*jobs, barrier=barrier))
        await seen.news.until(lambda: len(seen.at_barrier) == pods - 1, 120)
        await asyncio.sleep(SETTLE_S)
        await label("yes")
        await seen.news.until(lambda: len(seen.running) == pods, 180)
        last = max(seen.at_barrier.values())
        folders = pod_log_folders(cluster)
        made = list(seen.uids.items())
        async with asyncio.timeout(30):  # the log's first line comes a little after the start
            while not all(line_time(folders, pod, "worker", LINE) for pod in made):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        signalled = signal.at
        open_ = [line_time(folders, pod, keys.GROUP_INIT_CONTAINER, '"released"') for pod in made]
        lines = [line_time(folders, pod, "worker", LINE) for pod in made]
        await client.delete(JobSet, NAMESPACE, NAME, propagation="Foreground")
        await seen.news.until(lambda: not seen.at_barrier, 120)
        await until_gone(client)
    # The shell of the path Volume prints nothing; barriers open just before workers start.
    gone = max(open_) - last if all(open_) else float("nan")
    return signalled - last, gone, min(lines) - last, max(lines) - last


async def real(cluster: Cluster, pods: int, rounds: int, slow_rounds: int) -> None:
    """Measure all paths on a real node."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        await create_namespace(client, "jobset-system")
        await install_manager(client)
        await manager_ready(client)
        await create_namespace(client, NAMESPACE)
        signal = Signal()
        await stack.enter_async_context(
            following(client, ConfigMap, signal.note_map, namespace=NAMESPACE)
        )
        rows = []
        paths = (
            ("Within", {}, rounds),
            ("Watch", {}, rounds),
            ("Volume", {"automountServiceAccountToken": False}, slow_rounds),
        )
        for path, token, times in paths:
            found = []
            for number in range(times):
                found.append(await real_once(client, cluster, signal, pods, path, token))
                said = ", ".join(f"{each:.2f}" for each in found[-1])
                say(f"{path}, round {number + 1}: {', '.join(STEPS)} after {said} s")
            if found:
                for at, what in enumerate(STEPS):
                    if what == "last barrier open" and path != "Watch":
                        continue
                    aim = "" if path == "Volume" else "<= 1 s"
                    rows.append(
                        (f"{path}: last start -> {what}", spread([f[at] for f in found], " s"), aim)
                    )
        table(f"A group of {pods} real pods: min/med/max", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("simulated", "real"), action="append")
    parser.add_argument("--size", default="50x100", metavar="JOBSxPODS", help="default 50x100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pods", type=int, default=16, help="number of real pods; default 16")
    parser.add_argument("--volume-rounds", type=int, default=2, help="each takes over a minute")
    options = parser.parse_args()
    parts = options.part or ["simulated", "real"]
    if "simulated" in parts:
        jobs, _, pods = options.size.partition("x")
        quick = ["--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-job-syncs=20"]
        with (
            TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
            Cluster(name="bench-groups", controller_manager_args=quick) as cluster,
        ):
            log = Path(folder) / "manager.log"
            uvloop.run(
                simulated(str(cluster.kubeconfig), int(jobs), int(pods), options.rounds, log)
            )
    if "real" in parts:
        with Cluster(
            name="bench-groups-real", nodes=1, dns=True, images=build_images(), timeout_s=180
        ) as cluster:
            uvloop.run(real(cluster, options.pods, options.rounds, options.volume_rounds))


if __name__ == "__main__":
    main()
