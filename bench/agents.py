"""A group restart of 5,000 agents against the same requests and watches without any agent.

Real etcd and API server, the real manager, and the agents' own core (follower, barrier, reporter)
for each pod, in one process, over a few connections: so many watches are shared by the agents, so
many connections carry their patches. There are no kubelets, and workers stop and start in no time.
The bare restart sends the same two status writes and one patch for each pod, as many at a time,
and waits until every watch has told of each status. As many watches are open as before, the
manager's of the pods included, whose events are thrown away unread.

``supervisor``: an agent lives through the restart. ``sidecar``: the agents of all pods are new ones
afterwards, each of which asks for the JobSet first, once more than a supervisor.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import attrs
import msgspec
import uvloop

from bench.bare_loop import BareLoop
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
from jobsetpy import aio
from jobsetpy.agent.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart
from jobsetpy.agent.epoch_reporter import EpochReporter
from jobsetpy.agent.follower import Follower
from jobsetpy.agent.model import JobSet as AgentJobSet
from jobsetpy.agent.settings import Settings
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, connect
from jobsetpy.informers import ListCompleted, Listed, ListStarted, Watcher, WatchOptions

NAMESPACE, NAME, BARE = "bench-agents", "gang", "bare"
WATCHES, IN_FLIGHT = 16, 64
POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBSET_PATH = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
START_S, ROUND_S, SETTLE_S, AIM = 400.0, 300.0, 2.0, "<= 1.2x"
QUICK = ["--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-job-syncs=20"]
KUBELETS_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "kubelets"},
    "rules": [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}],
}
KUBELETS_FLOW = {
    "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
    "kind": "FlowSchema",
    "metadata": {"name": "bench-kubelets"},
    "spec": {
        "priorityLevelConfiguration": {"name": "system"},
        "matchingPrecedence": 500,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [
            {
                "subjects": [
                    {
                        "kind": "ServiceAccount",
                        "serviceAccount": {"name": "kubelets", "namespace": NAMESPACE},
                    }
                ],
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "resources": ["pods/status"],
                        "verbs": ["patch"],
                        "namespaces": ["*"],
                    }
                ],
            }
        ],
    },
}
ROUND_S, LIMIT_S, AIM = 60.0, 200.0, "<= 1.2x"
TEMPLATE = {
    "spec": {
        "completionMode": "Indexed",
        "backoffLimit": keys.INT32_MAX,
        "podReplacementPolicy": "Failed",
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "worker", "image": "bench.invalid/worker:1"}],
            }
        },
    }
}


def silent(_event: str, /, *, level: str = "info", **_fields: object) -> None:
    """A log that nobody reads."""


class Agent:
    """One pod's agent without its process: what starts and stops workers does so at once."""

    def __init__(self, fleet: Fleet, pod: str, watch: list[Agent]) -> None:
        self.fleet = fleet
        self.pod = pod
        watch.append(self)
        self.begin()

    def begin(self) -> None:
        """A new life."""
        fleet = self.fleet
        self.barrier = Barrier()
        self.reporter = EpochReporter(
            fleet.client, namespace=NAMESPACE, pod_name=self.pod, log=silent
        )
        self.follower = Follower(
            fleet.settings, fleet.client, barrier=self.barrier, log=silent, act=self.act
        )
        self.reporting = fleet.tasks.start(self.reporter.run(), name="report")

    def act(self, action: Action) -> None:
        match action:
            case PatchEpoch(epoch):
                self.reporter.report(epoch)
            case Lift(epoch):
                self.reporter.seen(epoch)
                self.fleet.lifted(epoch)
            case Restart():
                self.fail()
            case Foreign():
                raise SystemExit("a JobSet that is not ours")

    def fail(self) -> None:
        """The worker ended, by itself or because its epoch is over."""
        if self.fleet.sidecar:
            self.reporting.cancel()
            self.begin()
            self.fleet.tasks.start(self.join(), name="join")
        else:
            for action in self.barrier.next_round():
                self.act(action)

    async def join(self) -> None:
        """A new agent's first sight of the JobSet, as its streaming list gives it."""
        page = await self.fleet.client.list_page(
            AgentJobSet, NAMESPACE, field_selector=f"metadata.name={NAME}", timeout_s=ROUND_S
        )
        self.follower.on_events([ListStarted(), *map(Listed, page.items)])
        self.follower.on_events([ListCompleted(page.resource_version)])


