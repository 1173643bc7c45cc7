"""Two replicas of the deployed manager on a real node: time without leader, refused webhook calls.

Each round kills the leader with SIGKILL during a restart of real pods, deletes the leader's pod,
and deletes that of the standby manager. Then all pods are replaced, as in an upgrade. Settings are
the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
import uuid
from collections.abc import Sequence
from typing import Any

import attrs
import uvloop

from bench.common import say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api.core import Pod
from jobsetpy.client import Client, HttpRequest
from support.cluster.deployed import DEPLOYMENT, Replicas, WebhookCalls, kill, memory_mb
from support.cluster.install import SYSTEM, apply_all, connected, jobsets_served, rendered
from support.cluster.processes import process_of
from support.restarts.scenario import (
    build_images,
    gang_jobset,
    kill_worker,
    pod_log_folders,
    run_gang,
)
from support.restarts.timeline import Timeline

SETTLE_S = 3.0


@attrs.define
class Figures:
    """Measurements: seconds, megabytes, numbers of calls."""

    killed_leads: list[float] = attrs.Factory(list)
    killed_runs: list[float] = attrs.Factory(list)
    killed_refused: list[int] = attrs.Factory(list)
    deleted_leads: list[float] = attrs.Factory(list)
    deleted_refused: list[int] = attrs.Factory(list)
    started: list[float] = attrs.Factory(list)
    leader_mb: list[float] = attrs.Factory(list)
    standby_mb: list[float] = attrs.Factory(list)
    peak_mb: float = 0.0
    recreated: int = 0
    upgrade_s: float = 0.0
    upgrade_calls: int = 0
    upgrade_refused: int = 0
    upgrade_slowest_s: float = 0.0


class Bench:
    """One run."""

    def __init__(self, client: Client, cluster: Cluster, rounds: int, pods: int) -> None:
        self.client = client
        self.cluster = cluster
        self.rounds = rounds
        self.pods = pods
        self.replicas = Replicas(client)
        self.figures = Figures()

    async def run(self) -> Figures:
        """All of it, on one installation."""
        await apply_all(self.client, rendered("default", "high-availability"))
        await jobsets_served(self.client)
        await self.replicas.settled()
        gang = gang_jobset(f"fo-{uuid.uuid4().hex[:4]}", self.pods)
        gang["spec"]["failurePolicy"]["maxRestarts"] = self.rounds + 1
        logs = pod_log_folders(self.cluster)
        async with run_gang(self.client, gang, self.pods, logs) as timeline:
            before = {name: story.uid for name, story in timeline.pods.items()}
            for number in range(self.rounds):
                await self.killed(timeline, number + 2)
                await self.deleted()
                await self.standby_deleted()
                await self.memory()
            await self.upgraded()
            after = {name: story.uid for name, story in timeline.pods.items()}
            self.figures.recreated = sum(after.get(name) != uid for name, uid in before.items())
            assert max(timeline.synced) == self.rounds + 1, "each restart once"
        return self.figures

    async def killed(self, timeline: Timeline, epoch: int) -> None:
        """Send SIGKILL during the restart to ``epoch``."""
        await asyncio.sleep(SETTLE_S)
        await self.replicas.settled()
        pod, holder = await self.replicas.leader()
        process = process_of(pod)
        calls = self.calls()
        async with calls.running():
            await kill_worker(await self.client.get(Pod, "default", min(timeline.pods)))
            await timeline.wait(
                lambda: any(p.epoch == epoch for p in timeline.pods.values()), 60, "a new epoch"
            )
            began = kill(process, signal.SIGKILL)
            await self.replicas.leader(not_=holder)
            self.figures.killed_leads.append(time.time() - began)
            await timeline.wait(lambda: timeline.all_running(self.pods, epoch), 60, "all to run")
            self.figures.killed_runs.append(time.time() - began)
        self.figures.killed_refused.append(len(calls.refused))
        say(
            f"killed: the next leads after {self.figures.killed_leads[-1]:.1f} s, all workers run "
            f"after {self.figures.killed_runs[-1]:.1f} s, {len(calls.refused)} calls refused"
        )

    async def deleted(self) -> None:
        """Delete the leader's pod with its grace period, as a drain does."""
        await asyncio.sleep(SETTLE_S)
        await self.replicas.settled()
        pod, holder = await self.replicas.leader()
        calls = self.calls()
        async with calls.running():
            began = time.time()
            await self.client.delete(Pod, SYSTEM, pod.metadata.name)
            await self.replicas.leader(not_=holder)
            self.figures.deleted_leads.append(time.time() - began)
            await self.replicas.settled()
        self.figures.deleted_refused.append(len(calls.refused))
        say(
            f"deleted: the next leads after {self.figures.deleted_leads[-1]:.2f} s, "
            f"{len(calls.refused)} of {len(calls.answered) + len(calls.refused)} calls refused"
        )

    async def standby_deleted(self) -> None:
        """Measure the time from a new pod's node to its readiness."""
        leader, _ = await self.replicas.leader()
        before = {pod.metadata.name for pod in await self.replicas.pods()}
        (standby,) = before - {leader.metadata.name}
        await self.client.delete(Pod, SYSTEM, standby)
        scheduled = 0.0
        async with asyncio.timeout(60):
            while True:
                new = [p for p in await self._raw_pods() if p["metadata"]["name"] not in before]
                if new and not scheduled and new[0]["spec"].get("nodeName"):
                    scheduled = time.monotonic()
                if new and is_ready(new[0]):
                    self.figures.started.append(time.monotonic() - scheduled)
                    break
                await asyncio.sleep(0.02)
        await self.replicas.settled()
        say(f"a pod is ready {self.figures.started[-1]:.2f} s after it got its node")

    async def memory(self) -> None:
        """Return the private memory of both processes after some idle seconds."""
        await asyncio.sleep(SETTLE_S)
        leader, _ = await self.replicas.leader()
        for pod in await self.replicas.pods():
            used, peak = memory_mb(process_of(pod))
            leads = pod.metadata.name == leader.metadata.name
            (self.figures.leader_mb if leads else self.figures.standby_mb).append(used)
            self.figures.peak_mb = max(self.figures.peak_mb, peak)

    async def upgraded(self) -> None:
        """Replace all pods one by one, while creations continue."""
        await self.replicas.settled()
        stamp = {"metadata": {"annotations": {"rolled-out-at": str(time.time())}}}
        calls = self.calls()
        began = time.time()
        async with calls.running():
            await self.client.raw(
                HttpRequest(
                    method="PATCH",
                    path=DEPLOYMENT,
                    body=json.dumps({"spec": {"template": stamp}}).encode(),
                    content_type="application/merge-patch+json",
                )
            )
            await asyncio.sleep(1.0)  # for the Deployment controller to notice
            await self.replicas.settled()
        figures = self.figures
        figures.upgrade_s = time.time() - began
        figures.upgrade_calls = len(calls.answered) + len(calls.refused)
        figures.upgrade_refused = len(calls.refused)
        figures.upgrade_slowest_s = calls.slowest_s
        for _, text in calls.refused[:3]:
            say(f"refused: {text}")

    def calls(self) -> WebhookCalls:
        """Dry-run creations of a suspended JobSet."""
        jobset = gang_jobset("called", 1)
        jobset["spec"]["suspend"] = True
        return WebhookCalls(self.cluster.kubeconfig, jobset)

    async def _raw_pods(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{SYSTEM}/pods"
        answer = await self.client.raw(HttpRequest(method="GET", path=path))
        items: list[dict[str, Any]] = json.loads(answer.body)["items"]
        return items


def is_ready(pod: dict[str, Any]) -> bool:
    """Return True if the pod's condition says so."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def report(figures: Figures, rounds: int) -> None:
    """One table."""

    def total(numbers: Sequence[int]) -> str:
        return str(sum(numbers))

    table(
        f"Two replicas on one node, {rounds} rounds: min / med / max",
        [
            ("killed in a restart: the next leads", spread(figures.killed_leads, " s"), "<= 20 s"),
            ("  all workers run again", spread(figures.killed_runs, " s"), "<= 20 s"),
            ("  calls refused, all rounds", total(figures.killed_refused), ""),
            ("deleted: the next leads", spread(figures.deleted_leads, " s"), "<= 2 s"),
            ("  calls refused, all rounds", total(figures.deleted_refused), "0"),
            ("a new pod: from its node to ready", spread(figures.started, " s"), ""),
            ("memory of the leader, private", spread(figures.leader_mb, " MB", 0), ""),
            ("memory of the standby, private", spread(figures.standby_mb, " MB", 0), ""),
            ("  largest resident size", f"{figures.peak_mb:.0f} MB", ""),
            ("both replaced, as in an upgrade", f"{figures.upgrade_s:.1f} s", ""),
            (
                "  calls refused",
                f"{figures.upgrade_refused} of {figures.upgrade_calls}",
                "0",
            ),
            ("  slowest call", f"{figures.upgrade_slowest_s:.2f} s", ""),
            ("pods of the group recreated", str(figures.recreated), "0"),
        ],
    )


async def measure(cluster: Cluster, rounds: int, pods: int) -> Figures:
    async with connected(cluster.kubeconfig, qps=0) as client:
        return await Bench(client, cluster, rounds, pods).run()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pods", type=int, default=3, help="number of pods that restart")
    options = parser.parse_args()
    say("building the images and starting a cluster with one node")
    images = build_images()
    with Cluster(name="bench-failover", nodes=1, images=images) as cluster:
        figures = uvloop.run(measure(cluster, options.rounds, options.pods))
    report(figures, options.rounds)


if __name__ == "__main__":
    main()
