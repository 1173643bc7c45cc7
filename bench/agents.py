"""Restart of 5,000 agents, each with its own connections, while kubelets report.

Etcd, API server (with its priority levels, including that of ``config/agent/flow``) and Job
controller are real, and so are the manager with its shipped permissions and, in a few processes,
the agents' core (follower, barrier, reporter) for each pod. There are no nodes: instead of
kubelets, this program reports that each pod is not ready when its epoch is over, and ready when it
runs again. So the Jobs' counters change all the time, and with them the JobSet's status, which each
agent watches.

Measured: time from the failure until all workers may run; number of changes of the JobSet, and
bytes, that are sent to the agents until all pods are ready again. With ``--before FOLDER``, the
managers of another checkout and this one alternate.

The bare restart has the same requests, connections and readiness of pods without any agent or
manager: two status writes, and for each pod the data that an agent sends and receives.

``supervisor``: agents continue during the restart. ``sidecar``: all pods have new agents
afterwards, each with a new watch and a new connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import uvloop

from bench.bare_loop import BareLoop
from bench.common import ROOT, create_namespace, in_parallel, install_crd, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy import aio
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client, connect
from jobsetpy.reconcilers.jobs.reconciler import JobsSettings
from support.agents.agent_account import RBAC, agent_environ, binding
from support.cluster import objects
from support.cluster.account import account_kubeconfig, manager_kubeconfig
from support.cluster.follow import following
from support.cluster.install import CONFIG, apply_manifest
from support.cluster.json_api import send
from support.cluster.manager_process import ManagerProcess
from support.patience import News

NAMESPACE, NAME, BARE = "bench-agents", "gang", "bare"
PROCESSES, IN_FLIGHT = 4, 16
CORE = f"/api/v1/namespaces/{NAMESPACE}"
STATUS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{BARE}/status"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
SETTLE_S, AIM = 2.0, "<= 1.2x"
SERVERS = ("kube-apiserver", "etcd", "kube-controller-manager")
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
POD = {
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "worker",
            "image": "bench.invalid/team/trainer:2026-01",
            "command": ["python3", "-m", "trainer", "--checkpoints=/checkpoints"],
            "env": [{"name": "LOG_LEVEL", "value": "info"}],
            "resources": {"limits": {"example.com/accelerator": 8}},
            "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
        }
    ],
    "volumes": [{"name": "checkpoints", "emptyDir": {}}],
}


@attrs.frozen
class Round:
    """One restart.

    Args:
        total: seconds from the failure until all workers may run.
        settled: seconds until all Jobs are ready again.
        changes: number of changes of the JobSet that were sent to each agent.
        megabytes: megabytes that were sent to all agents.
        watches: number of opened watches.
        crowd_cpu: CPU seconds of all processes with agents or bare connections.
        servers_cpu: CPU seconds of each of ``SERVERS``.
        cpu: CPU seconds of the manager.
    """

    total: float
    settled: float
    changes: float
    megabytes: float
    watches: int
    crowd_cpu: float
    servers_cpu: tuple[float, ...]
    cpu: float = 0.0


class Crowd:
    """The processes with all agents, or with bare connections."""

    def __init__(
        self, kind: str, environ: dict[str, str], pods: Sequence[str], folder: Path
    ) -> None:
        self.kind = kind
        self.complaints = (folder / f"{kind}.log").open("wb")
        self.environ = environ
        self.pods = pods
        self.processes: list[asyncio.subprocess.Process] = []
        self.lines: list[dict[str, Any]] = []
        self.news = News()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Crowd]:
        """Started on entry, ended on exit."""
        try:
            for number in range(PROCESSES):
                mine = " ".join(self.pods[number::PROCESSES])
                self.processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "bench.agent_crowd", self.kind,
                        env={**self.environ, "POD_NAMES": mine}, cwd=ROOT,
                        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                        stderr=self.complaints,
                    )
                )  # fmt: skip
            async with aio.supervise() as tasks:
                for process in self.processes:
                    tasks.start(self._listen(process), name="crowd")
                yield self
                tasks.cancel_all()
        finally:
            for process in self.processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self.lines.append(json.loads(line))
            self.news.set()
        raise RuntimeError(f"a process of {self.kind} has ended")

    def tell(self, *processes: int, **command: Any) -> None:
        """Give a command to some of the processes, or to all."""
        for process in [self.processes[at] for at in processes] or self.processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(command).encode() + b"\n")

    async def all(self, what: str, value: Any = None, timeout_s: float = 60.0) -> list[Any]:
        """Wait until every process has sent such a line; remove and return the lines."""

        def found() -> list[Any]:
            fits = (one for one in self.lines if what in one)
            return [one for one in fits if value is None or one[what] == value]

        await self.news.until(lambda: len(found()) == len(self.processes), timeout_s)
        said = found()
        self.lines = [one for one in self.lines if one not in said]
        return said


class Kubelets:
    """Report whether pods are ready, in place of kubelets."""

    def __init__(self, kubeconfig: str, pods: Sequence[str]) -> None:
        self.loop = BareLoop(kubeconfig, IN_FLIGHT)
        self.pods = pods

    async def report(self, *, ready: bool) -> None:
        """One status patch for each pod."""
        body = json.dumps(
            {
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                }
            }
        ).encode()
        await in_parallel(IN_FLIGHT, [lambda pod=pod: self._patch(pod, body) for pod in self.pods])

    async def _patch(self, pod: str, body: bytes) -> None:
        path = f"{CORE}/pods/{pod}/status"
        await self.loop.send("PATCH", path, body, content_type=STRATEGIC_PATCH)


class Bench:
    """One cluster, its group and the bare one."""

    def __init__(
        self,
        client: Client,
        admin: BareLoop,
        kubelets: Kubelets,
        cluster: Cluster,
        options: argparse.Namespace,
    ) -> None:
        self.client = client
        self.cluster = cluster
        self.round_s = options.timeout
        self.admin = admin
        self.kubelets = kubelets
        jobs, per_job = map(int, options.size.split("x"))
        self.pods = jobs * per_job
        self.epochs: dict[tuple[str, str, int], float] = {}
        self.news = News()

    def note(self, jobset: JobSet, _gone: bool) -> None:
        """A state of a JobSet."""
        name, status = jobset.metadata.name, jobset.status
        self.epochs.setdefault((name, "synced", status.synced_epoch), time.time())
        self.epochs.setdefault((name, "deprecated", status.deprecated_epoch), time.time())
        self.news.set()

    async def comes(self, name: str, kind: str, epoch: int) -> None:
        """Wait until a JobSet has that epoch."""
        await self.news.until(lambda: (name, kind, epoch) in self.epochs)

    async def churn(self, name: str, epoch: int) -> None:
        """Status that kubelets report after a restart to that epoch."""
        await self.comes(name, "deprecated", epoch - 1)
        await self.kubelets.report(ready=False)
        await self.comes(name, "synced", epoch)
        await self.kubelets.report(ready=True)
        await self.jobs_ready()

    async def jobs_ready(self) -> None:
        """Wait until the Job controller has counted all pods as ready."""
        while True:
            found = (await self.client.list_page(Job, NAMESPACE)).items
            if sum(job.status.ready or 0 for job in found) == self.pods:
                return
            await asyncio.sleep(0.2)

    async def restart(self, crowd: Crowd, epoch: int, *, name: str, sidecar: bool) -> Round:
        """Measure a restart from the failure until all pods are ready at the next epoch."""
        crowd.tell(sidecar=sidecar)
        crowd.tell(mark=1)
        await asyncio.sleep(0.2)
        before = self.servers_cpu()
        async with asyncio.timeout(self.round_s), asyncio.TaskGroup() as tasks:
            churn = tasks.create_task(self.churn(name, epoch))
            began = time.time()
            crowd.tell(0, fail=1)
            if name == BARE:
                await self.status(deprecatedEpoch=epoch - 1)
                await crowd.all("reported", epoch, self.round_s)
                await self.status(syncedEpoch=epoch)
            lifted = await crowd.all("lifted", epoch, self.round_s)
            say(f"lifted after {max(line['at'] for line in lifted) - began:.1f} s")
            await churn
        settled = time.time() - began
        await asyncio.sleep(SETTLE_S)
        crowd.tell(figures=1)
        figures = [line["figures"] for line in await crowd.all("figures")]
        return Round(
            max(line["at"] for line in lifted) - began,
            settled,
            sum(one["changes"] for one in figures) / len(crowd.pods),
            sum(one["bytes"] for one in figures) / 1e6,
            sum(one["watches"] for one in figures),
            sum(one["cpu"] for one in figures),
            tuple(now - was for now, was in zip(self.servers_cpu(), before, strict=True)),
        )

    def servers_cpu(self) -> list[float]:
        """Seconds of each server so far."""
        return [self.cluster.cpu_seconds(name) for name in SERVERS]

    async def status(self, **epochs: int) -> None:
        """Write the status in place of the manager."""
        body = json.dumps({"status": epochs}).encode()
        await self.admin.send("PATCH", STATUS, body, content_type=MERGE_PATCH)


def jobset(name: str, jobs: int, pods: int, **spec: Any) -> dict[str, Any]:
    network = {"enableDNSHostnames": False}
    return objects.in_place_jobset(
        name, jobs=jobs, pods=pods, max_restarts=1000, pod=POD, network=network, **spec
    )


async def pod_names(client: Client, count: int, timeout_s: float) -> list[str]:
    """Return those of all pods, once the Job controller has created them."""
    async with asyncio.timeout(timeout_s):
        while True:
            names: list[str] = []
            token = ""
            while True:
                page = await client.list_page(ChildPod, NAMESPACE, limit=500, continue_token=token)
                names += [pod.metadata.name for pod in page.items]
                token = page.continue_token
                if not token:
                    break
            if len(names) == count:
                return sorted(names)
            await asyncio.sleep(1.0)


async def prepare(client: Client, kubeconfig: str, folder: Path) -> tuple[Path, Path]:
    """Create permissions and priority levels; return kubeconfigs of manager and kubelets."""
    await install_crd(client)
    await create_namespace(client, NAMESPACE)
    await apply_manifest(client, CONFIG / "agent/flow/flow.yaml")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubelets"}}
    await send(client, "POST", f"{CORE}/serviceaccounts", account)
    rbac = f"{RBAC}/namespaces/{NAMESPACE}"
    await send(client, "POST", f"{rbac}/roles", KUBELETS_ROLE)
    await send(client, "POST", f"{rbac}/rolebindings", binding(NAMESPACE, "kubelets", "kubelets"))
    await send(client, "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", KUBELETS_FLOW)
    kubelets = await account_kubeconfig(client, kubeconfig, folder, NAMESPACE, "kubelets")
    return await manager_kubeconfig(client, kubeconfig, folder), kubelets


async def measure(cluster: Cluster, folder: Path, options: argparse.Namespace) -> None:
    kubeconfig = str(cluster.kubeconfig)
    jobs, per_job = map(int, options.size.split("x"))
    modes, results = options.modes.split(","), dict[tuple[str, str], list[Round]]()
    async with contextlib.AsyncExitStack() as stack:
        client = await connect(kubeconfig=kubeconfig, qps=0, timeout_s=180.0)
        stack.push_async_callback(client.aclose)
        of_manager, of_kubelets = await prepare(client, kubeconfig, folder)
        limit = f"--in-place-restart-agent-events-per-second={options.limit}"
        managers = {"now": ManagerProcess(of_manager, folder / "now.log", limit)}
        if options.before:
            source = {"PYTHONPATH": str(Path(options.before).resolve() / "src")}
            managers["before"] = ManagerProcess(of_manager, folder / "before.log", environ=source)
        for body in (
            jobset(NAME, jobs, per_job),
            jobset(BARE, 1, 1, managedBy="bench.invalid/none"),
        ):
            await client.create(JobSet, NAMESPACE, body)
        began = time.monotonic()
        await managers["now"].start()
        stack.push_async_callback(managers["now"].stop)
        pods = await pod_names(client, jobs * per_job, options.timeout)
        say(f"{len(pods)} pods created in {time.monotonic() - began:.0f} s")
        admin, kubelets = BareLoop(kubeconfig, 1), Kubelets(str(of_kubelets), pods)
        for loop in (admin, kubelets.loop):
            stack.push_async_callback(loop.close)
        bench = Bench(client, admin, kubelets, cluster, options)
        await stack.enter_async_context(following(client, JobSet, bench.note, namespace=NAMESPACE))
        environ = await agent_environ(client, kubeconfig, folder, NAMESPACE, NAME)
        await kubelets.report(ready=True)
        say(f"all ready after {time.monotonic() - began:.0f} s")
        agents = await stack.enter_async_context(Crowd("agents", environ, pods, folder).running())
        await agents.all("lifted", 1, options.timeout)
        say(f"all agents connected after {time.monotonic() - began:.0f} s")
        bare = None
        if not options.no_bare:
            environ = {**environ, "JOBSET_NAME": BARE}
            await bench.status(deprecatedEpoch=0, syncedEpoch=0)
            bare = await stack.enter_async_context(Crowd("bare", environ, pods, folder).running())
            await bare.all("reported", 1, options.timeout)
            await bench.status(syncedEpoch=1)
            await bare.all("lifted", 1)
        memory = cluster.rss_bytes(SERVERS[0]) / 1e6
        say(f"all connected after {time.monotonic() - began:.0f} s; API server {memory:.0f} MB")
        await managers["now"].stop()
        if options.before and options.before_only:
            del managers["now"]
        epochs = {NAME: 1, BARE: 1}
        for mode in modes:
            for number in range(options.rounds):
                for kind, manager in managers.items():
                    await manager.start()
                    await asyncio.sleep(SETTLE_S)
                    manager.mark()
                    epochs[NAME] += 1
                    found = await bench.restart(
                        agents, epochs[NAME], name=NAME, sidecar=mode == "sidecar"
                    )
                    note(results, mode, kind, number, attrs.evolve(found, cpu=manager.cpu()))
                    await manager.stop()
                if bare is not None:
                    epochs[BARE] += 1
                    found = await bench.restart(
                        bare, epochs[BARE], name=BARE, sidecar=mode == "sidecar"
                    )
                    note(results, mode, "bare", number, found)
        report(results, len(pods))


def note(
    results: dict[tuple[str, str], list[Round]], mode: str, kind: str, number: int, found: Round
) -> None:
    results.setdefault((mode, kind), []).append(found)
    say(
        f"{mode}, {kind}, round {number + 1}: {found.total:.2f} s, all ready after "
        f"{found.settled:.1f} s, {found.changes:.1f} changes of the JobSet for each agent, "
        f"{found.megabytes:.1f} MB, {found.watches} watches opened, CPU: manager "
        f"{found.cpu:.2f} s, crowd {found.crowd_cpu:.1f} s, "
        + ", ".join(f"{n} {s:.1f} s" for n, s in zip(SERVERS, found.servers_cpu, strict=True))
    )


def report(results: dict[tuple[str, str], list[Round]], pods: int) -> None:
    rows = []
    for (mode, kind), found in results.items():
        times = [one.total for one in found]
        rows += [
            (f"{mode}, {kind}: failure to all lifted", spread(times, " s"), ""),
            ("  all ready again", spread([one.settled for one in found], " s", 1), ""),
            ("  changes for each agent", spread([one.changes for one in found], "", 1), ""),
            ("  sent to all agents", spread([one.megabytes for one in found], " MB", 1), ""),
            ("  CPU of agents or bare clients", spread([one.crowd_cpu for one in found], " s"), ""),
            ("  CPU of the servers", spread([sum(one.servers_cpu) for one in found], " s"), ""),
        ]
        bare = results.get((mode, "bare"))
        if bare and kind != "bare":
            ratio = statistics.median(times) / statistics.median(one.total for one in bare)
            rows.append(("  ratio of medians to bare", f"{ratio:.2f}x", AIM))
        if kind != "bare":
            rows.append(("  manager CPU", spread([one.cpu for one in found], " s"), ""))
    table(f"Restart of {pods} agents with their own connections: min / med / max", rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="50x100", metavar="JOBSxPODS", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default="supervisor,sidecar", help="default %(default)s")
    parser.add_argument(
        "--limit", type=float, default=JobsSettings().agent_events_per_s, metavar="EVENTS",
        help="changes of counters per second that are sent to agents; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--before", metavar="FOLDER", help="checkout whose manager alternates")
    parser.add_argument("--before-only", action="store_true", help="run only the other manager")
    parser.add_argument("--no-bare", action="store_true")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS",
        help="timeout of the start and of each restart; default %(default)s",
    )  # fmt: skip
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(name="bench-agents", scheduler=False, controller_manager_args=QUICK) as cluster,
    ):
        uvloop.run(measure(cluster, Path(folder), options))


if __name__ == "__main__":
    main()