class Fleet:
    """All agents, and what they share."""

    def __init__(self, client: Client, tasks: aio.Supervisor, pods: Sequence[str]) -> None:
        self.client = client
        self.tasks = tasks
        self.sidecar = False
        self.settings = Settings(
            namespace=NAMESPACE, pod_name="", jobset_name=NAME, api_host="shared"
        )
        self.up: dict[int, int] = {}
        self.done = asyncio.Event()
        self.status_seen: dict[tuple[int, int], float] = {}
        shards: list[list[Agent]] = [[] for _ in range(WATCHES)]
        self.agents = [Agent(self, pod, shards[i % WATCHES]) for i, pod in enumerate(pods)]
        for shard in shards:
            watcher: Watcher[AgentJobSet] = Watcher(
                client,
                AgentJobSet,
                WatchOptions(
                    namespace=NAMESPACE,
                    field_selector=f"metadata.name={NAME}",
                    page_limit=0,
                    streaming=True,
                ),
            )
            tasks.start(watcher.run(self._sink(shard)), name="watch")

    def _sink(self, shard: list[Agent]) -> Callable[[Sequence[Any]], None]:
        def give(events: Sequence[Any]) -> None:
            for event in events:
                if (obj := getattr(event, "obj", None)) is not None:
                    status = (obj.status.synced_epoch, obj.status.deprecated_epoch)
                    self.status_seen.setdefault(status, time.perf_counter())
            for agent in shard:
                agent.follower.on_events(events)

        return give

    def lifted(self, epoch: int) -> None:
        self.up[epoch] = self.up.get(epoch, 0) + 1
        if self.up[epoch] == len(self.agents):
            self.done.set()

    async def all_lifted(self) -> None:
        async with asyncio.timeout(ROUND_S):
            await self.done.wait()
        self.done.clear()


@attrs.frozen
class Round:
    """Seconds since the failure."""

    deprecated: float
    synced: float
    total: float
    cpu: float = 0.0


async def restart(fleet: Fleet, epoch: int, manager: Any) -> Round:
    """One failure until every worker of the next epoch runs."""
    manager.mark()
    began = time.perf_counter()
    fleet.agents[0].fail()
    await fleet.all_lifted()
    total = time.perf_counter() - began
    seen = fleet.status_seen
    return Round(
        seen[epoch - 1, epoch - 1] - began, seen[epoch, epoch - 1] - began, total, manager.cpu()
    )


