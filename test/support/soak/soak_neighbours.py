"""Neighbours of the soak test's JobSets: hostile objects, gangs that never fit, and their victims.

In one namespace JobSets of more than a megabyte come and go, in another gangs of which some can never
be bound. In a third a small JobSet is created from time to time, and must get its Job in time; next
to the hopeless gangs an ordinary one must be bound in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client
from jobsetpy.errors import InvalidError, JobSetPyError, NotFoundError
from support import patience
from support.admission import hostile
from support.cluster.install import create_namespace
from support.coscheduling.gangs import create_all, delete_all, make_node, pod_body
from support.coscheduling.gangs_kit import FOREIGN

HOSTILE: Final = "soak-hostile"
PROBE: Final = "soak-probe"
GANGS: Final = "soak-gangs"
JOB_S: Final = 5.0
"""Maximum time until a JobSet of another namespace has its Job, in seconds."""
BOUND_S: Final = 30.0
"""Maximum time until a gang that fits is bound next to hopeless ones, in seconds."""
NODES: Final = 2
NODE_CPU: Final = 8
_MAKERS: Final = (
    hostile.chain,
    hostile.group_behind_chain,
    hostile.many_reasons,
    hostile.many_rules,
    hostile.large_patterns,
    hostile.many_patterns,
    hostile.many_tolerations,
    hostile.many_variables,
)
"""Forms that are expensive and have few Jobs: the Job controller's own cost does not matter."""
_FEWER: Final = {
    # With 300, the Job controller's own requests use two cores for more than a minute.
    hostile.many_replicated_jobs: 60,
    # The API server compares all tolerations with each other at each update of a pod: 41 s for 30,000.
    hostile.many_tolerations: 1_000,
}
_NOWHERE: Final = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "no/such", "labelSelector": {"matchLabels": {"no": "such"}}}
        ]
    }
}
_HOPELESS: Final[tuple[dict[str, Any], ...]] = (
    {"affinity": _NOWHERE},
    {"schedulerName": "none"},
    {"schedulingGates": [{"name": keys.COSCHEDULING_GATE}, {"name": FOREIGN}]},
    {"cpu": str(NODES * NODE_CPU)},  # more than any node has
)


