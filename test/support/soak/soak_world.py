"""World of a soak test: played kubelets and agents, and a view of every object of its JobSets.

The API server and the Job controller are real. Pods have no node: a played kubelet reports that they
run, fail or succeed, and pods that restart in place have the agent's own decision core.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs

from jobsetpy import aio
from jobsetpy.agent.protocol.barrier import Barrier, Lift, PatchEpoch, Restart
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, Node, Pod, Service
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.client import Client
from jobsetpy.errors import AlreadyExistsError, ConflictError, NotFoundError
from support import patience
from support.cluster import pod_status
from support.cluster.follow import following
from support.cluster.json_api import insist
from support.cluster.racks import kill

NODE = "soak"
"""Node of all bound pods; it exists only as an object, and its kubelet is played."""
LEAVING_CODES = (0, 0, 143)
"""Exit codes of programs that are stopped: most save their work and exit with 0."""
REPEATED_STEPS = 20
"""Steps of a worker since its last checkpoint."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
AT = "2026-01-01T00:00:00Z"
_OVER = {"Failed", "Succeeded"}


@attrs.define
class PlayedPod:
    """A pod, with the state of its kubelet and agent."""

    name: str
    uid: str
    jobset: str
    jobset_uid: str
    job: str
    attempt: int
    in_place: bool
    running: bool = False
    ended: bool = False
    bound: bool = False
    leaving: bool = False
    starts: int = 0
    lifted_at: float = 0.0
    barrier: Barrier = attrs.field(factory=Barrier)


@attrs.define
class _Story:
    """Numbers of a JobSet that never decrease."""

    name: str
    restarts: int = 0
    synced: int = 0
    deprecated: int = 0
    attempt: int = 0
    terminal: str = ""