class Bare:
    """The same requests and watches without agents, on another JobSet and another annotation."""

    def __init__(self, kubeconfig: str, pods: Sequence[str]) -> None:
        self.loop = BareLoop(kubeconfig, IN_FLIGHT)
        self.streams = BareLoop(kubeconfig, 0)
        self.pods = pods
        self.seen: dict[tuple[int, int], int] = {}
        self.news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        opened = [asyncio.Event() for _ in range(WATCHES)]
        async with aio.supervise() as tasks:
            for event in opened:
                tasks.start(self._watch(event), name="bare watch")
            opened.append(asyncio.Event())
            tasks.start(self._watch_pods(opened[-1]), name="bare watch of pods")
            for event in opened:
                await event.wait()
            yield

    async def close(self) -> None:
        await self.loop.close()
        await self.streams.close()

    async def _watch(self, opened: asyncio.Event) -> None:
        import aiohttp

        url = f"{self.streams.server}{JOBSET_PATH}?watch=1&fieldSelector=metadata.name%3D{BARE}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.streams.session.get(
            url, headers=self.streams.headers, timeout=timeout
        ) as answer:
            opened.set()
            async for line in answer.content:
                status = json.loads(line)["object"].get("status", {})
                pair = (status.get("syncedEpoch", 0), status.get("deprecatedEpoch", 0))
                self.seen[pair] = self.seen.get(pair, 0) + 1
                self.news.set()

    async def _watch_pods(self, opened: asyncio.Event) -> None:
        """In the manager's place, which does not run meanwhile."""
        import aiohttp

        page = json.loads(await self.loop.send("GET", f"{POD_PATH}?limit=1", b""))
        version = page["metadata"]["resourceVersion"]
        query = f"watch=1&labelSelector={quote(keys.JOBSET_NAME)}&resourceVersion={version}"
        url = f"{self.streams.server}{POD_PATH}?{query}"
        async with self.streams.session.get(
            url, headers=self.streams.headers, timeout=aiohttp.ClientTimeout(total=None)
        ) as answer:
            opened.set()
            async for _ in answer.content.iter_any():
                pass

    async def start(self) -> None:
        """The first epoch."""
        await self._status(syncedEpoch=1)

    async def restart(self, epoch: int, *, sidecar: bool) -> Round:
        """As ``restart`` above."""
        began = time.perf_counter()
        await self._pod(self.pods[0], epoch, sidecar=sidecar)
        await self._status(deprecatedEpoch=epoch - 1)
        await self._all_saw(epoch - 1, epoch - 1)
        deprecated = time.perf_counter() - began
        jobs = [lambda pod=pod: self._pod(pod, epoch, sidecar=sidecar) for pod in self.pods[1:]]
        await in_parallel(IN_FLIGHT, jobs)
        await self._status(syncedEpoch=epoch)
        synced = time.perf_counter() - began
        await self._all_saw(epoch, epoch - 1)
        return Round(deprecated, synced, time.perf_counter() - began)

    async def _pod(self, pod: str, epoch: int, *, sidecar: bool) -> None:
        if sidecar:
            await self.loop.send("GET", f"{JOBSET_PATH}?fieldSelector=metadata.name%3D{BARE}", b"")
        patch = b'{"metadata":{"annotations":{"bench.invalid/epoch":"%d"}}}' % epoch
        await self.loop.send("PATCH", f"{POD_PATH}/{pod}", patch, content_type=MERGE_PATCH)

    async def _status(self, **epochs: int) -> None:
        body = json.dumps({"status": epochs}).encode()
        await self.loop.send(
            "PATCH", f"{JOBSET_PATH}/{BARE}/status", body, content_type=MERGE_PATCH
        )

    async def _all_saw(self, synced: int, deprecated: int) -> None:
        async with asyncio.timeout(ROUND_S):
            while self.seen.get((synced, deprecated), 0) < WATCHES:
                self.news.clear()
                await self.news.wait()


def jobset(name: str, jobs: int, pods: int, **spec: Any) -> dict[str, Any]:
    template = msgspec.json.decode(msgspec.json.encode(TEMPLATE))
    template["spec"]["parallelism"] = template["spec"]["completions"] = pods
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 1000, "restartStrategy": "InPlaceRestart"},
            "network": {"enableDNSHostnames": False},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": [{"name": "w", "replicas": jobs, "template": template}],
            **spec,
        },
    }


async def make_pods(client: Client, kubeconfig: str, jobs: int, per_job: int) -> list[str]:
    """The pods that the Job controller would make; it is not there, to leave the machine alone."""
    async with asyncio.timeout(ROUND_S):
        while len(found := (await client.list_page(Job, NAMESPACE)).items) < jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    bare = BareLoop(kubeconfig, IN_FLIGHT)
    bodies = {}
    for job in found:
        meta = job.metadata
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "uid": meta.uid,
            "controller": True,
        }  # fmt: skip
        for index in range(per_job):
            name = f"{meta.name}-{index}"
            bodies[name] = {
                "metadata": {
                    "name": name, "labels": dict(meta.labels), "ownerReferences": [owner]
                },
                "spec": TEMPLATE["spec"]["template"]["spec"],
            }  # fmt: skip
    posts = [lambda body=b: bare.send("POST", POD_PATH, json.dumps(body).encode())
             for b in bodies.values()]  # fmt: skip
    await in_parallel(IN_FLIGHT, posts)
    await bare.close()
    return sorted(bodies)