class Neighbours:
    """Hostile objects, and objects that must not be delayed by them.

    Args:
        client: an administrator's.
        rand: source of all decisions.
        quiet: returns False while a manager is being replaced: then nothing is checked.
        coscheduled: True if there is a coscheduler.
    """

    def __init__(
        self,
        client: Client,
        rand: random.Random,
        *,
        quiet: Callable[[], bool],
        coscheduled: bool,
    ) -> None:
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.job_s: list[float] = []
        self.bound_s: list[float] = []
        self._client = client
        self._rand = rand
        self._quiet = quiet
        self._coscheduled = coscheduled

    async def prepare(self) -> None:
        """Create namespaces and nodes."""
        for name in (HOSTILE, PROBE, GANGS):
            await create_namespace(self._client, name)
        for at in range(NODES if self._coscheduled else 0):
            await make_node(self._client, f"gangs-{at}", NODE_CPU)

    async def living(self, ending: asyncio.Event) -> None:
        """Create and delete all of them until ``ending``; then none of them is left."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._hostile, 5.0, ending))
            tasks.create_task(self._repeat(self._probe, 3.0, ending))
            if self._coscheduled:
                tasks.create_task(self._repeat(self._gangs, 3.0, ending))
        for namespace in (HOSTILE, PROBE):
            await self._clear(namespace)
        if self._coscheduled:
            await delete_all(self._client, namespace=GANGS)

    async def _clear(self, namespace: str) -> None:
        """Delete the objects of unanswered requests; wait for the end of all JobSets and pods."""
        left: list[str] = []
        try:
            async with patience.timeout(120):
                while True:
                    with contextlib.suppress(JobSetPyError):
                        jobsets = (await self._client.list_page(JobSet, namespace)).items
                        pods = (await self._client.list_page(Pod, namespace)).items
                        left = [f"{type(one).__name__} {one.metadata.name}"
                                for one in (*jobsets, *pods)]  # fmt: skip
                        if not left:
                            return
                        for jobset in jobsets:
                            await self._delete(namespace, jobset.metadata.name)
                    await asyncio.sleep(1.0)
        except TimeoutError:
            self.problems.append(f"left behind in {namespace}: {', '.join(left)}")

    async def _repeat(
        self, step: Callable[[int], Any], pause_s: float, ending: asyncio.Event
    ) -> None:
        serial = 0
        while not ending.is_set():
            serial += 1
            with contextlib.suppress(JobSetPyError, TimeoutError):
                await step(serial)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), self._rand.uniform(0, 2 * pause_s))

    async def _hostile(self, serial: int) -> None:
        """Create a hostile JobSet, change it once, and delete it."""
        maker = self._rand.choice((*_MAKERS, hostile.many_replicated_jobs))
        body = maker(_FEWER.get(maker, hostile.SIZES[maker]))
        name = f"hostile-{serial}"
        body["metadata"] = {**body["metadata"], "name": name}
        for field in ("namespace", "uid", "resourceVersion", "creationTimestamp"):
            body["metadata"].pop(field, None)
        for item in body["spec"]["replicatedJobs"]:
            item["replicas"] = min(item["replicas"], 2)
        try:
            await self._client.create(JobSet, HOSTILE, body, timeout_s=patience.scaled(60))
        except InvalidError:
            self.done[f"refused {maker.__name__}"] += 1
            return
        self.done[f"created {maker.__name__}"] += 1
        try:
            await asyncio.sleep(self._rand.uniform(1, 10))
            change = {"metadata": {"labels": {"changed": "yes"}}}
            await self._client.merge_patch(JobSet, HOSTILE, name, change)
        finally:
            await self._delete(HOSTILE, name)

    async def _probe(self, serial: int) -> None:
        """Create a small JobSet; its Job must be created in time."""
        name = f"probe-{serial}"
        body = hostile.many_replicated_jobs(1)
        body["metadata"] = {"name": name}
        began, quiet = time.monotonic(), self._quiet()
        await self._client.create(JobSet, PROBE, body)
        took = 0.0
        while took < patience.scaled(120):
            took = time.monotonic() - began
            with contextlib.suppress(JobSetPyError):
                await self._client.get(Job, PROBE, f"{name}-r0-0")
                break
            await asyncio.sleep(0.05)
        if quiet and self._quiet():
            self.job_s.append(took)
            if took > patience.scaled(JOB_S):
                self.problems.append(f"{name} waited {took:.1f} s for its job")
        await self._delete(PROBE, name)

    async def _gangs(self, serial: int) -> None:
        """Create hopeless gangs, and an ordinary one that must be bound in time."""
        hopeless = self._rand.sample(_HOPELESS, 2)
        for at, spec in enumerate(hopeless):
            group, size = f"no-{serial}-{at}", 3 if "cpu" in spec else 1
            pods = [pod_body(f"{group}-{nth}", group=group, minimum=size, **spec)
                    for nth in range(size)]  # fmt: skip
            await create_all(self._client, pods, namespace=GANGS)
        self.done["hopeless gangs"] += len(hopeless)
        await asyncio.sleep(1.1)  # creation times are whole seconds
        group = f"yes-{serial}"
        began, quiet = time.monotonic(), self._quiet()
        names = [f"{group}-{at}" for at in range(4)]
        await create_all(
            self._client,
            [pod_body(name, group=group, minimum=len(names)) for name in names],
            namespace=GANGS,
        )
        took = 0.0
        while took < patience.scaled(120):
            took = time.monotonic() - began
            if await self._bound(names):
                break
            await asyncio.sleep(0.1)
        if quiet and self._quiet():
            self.bound_s.append(took)
            if took > patience.scaled(BOUND_S):
                self.problems.append(f"gang {group} waited {took:.1f} s for its nodes")
        await delete_all(self._client, group, namespace=GANGS)
        if serial % 4 == 0:
            await delete_all(self._client, namespace=GANGS)

    async def _bound(self, names: list[str]) -> bool:
        for name in names:
            try:
                pod = await self._client.get(Pod, GANGS, name)
            except JobSetPyError:
                return False
            if not pod.spec.node_name:
                return False
        return True

    async def _delete(self, namespace: str, name: str) -> None:
        """Delete a JobSet and wait for its end."""
        async with patience.timeout(120):
            while True:
                try:
                    await self._client.delete(JobSet, namespace, name, propagation="Background")
                except NotFoundError:
                    return
                except JobSetPyError:
                    pass
                await asyncio.sleep(0.3)

    def figures(self) -> dict[str, Any]:
        """Return counts, and the times of objects that must not wait, in seconds."""
        return {
            "done": dict(self.done),
            "job_s": _summary(self.job_s),
            "bound_s": _summary(self.bound_s),
        }


def _summary(values: list[float]) -> str:
    if not values:
        return "none"
    return f"{len(values)} times, median {statistics.median(values):.2f}, most {max(values):.2f} s"