class World:
    """A namespace with all its objects, and the played kubelets and agents.

    Args:
        client: reaches the API server directly.
        namespace: of all JobSets of the soak test.
        rand: for the times that kubelets take.
    """

    def __init__(self, client: Client, namespace: str, rand: random.Random) -> None:
        self.client = client
        self.namespace = namespace
        self.jobsets: dict[str, JobSet] = {}
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, PlayedPod] = {}
        self.others: set[tuple[str, str]] = set()
        self.violations: list[str] = []
        self.in_place: set[str] = set()
        self._rand = rand
        self._stories: dict[str, _Story] = {}
        self._news = patience.News()
        self._tasks: aio.Supervisor | None = None

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Watch and play within the block."""
        with contextlib.suppress(AlreadyExistsError):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            await self.client.create(Node, "", body)
        scope = {"namespace": self.namespace}
        async with (
            aio.supervise() as self._tasks,
            following(self.client, JobSet, self._see_jobset, **scope),
            following(self.client, Job, self._see_job, **scope),
            following(self.client, Pod, self._see_pod, **scope),
            following(self.client, Service, self._see_other, **scope),
            following(self.client, ConfigMap, self._see_other, **scope),
        ):
            yield

    async def until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        """Wait until a condition of the view holds.

        Raises:
            TimeoutError: it does not in time; the text has ``what``.
        """
        try:
            await self._news.until(condition, timeout_s)
        except TimeoutError:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain for {what}") from None

    # ---- the view ---------------------------------------------------------------------------

    def pods_of(self, jobset: str, *, running: bool = False) -> list[PlayedPod]:
        """Return pods of a JobSet that have not ended; with ``running`` only those that run."""
        return [
            pod
            for pod in self.pods.values()
            if pod.jobset == jobset and not pod.ended and (pod.running or not running)
        ]

    def left_of(self, jobset: str) -> list[str]:
        """Return names of all objects of a JobSet, for messages."""
        left = [f"jobset {name}" for name in self.jobsets if name == jobset]
        left += [
            f"job {job.metadata.name}"
            for job in self.jobs.values()
            if job.metadata.labels.get(keys.JOBSET_NAME) == jobset
        ]
        left += [f"pod {pod.name}" for pod in self.pods.values() if pod.jobset == jobset]
        return left + [f"{kind} {name}" for kind, name in sorted(self.others) if name == jobset]

    def _see_jobset(self, jobset: JobSet, gone: bool) -> None:
        name, uid = jobset.metadata.name, jobset.metadata.uid
        if gone:
            self.jobsets.pop(name, None)
            self._stories.pop(uid, None)
        else:
            self.jobsets[name] = jobset
            self._check(self._stories.setdefault(uid, _Story(name)), jobset)
            status = jobset.status
            for pod in self.pods.values():
                if pod.jobset_uid == uid and pod.barrier.epoch:
                    self._act(
                        pod, pod.barrier.observe(uid, status.synced_epoch, status.deprecated_epoch)
                    )
        self._news.set()

    def _check(self, story: _Story, jobset: JobSet) -> None:
        status = jobset.status
        problems = []
        if status.restarts < story.restarts:
            problems.append(f"restarts went back from {story.restarts} to {status.restarts}")
        if status.restarts_count_towards_max > status.restarts:
            problems.append(f"{status.restarts_count_towards_max} of {status.restarts} count")
        if status.synced_epoch < story.synced or status.deprecated_epoch < story.deprecated:
            problems.append(
                f"epochs went back from {story.synced}, {story.deprecated} to "
                f"{status.synced_epoch}, {status.deprecated_epoch}"
            )
        if status.deprecated_epoch > status.synced_epoch:
            problems.append(f"epochs are {status.synced_epoch}, {status.deprecated_epoch}")
        if story.terminal not in {"", status.terminal_state}:
            problems.append(f"{story.terminal} became {status.terminal_state!r}")
        self.violations += [f"{story.name}: {problem}" for problem in problems]
        story.restarts, story.terminal = status.restarts, status.terminal_state
        story.synced, story.deprecated = status.synced_epoch, status.deprecated_epoch

    def _see_job(self, job: Job, gone: bool) -> None:
        meta = job.metadata
        if gone:
            self.jobs.pop(meta.uid, None)
        else:
            if meta.uid not in self.jobs:
                self._check_new(job)
            self.jobs[meta.uid] = job
        self._news.set()

    def _check_new(self, job: Job) -> None:
        meta = job.metadata
        owner = meta.labels.get(keys.JOBSET_UID, "")
        story = self._stories.get(owner)
        attempt = int(meta.labels.get(keys.RESTART_ATTEMPT, 0))
        if story is None:
            return
        if attempt < story.attempt:
            self.violations.append(
                f"{meta.name}: made for attempt {attempt} after one for attempt {story.attempt}"
            )
        story.attempt = attempt

    def _see_other(self, obj: Any, gone: bool) -> None:
        name = obj.metadata.labels.get(keys.JOBSET_NAME) or obj.metadata.name
        change = self.others.discard if gone else self.others.add
        change((type(obj).__name__, name))
        self._news.set()

    # ---- kubelets and agents ----------------------------------------------------------------

    def _see_pod(self, pod: Pod, gone: bool) -> None:
        meta = pod.metadata
        if gone:
            played = self.pods.pop(meta.uid, None)
            if played is not None:
                played.ended = True
        elif meta.uid not in self.pods and keys.JOBSET_NAME in meta.labels:
            jobset = meta.labels[keys.JOBSET_NAME]
            played = self.pods[meta.uid] = PlayedPod(
                name=meta.name,
                uid=meta.uid,
                jobset=jobset,
                jobset_uid=meta.labels.get(keys.JOBSET_UID, ""),
                job=meta.labels.get(JOB_NAME_LABEL, ""),
                attempt=int(meta.labels.get(keys.RESTART_ATTEMPT, 0)),
                in_place=jobset in self.in_place,
                bound=bool(pod.spec.node_name),
            )
            self.start(self._join(played) if played.in_place else self._run(played))
        played = self.pods.get(meta.uid)
        if played is not None and meta.deletion_timestamp is not None:
            played.ended = True
            if played.bound and not played.leaving:
                played.leaving = True
                self.start(self._leave(played, over=pod.status.phase in _OVER))
        self._news.set()

    def start(self, coro: Any) -> None:
        """Run something in the background; it ends with ``playing``."""
        assert self._tasks is not None
        self._tasks.start(coro, name="played")

    async def _run(self, pod: PlayedPod) -> None:
        """Start the containers, some time after the pod was created."""
        await asyncio.sleep(self._rand.uniform(0.01, 0.2))
        pod.starts += 1
        state = {"running": {"startedAt": AT}}
        if await self._report(pod, "Running", state):
            pod.running = True
        self._news.set()

    async def _join(self, pod: PlayedPod) -> None:
        """Read the JobSet consistently, as a new agent does."""
        await asyncio.sleep(self._rand.uniform(0.01, 0.1))
        read = functools.partial(self.client.get, JobSet, self.namespace, pod.jobset)
        jobset = await insist(read, wanted=lambda: not pod.ended)
        if jobset is not None:
            status, uid = jobset.status, jobset.metadata.uid
            self._act(pod, pod.barrier.observe(uid, status.synced_epoch, status.deprecated_epoch))

    def _act(self, pod: PlayedPod, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case PatchEpoch(epoch):
                    self.start(self._store(pod, pod.barrier, epoch))
                case Lift():
                    pod.lifted_at = time.monotonic()
                    self.start(self._run(pod))
                case Restart():
                    self._restart(pod)

    def _restart(self, pod: PlayedPod) -> None:
        """Restart all containers of the pod in place, the agent first."""
        pod.running = False
        pod.barrier = Barrier(uid=pod.jobset_uid)
        self.start(self._join(pod))

    async def _store(self, pod: PlayedPod, barrier: Barrier, epoch: int) -> None:
        notes = {keys.EPOCH_ANNOTATION: str(epoch)}
        if pod.lifted_at:  # its worker has run before, ten steps per second after a checkpoint
            first, last = (int(10 * at) for at in (pod.lifted_at, time.monotonic()))
            notes[keys.FIRST_PROGRESS_ANNOTATION] = f"{max(0, first - REPEATED_STEPS)} 0.200"
            notes[keys.PROGRESS_ANNOTATION] = str(last)
        await self._write(pod, lambda: pod.barrier is barrier, {"metadata": {"annotations": notes}})

    async def fail(self, pod: PlayedPod, code: int = 1) -> None:
        """End the worker with an error, in place or for good."""
        ended = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": AT}}
        if not pod.in_place:
            pod.ended, pod.running = True, False
            await self._report(pod, "Failed", ended)
            return
        pod.running = False
        if self._rand.random() < 0.5:  # the kubelet may report it before the agent is back
            await self._report(pod, "Running", ended)
        if pod.barrier.lifted:  # otherwise the restart of the others has already reached it
            self._restart(pod)

    async def finish(self, pod: PlayedPod) -> None:
        """End the worker with success."""
        pod.ended, pod.running = True, False
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": AT}}
        await self._report(pod, "Succeeded", ended)

    async def _leave(self, pod: PlayedPod, *, over: bool) -> None:
        """Save the work of a pod that is being deleted, and end it, as program and kubelet do."""
        await asyncio.sleep(self._rand.uniform(0.2, 1.5))
        code = self._rand.choice(LEAVING_CODES)
        pod.running = False
        if not over:
            ended = {"terminated": {"exitCode": code, "reason": "Stopped", "finishedAt": AT}}
            await self._report(pod, "Failed" if code else "Succeeded", ended)
        deadline = time.monotonic() + patience.scaled(120)
        end = functools.partial(kill, self.client, self.namespace, pod.name)
        await insist(end, wanted=lambda: time.monotonic() < deadline)

    async def _report(self, pod: PlayedPod, phase: str, state: dict[str, Any]) -> bool:
        worker = pod_status.container(state, "worker", restarts=max(0, pod.starts - 1))
        conditions = [{"type": "Ready", "status": str("running" in state)}]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [worker]}
        return await self._write(pod, lambda: True, {"status": status}, subresource="status")

    async def _write(
        self, pod: PlayedPod, wanted: Callable[[], bool], body: dict[str, Any], **more: str
    ) -> bool:
        """Patch the pod, repeatedly while the API server is away; return whether it was patched."""
        body = {**body, "metadata": {"uid": pod.uid, **body.get("metadata", {})}}
        cls = Pod if more else ChildPod
        deadline = time.monotonic() + patience.scaled(120)

        def still() -> bool:
            there = self.pods.get(pod.uid) is pod
            return wanted() and there and time.monotonic() < deadline

        patch = functools.partial(self.client.merge_patch, cls, self.namespace, pod.name, body)
        refused = (NotFoundError, ConflictError)
        return await insist(patch, wanted=still, unless=refused, **more) is not None