async def measure(
    kubeconfig: str, jobs: int, per_job: int, *, rounds: int, modes: list[str], log: Path
) -> None:
    start = time.monotonic()
    results: dict[str, list[tuple[Round, Round]]] = {mode: [] for mode in modes}
    async with contextlib.AsyncExitStack() as stack:
        client = await connect(kubeconfig=kubeconfig, qps=0, timeout_s=ROUND_S)  # 64 connections
        stack.push_async_callback(client.aclose)
        await install_crd(client)
        await create_namespace(client, NAMESPACE)
        await prepare(kubeconfig)
        manager = await stack.enter_async_context(manager_process(kubeconfig, log))
        for body in (
            jobset(NAME, jobs, per_job),
            jobset(BARE, 1, 1, managedBy="bench.invalid/nobody"),
        ):
            await client.create(JobSet, NAMESPACE, body)
        began = time.perf_counter()
        pods = await make_pods(client, kubeconfig, jobs, per_job)
        say(f"{len(pods)} pods created in {time.perf_counter() - began:.1f} s")
        tasks = await stack.enter_async_context(aio.supervise())
        fleet = Fleet(client, tasks, pods)
        await fleet.all_lifted()
        say("all workers run at epoch 1")
        bare = Bare(kubeconfig, pods)
        stack.push_async_callback(bare.close)
        await bare.start()
        epoch = 1
        for mode in modes:
            fleet.sidecar = mode == "sidecar"
            for number in range(rounds):
                if results[mode] and time.monotonic() - start > LIMIT_S:
                    say("no time for more rounds")
                    break
                epoch += 1
                await asyncio.sleep(2.0)  # counters, bookmarks
                ours = await restart(fleet, epoch, manager)
                await manager.stop()
                await asyncio.sleep(1.0)
                async with bare.watching():
                    theirs = await bare.restart(epoch, sidecar=fleet.sidecar)
                await manager.start()
                results[mode].append((ours, theirs))
                say(
                    f"{mode}, round {number + 1}: {ours.total:.2f} s, bare {theirs.total:.2f} s "
                    f"({ours.total / theirs.total:.2f}x); deprecated after {ours.deprecated:.3f} "
                    f"(bare {theirs.deprecated:.3f}), synced after {ours.synced:.2f} "
                    f"(bare {theirs.synced:.2f})"
                )
        report(results, len(pods), rounds)
        tasks.cancel_all()


async def prepare(kubeconfig: str) -> None:
    """What a controller manager would have made: the account that pods without one get."""
    loop = BareLoop(kubeconfig, 1)
    account = {"metadata": {"name": "default"}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    with contextlib.suppress(RuntimeError):
        await loop.send("POST", path, json.dumps(account).encode())
    await loop.close()


def report(results: dict[str, list[tuple[Round, Round]]], pods: int, rounds: int) -> None:
    rows = []
    for mode, pairs in results.items():
        ours, bare = [a for a, _ in pairs], [b for _, b in pairs]
        ratio = statistics.median(a.total for a in ours) / statistics.median(b.total for b in bare)
        rows += [
            (f"{mode}: failure to all lifted", spread([a.total for a in ours], " s"), ""),
            ("  the same sent bare", spread([b.total for b in bare], " s"), ""),
            ("  ratio", spread([a.total / b.total for a, b in pairs], "x"), AIM),
            ("  ratio of medians", f"{ratio:.2f}x", AIM),
            (
                "  all watches told of the failure",
                spread([a.deprecated for a in ours], " s", 3),
                "",
            ),
            ("  the same bare", spread([b.deprecated for b in bare], " s", 3), ""),
            ("  manager CPU", spread([a.cpu for a in ours], " s"), ""),
        ]
    title = f"Restart of {pods} agents, {WATCHES} watches, {rounds} rounds: min / med / max"
    table(title, rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="50x100", metavar="JOBSxPODS", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--modes", default="supervisor,sidecar", help="default %(default)s")
    options = parser.parse_args()
    jobs, _, pods = options.size.partition("x")
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(name="bench-agents", controller_manager=False, scheduler=False) as cluster,
    ):
        uvloop.run(
            measure(
                str(cluster.kubeconfig), int(jobs), int(pods), rounds=options.rounds,
                modes=options.modes.split(","), log=Path(folder) / "manager.log",
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
