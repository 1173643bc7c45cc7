"""A gang's restart while its old pods terminate slowly: no part of the new gang may start.

Etcd, API server, Job controller, scheduler, manager and coscheduler are real; nodes have no
kubelets, and capacity for only one such gang. This program simulates the kubelets at the end of
pods, some time after their deletion was requested.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from support.cluster import objects
from support.cluster.follow import following
from support.cluster.manager_process import manager_process
from support.cluster.racks import kill
from support.coscheduling.gangs import NAMESPACE
from support.patience import News

LIMIT_S: Final = 300.0
FLAGS: Final = ("--leader-elect=false", "--coscheduling-backend=coscheduler")
CPU: Final = 4
"""CPU request of each pod: ten fit a node."""


class Attempts:
    """Pods of both attempts as a watch shows them; deleted ones terminate in time.

    Attributes:
        bound: time at which each pod of an attempt was bound, by UID.
        there: pods of an attempt, by UID.
        left: number of old pods when the first new one was bound; -1 before that.
    """

    def __init__(self, client: Client, tasks: aio.Supervisor, slow_s: float, seed: int) -> None:
        self._client = client
        self._tasks = tasks
        self._slow_s = slow_s
        self._random = random.Random(seed)
        self._going: set[str] = set()
        self.bound: dict[str, dict[str, float]] = {"0": {}, "1": {}}
        self.there: dict[str, dict[str, str]] = {"0": {}, "1": {}}
        self.left = -1
        self._news = News()

    def note(self, pod: ChildPod, gone: bool) -> None:
        """One event of the watch."""
        self._news.set()
        meta, attempt = pod.metadata, pod.metadata.labels.restart_attempt
        if gone:
            self.there[attempt].pop(meta.uid, None)
            return
        self.there[attempt][meta.uid] = meta.name
        if pod.spec.node_name and meta.uid not in self.bound[attempt]:
            if attempt == "1" and self.left < 0:
                self.left = len(self.there["0"])
            self.bound[attempt][meta.uid] = time.monotonic()
        if meta.deletion_timestamp is not None and meta.uid not in self._going:
            self._going.add(meta.uid)
            wait_s = self._random.uniform(0, self._slow_s)
            self._tasks.start(self._end(meta.name, wait_s), name=f"end of {meta.name}")

    async def _end(self, name: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        with contextlib.suppress(NotFoundError):
            await kill(self._client, NAMESPACE, name)

    async def all_bound(self, attempt: str, pods: int) -> None:
        """Return when the given number of pods of an attempt has been bound."""
        await self._news.until(lambda: len(self.bound[attempt]) >= pods, LIMIT_S)


def jobset(jobs: int, size: int) -> dict[str, Any]:
    """A JobSet whose pods are one gang, and which is recreated if one of them fails."""
    pod: Mapping[str, Any] = {
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}
                    ]
                }
            }
        },
        "containers": [
            {
                "name": "w",
                "image": "bench.invalid/w:1",
                "resources": {"requests": {"cpu": str(CPU)}},
            }
        ],
    }
    job = {"completionMode": "Indexed", "backoffLimit": 0}
    return objects.jobset(
        "gang",
        objects.replicated_job(pod, size, replicas=jobs, **job),
        annotations={keys.COSCHEDULING_ANNOTATION: "JobSet"},
        network={"enableDNSHostnames": False},
        failurePolicy={"maxRestarts": 1},
    )


async def measure(
    client: Client, kubeconfig: Path, log: Path, *, jobs: int, size: int, slow_s: float, seed: int
) -> list[tuple[str, str, str]]:
    """Measure one restart; return rows of a table.

    Args:
        client: client of the cluster, whose scheduler and coscheduler run.
        kubeconfig: kubeconfig of the manager.
        log: file for the manager's log.
        jobs: number of Jobs of the gang.
        size: number of pods of a Job.
        slow_s: maximum time for a deleted pod to terminate; times are evenly distributed.
        seed: seed of these times.
    """
    pods = jobs * size
    async with aio.supervise() as tasks, manager_process(kubeconfig, log, *FLAGS):
        seen = Attempts(client, tasks, slow_s, seed)
        async with following(client, ChildPod, seen.note):
            began = time.monotonic()
            await client.create(JobSet, NAMESPACE, jobset(jobs, size))
            await seen.all_bound("0", pods)
            first_s = max(seen.bound["0"].values()) - began
            began = time.monotonic()
            failed = {"status": {"phase": "Failed"}}
            name = next(iter(seen.there["0"].values()))
            await client.merge_patch(ChildPod, NAMESPACE, name, failed, subresource="status")
            await seen.all_bound("1", pods)
            new = seen.bound["1"].values()
            what = f"{jobs} x {size} pods, old ones take up to {slow_s:.0f} s to terminate"
            return [
                (f"{what}: created -> all bound", f"{first_s:.1f} s", ""),
                ("    pod failed -> all of the new group bound", f"{max(new) - began:.1f} s", ""),
                ("    old pods left at the first bind of the new group", str(seen.left), ""),
                ("    first to last bind of the new group", f"{max(new) - min(new):.1f} s", ""),
            ]
