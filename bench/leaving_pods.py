"""Random deletions and failures of pods, with a real API server and Job controller.

Nodes are simulated. ``--deletions`` pods in ``--groups`` JobSets that restart in place are deleted,
one to three at a time; with ``--failures``, that share of them fails without deletion (137).
Deleted workers exit with 0, 1, 137 or 143 after 0.2 to 1.5 s. With ``--faults``, JobSets are
suspended and resumed from time to time, and the manager is killed and started again; workers that
leave meanwhile exit after that. After each round all pods must exist again, each index once.
``--restart-backoff`` is that of the manager; its default delays restarts.

The benchmark prints the time from a deletion to a running replacement, and the Jobs' counters. It
fails if two pods of one index ever ran simultaneously, or if a group does not restart completely.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from hack.cluster import Cluster
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, connect
from support.cluster.account import manager_kubeconfig
from support.cluster.install import create_namespace, install_crd
from support.cluster.manager_process import ManagerProcess
from support.restarts.played_group import PlayedGroup

NAMESPACE = "deletions"
CODES = (0, 0, 1, 137, 143)


class Run:
    """One run of the benchmark."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self.client = client
        self.options = options
        self.random = random.Random(options.seed)
        self.seconds: list[float] = []
        self.done = self.failed = self.suspensions = self.kills = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def group(self, number: int) -> PlayedGroup:
        """Delete pods of one JobSet until all groups together have lost the requested number."""
        size = self.options.jobs * self.options.pods
        one = PlayedGroup(self.client, NAMESPACE, f"g{number}")
        one.draw = lambda: (self.random.choice(CODES), self.random.uniform(0.2, 1.5))
        one.may_end = self.may_end
        async with one.playing():
            await one.create(jobs=self.options.jobs, pods=self.options.pods, max_restarts=100_000)
            await one.complete(size, 120)
            while self.done < self.options.deletions:
                if self.options.faults and self.random.random() < 0.03:
                    await self._suspend(one)
                else:
                    await self._delete(one)
                await one.complete(size, 120)
        return one

    async def _delete(self, one: PlayedGroup) -> None:
        known, at = set(one.ready_at), time.monotonic()
        there = sorted(name for name, pod in one.pods.items() if pod.live)
        chosen = self.random.sample(there, min(self.random.randint(1, 3), len(there)))
        for name in chosen:
            if self.random.random() < self.options.failures:
                await one.fail(name)
                self.failed += 1
            else:
                await one.delete(name)
            self.done += 1
        self.seconds.append(await one.replacement(known, at, 120))

    async def _suspend(self, one: PlayedGroup) -> None:
        self.suspensions += 1
        for suspend in (True, False):
            body = {"spec": {"suspend": suspend}}
            await self.client.merge_patch(JobSet, NAMESPACE, one.name, body)
            await asyncio.sleep(self.random.uniform(0, 2))

    async def kill(self, manager: ManagerProcess) -> None:
        """Kill and restart the manager from time to time."""
        while True:
            await asyncio.sleep(self.random.uniform(10, 40))
            self.kills += 1
            self.may_end.clear()
            await manager.kill()
            await asyncio.sleep(self.random.uniform(0, 2))
            await manager.start()
            await asyncio.sleep(0.5)
            self.may_end.set()


async def counted(client: Client, failures: int) -> list[Job]:
    """Return all Jobs, once they have counted all failures or 20 s have passed."""
    until = time.monotonic() + 20
    while True:
        jobs = (await client.list_page(Job, NAMESPACE)).items
        if sum(job.status.failed for job in jobs) >= failures or time.monotonic() > until:
            return list(jobs)
        await asyncio.sleep(0.5)


async def run(cluster: Cluster, options: argparse.Namespace) -> int:
    """Run all groups simultaneously; return the exit code."""
    client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
    await install_crd(client)
    await create_namespace(client, NAMESPACE)
    folder = Path(tempfile.mkdtemp(prefix="leaving-pods-"))
    own = await manager_kubeconfig(client, cluster.kubeconfig, folder)
    flags = ("--restart-backoff", options.restart_backoff) if options.restart_backoff else ()
    manager = ManagerProcess(own, folder / "manager.log", *flags)
    await manager.start()
    one = Run(client, options)
    try:
        async with asyncio.TaskGroup() as tasks:
            killer = tasks.create_task(one.kill(manager)) if options.faults else None
            groups = [tasks.create_task(one.group(n)) for n in range(options.groups)]
            played = await asyncio.gather(*groups)
            if killer is not None:
                killer.cancel()
        jobs = await counted(client, one.failed)
    finally:
        await manager.stop()
        await client.aclose()
    worst = max(max(each.most.values()) for each in played)
    ordered = sorted(one.seconds)
    print(f"{one.done - one.failed} deletions, {one.failed} failures, ", end="")
    print(f"{one.suspensions} suspensions, ", end="")
    print(f"{one.kills} managers killed, seed {options.seed}")
    print(
        f"loss to a running replacement: median {statistics.median(ordered):.2f} s, "
        f"90 % {ordered[len(ordered) * 9 // 10]:.2f} s, most {ordered[-1]:.2f} s"
    )
    print(f"most pods of one index at the same time: {worst}")
    print(
        f"counted by the Jobs: {sum(job.status.succeeded for job in jobs)} as succeeded, "
        f"{sum(job.status.failed for job in jobs)} as failed"
    )
    together = [epoch for each in played for epoch in each.together]
    print(f"barriers that lifted with two pods of one index: {len(together)}")
    print(f"names that a second pod had: {sum(len(each.reused) for each in played)}")
    return int(bool(together) or (worst > 1 and not options.failures))


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deletions", type=int, default=200)
    parser.add_argument("--failures", type=float, default=0.0, help="share that fails instead")
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pods", type=int, default=4, help="number of pods of each Job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restart-backoff", default="", help="of the manager, such as 0s")
    parser.add_argument("--faults", action="store_true", help="suspend JobSets, kill the manager")
    options = parser.parse_args()
    with Cluster() as cluster:
        return asyncio.run(run(cluster, options))


if __name__ == "__main__":
    raise SystemExit(main())
