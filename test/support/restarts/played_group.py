"""A restart group whose kubelets and agents are simulated, on a real API server and Job controller.

Pods are bound by their template to a node that exists as an object only. Each pod runs as soon as it
exists, its agent reports the epoch that it has to join, and a pod that is deleted ends with an exit
code of the test's choice after a time of the test's choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from hack.cluster import Cluster
from jobsetpy import aio
from jobsetpy.agent.protocol.wire_types import InPlaceRestart
from jobsetpy.agent.supervisor.ranks import Place
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.jobset import ChildPod, JobSet, JobSetStatus
from jobsetpy.api.meta import version_number
from jobsetpy.api.structs import TakenJob, TakenSeat
from jobsetpy.client import Client
from jobsetpy.errors import AlreadyExistsError, ApiError, NotFoundError
from jobsetpy.reconcilers.rules.membership import parse_count
from support import patience
from support.cluster import pod_status
from support.cluster.follow import following
from support.cluster.json_api import StoredJobSet
from support.cluster.manager_process import ManagerProcess, own_manager
from support.cluster.objects import in_place_jobset
from support.cluster.racks import kill

NODE = "played-group"
ENDED = {"Failed", "Succeeded"}


@contextlib.asynccontextmanager
async def managed_group(
    cluster: Cluster, client: Client, namespace: str, name: str, folder: Path, *flags: str
) -> AsyncIterator[tuple[PlayedGroup, ManagerProcess]]:
    """Run a manager with its own account and play the group of a JobSet within the block."""
    group = PlayedGroup(client, namespace, name)
    async with (
        group.deleted(),
        own_manager(client, cluster.kubeconfig, folder, *flags) as manager,
        group.playing(),
    ):
        yield group, manager


class PlayedGroup(StoredJobSet):
    """Pods of one JobSet.

    Attributes:
        code: exit code of a worker whose pod is deleted.
        leave_s: time from the deletion of a pod to the end of its worker, in seconds.
        draw: returns both for each pod that leaves, if set.
        may_end: event before which no worker of a deleted pod ends.
        pods: latest state of each pod that exists, by name.
        most: highest number of pods of each index that ran at the same time.
        start_s: time from the creation of a pod to the start of its agent, in seconds.
        ready_at: monotonic time at which each pod began to run, by name.
        reused: names that a second pod has had.
        seats: number of seats of each Job, in a JobSet with spares.
        working_jobs: number of Jobs that have seats; 0 if all have.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        super().__init__(client, namespace, name)
        self.code = 0
        self.seats = self.working_jobs = 0
        self.leave_s = 0.5
        self.start_s = 0.0
        self.draw: Callable[[], tuple[int, float]] | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.pods: dict[str, ChildPod] = {}
        self.most: Counter[tuple[str, str]] = Counter()
        self._lifts: list[tuple[int, int]] = []  # version of the JobSet, epoch
        self._states: dict[str, list[tuple[int, ChildPod | None]]] = {}  # by version
        self._latest = 0
        self.ready_at: dict[str, float] = {}
        self.reused: set[str] = set()
        self._uids: dict[str, str] = {}
        self._running: dict[str, tuple[str, str]] = {}
        self._status = JobSetStatus()
        self._reported: dict[str, int] = {}
        self._ending: set[str] = set()
        self._tasks: aio.Supervisor | None = None

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[PlayedGroup]:
        """Simulate kubelets and agents within the block."""
        with contextlib.suppress(AlreadyExistsError):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            await self.client.create(Node, "", body)
        async with aio.supervise() as tasks:
            self._tasks = tasks
            of = {"namespace": self.namespace}
            async with (
                following(self.client, JobSet, self._see, **of),
                following(self.client, ChildPod, self._note, **of),
            ):
                yield self

    async def create(self, **settings: Any) -> None:
        """Create the JobSet, by the settings of ``in_place_jobset``.

        Further ones are ``job``, fields of its Jobs, ``annotations``, and ``spec``, fields of its
        spec.
        """
        job, annotations = settings.pop("job", {}), settings.pop("annotations", {})
        spec_fields = settings.pop("spec", {})
        body = in_place_jobset(self.name, **settings)
        body["spec"].update(spec_fields)
        body["metadata"]["annotations"].update(annotations)
        for item in body["spec"]["replicatedJobs"]:
            spec = item["template"]["spec"]
            spec.update(job)
            spec["template"]["spec"]["nodeName"] = NODE
        await self.client.create(JobSet, self.namespace, body)

    async def job(self) -> Job:
        """Return the first of its Jobs."""
        return (await self.client.list_page(Job, self.namespace)).items[0]

    async def at(self, epoch: int, count: int, timeout_s: float = 60.0) -> JobSetStatus:
        """Wait until the barrier of ``epoch`` has lifted, and check that ``count`` pods reported it."""

        def lifted(status: JobSetStatus) -> JobSetStatus:
            assert status.synced_epoch >= epoch, (status, self.states())
            return status

        status = await self.reaches(lifted, timeout_s)
        assert status.synced_epoch == epoch, self.states()

        def reported() -> bool:
            assert len(self.there(epoch)) == count, self.states()
            return True

        await patience.eventually(reported, 10)  # the watch of pods may be behind
        return status

    async def complete(self, count: int, timeout_s: float = 60.0) -> int:
        """Wait until ``count`` pods are at one epoch, no other pod runs, and workers may run.

        Pods that have ended may exist.

        Returns:
            The epoch.
        """
        deadline = time.monotonic() + patience.scaled(timeout_s)
        while True:
            epoch, old = self._status.synced_epoch, self._status.deprecated_epoch
            left = [pod for pod in self.pods.values() if pod.status.phase not in ENDED]
            if epoch > old and len(left) == count == len(self.there(epoch)):
                return epoch
            assert time.monotonic() < deadline, f"epochs {epoch}, {old}: {self.states()}"
            await asyncio.sleep(0.02)

    @property
    def epoch(self) -> int:
        """The synced epoch, as last observed."""
        return self._status.synced_epoch

    def there(self, epoch: int) -> list[str]:
        """Return pods that have reported an epoch and are not being deleted."""
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod.live and pod.metadata.annotations.epoch == str(epoch)
        )

    @property
    def together(self) -> list[int]:
        """Epochs whose barrier lifted while an index had two pods at that epoch."""
        return self._lifted_over_two(joined=True)

    @property
    def doubled(self) -> list[int]:
        """Epochs whose barrier lifted while an index had two pods, at any epoch."""
        return self._lifted_over_two(joined=False)

    def _lifted_over_two(self, *, joined: bool) -> list[int]:
        """Compare by version: pods and the JobSet are watched by two requests, in no order."""
        found = []
        for lifted, epoch in self._lifts:
            indexes: Counter[tuple[str, str | None]] = Counter()
            for states in self._states.values():
                before = [pod for version, pod in states if version < lifted]
                pod = before[-1] if before else None
                if pod is not None and pod.live:
                    meta = pod.metadata
                    if not joined or meta.annotations.epoch == str(epoch):
                        indexes[meta.labels.job_index, meta.annotations.completion_index] += 1
            found += [epoch for count in indexes.values() if count > 1]
        return found

    def states(self) -> dict[str, tuple[Any, ...]]:
        """Return phase, epoch, finalizers and deletion of each pod, for messages."""
        return {
            name: (pod.status.phase, pod.metadata.annotations.epoch, pod.metadata.finalizers,
                   pod.metadata.deletion_timestamp is not None)
            for name, pod in self.pods.items()
        }  # fmt: skip

    async def delete(self, name: str, grace_s: int | None = None) -> float:
        """Delete a pod, as a drain does, and return the monotonic time."""
        at = time.monotonic()
        if grace_s == 0:
            await kill(self.client, self.namespace, name)
        else:
            await self.client.delete(Pod, self.namespace, name)
        return at

    async def fail(self, name: str, code: int = 137) -> float:
        """Let a pod fail, as when memory runs out, or succeed, and return the monotonic time."""
        at = time.monotonic()
        await self._put(name, pod_status.ended(code, "worker", at=pod_status.now()))
        return at

    async def end_by_kubelet(self, name: str) -> None:
        """End a pod whose program saves and exits with 0, as for node pressure: nothing is deleted."""
        reason = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        status = pod_status.ended(0, "worker", at=pod_status.now())
        await self._put(name, status | {"conditions": [*status.get("conditions", []), reason]})

    async def replacement(self, known: set[str], at: float, timeout_s: float = 60.0) -> float:
        """Wait until a pod runs that is not in ``known``, and return the seconds since ``at``."""
        deadline = time.monotonic() + patience.scaled(timeout_s)
        while not (
            new := [
                ready for name, ready in self.ready_at.items() if name not in known or ready > at
            ]
        ):
            assert time.monotonic() < deadline, f"no new pod: {self.states()}"
            await asyncio.sleep(0.02)
        return min(new) - at

    # ---- events ----------------------------------------------------------------------------------

    def _see(self, jobset: JobSet, gone: bool) -> None:
        if jobset.metadata.name != self.name or gone:
            return
        before, self._status = self._status.synced_epoch, jobset.status
        if self.epoch > before:
            self._lifts.append((version_number(jobset.metadata.resource_version), self.epoch))
        for pod in self.pods.values():
            self._join(pod)

    def _note(self, pod: ChildPod, gone: bool) -> None:
        meta = pod.metadata
        if meta.labels.jobset_name != self.name:
            return
        assert self._tasks is not None
        self._latest = max(self._latest, version_number(meta.resource_version))
        states = self._states.setdefault(meta.name, [])
        states.append((self._latest, None if gone else pod))
        if gone:
            self.pods.pop(meta.name, None)
            self._reported.pop(meta.name, None)
            if meta.name not in self._ending:
                self._running.pop(meta.name, None)
            return
        new = meta.name not in self.pods
        if self._uids.setdefault(meta.name, meta.uid) != meta.uid:
            self.reused.add(meta.name)
        begins = meta.deletion_timestamp is not None and (
            new or self.pods[meta.name].metadata.deletion_timestamp is None
        )
        self.pods[meta.name] = pod
        if pod.status.phase in ENDED:
            self._running.pop(meta.name, None)
        elif new:
            index = (meta.labels.job_index, meta.annotations.completion_index or "")
            self._running[meta.name] = index
            now = Counter(self._running.values())[index]
            self.most[index] = max(self.most[index], now)
            if meta.deletion_timestamp is None:
                self._tasks.start(self._run(pod), name=f"start of {meta.name}")
        if begins:
            self._tasks.start(self._leave(pod), name=f"end of {meta.name}")
        self._join(pod)

    def _join(self, pod: ChildPod) -> None:
        """Report the next epoch, as the pod's agent would."""
        meta = pod.metadata
        epoch = self._reported.get(meta.name, 0)
        lowest = max(self._status.synced_epoch, self._status.deprecated_epoch) + 1
        behind = not epoch or epoch <= self._status.deprecated_epoch
        parked = 0 < epoch <= self._status.synced_epoch and not self.seat(pod)
        behind = behind or parked
        if not behind or meta.deletion_timestamp is not None or pod.status.phase != "Running":
            return
        self._reported[meta.name] = lowest
        assert self._tasks is not None
        state = None if self.seat(pod) else "ready"
        self._tasks.start(self._report(meta.name, lowest, state), name=f"report of {meta.name}")

    def seat(self, pod: ChildPod) -> str:
        """Return the seat of a pod, by Job and index, as its agent computes it; "" if it is parked."""
        meta, record = pod.metadata, self._status.in_place_restart
        if not meta.annotations.spares:
            return "its own"
        job = parse_count(meta.labels.job_index) or 0
        index = parse_count(meta.annotations.completion_index) or 0
        place = Place(
            uid=meta.uid,
            job=f"{self.name}-w-{job}",
            index=index,
            seats=self.seats,
            job_index=job,
            jobs=self.working_jobs,
        )
        taken, moved = ((), ()) if record is None else (record.taken_seats, record.taken_jobs)
        found = place.seat(
            InPlaceRestart(
                tuple(TakenSeat(one.job, one.seat, one.pod_uid) for one in taken),
                tuple(TakenJob(one.job, one.holder) for one in moved),
            )
        )
        return "" if found is None else str(found)

    def seated(self) -> dict[str, str]:
        """Return the names of pods at the synced epoch that are not being deleted, by their seat."""
        found = {}
        for name in self.there(self.epoch):
            seat = self.seat(self.pods[name])
            if seat:
                assert seat not in found, (seat, self.states())
                found[seat] = name
        return found

    async def _report(self, name: str, epoch: int, state: str | None = None) -> None:
        notes = {keys.EPOCH_ANNOTATION: str(epoch), keys.AGENT_STATE_ANNOTATION: state}
        body = {"metadata": {"annotations": notes}}
        with contextlib.suppress(ApiError):
            await self.client.merge_patch(ChildPod, self.namespace, name, body)

    async def _run(self, pod: ChildPod) -> None:
        await asyncio.sleep(self.start_s)
        await self._put(pod.metadata.name, pod_status.running("worker"))
        self.ready_at[pod.metadata.name] = time.monotonic()

    async def _leave(self, pod: ChildPod) -> None:
        name = pod.metadata.name
        code, seconds = (self.code, self.leave_s) if self.draw is None else self.draw()
        self._ending.add(name)
        await asyncio.sleep(seconds)
        await self.may_end.wait()
        self._ending.discard(name)
        self._running.pop(name, None)
        if pod.status.phase not in ENDED:
            await self._put(name, pod_status.ended(code, "worker", at=pod_status.now()))
        with contextlib.suppress(NotFoundError):
            await kill(self.client, self.namespace, name)

    async def _put(self, name: str, status: dict[str, Any]) -> None:
        with contextlib.suppress(ApiError):  # the pod may be gone
            await self.client.merge_patch(
                Pod, self.namespace, name, {"status": status}, subresource="status"
            )
