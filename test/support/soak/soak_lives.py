"""Random lives of JobSets for the soak test: each is created, changed, and ended.

Every step waits for its effect; an effect that does not come in time is reported as a stuck object.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import ApiError, InvalidError, JobSetPyError, NotFoundError, TransportError
from support import patience
from support.cluster import objects
from support.cluster.json_api import insist, send
from support.soak.soak_world import NODE, PlayedPod, World

STEP_S: Final = 90.0
"""Maximum time of a step, with a failover and an outage of the API server in it."""
PODS: Final = (2, 4)
_CONTAINER: Final = {"name": "worker", "image": "test.invalid/worker:1"}
_AGENT: Final = {
    "name": "agent",
    "image": "test.invalid/agent:1",
    "restartPolicy": "Always",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
    ],
}


def replicated_job(name: str, pods: int, *, replicas: int = 2, **fields: Any) -> dict[str, Any]:
    """Return a ReplicatedJob whose Jobs fail with their first pod."""
    pod = {"restartPolicy": "Never", "containers": [dict(_CONTAINER)]}
    job = {"completionMode": "Indexed", "backoffLimit": 0}
    return {**objects.replicated_job(pod, pods, name=name, replicas=replicas, **job), **fields}


def jobset(name: str, *jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a JobSet with practically unlimited restarts unless ``spec`` says otherwise."""
    policy = {"maxRestarts": 100_000, **spec.pop("failurePolicy", {})}
    # Its failures are intended and frequent: restarts must not be delayed.
    marks = {keys.RESTART_BACKOFF_ANNOTATION: "0"}
    return objects.jobset(name, *jobs, annotations=marks, failurePolicy=policy, **spec)


def recreate(name: str, pods: int) -> dict[str, Any]:
    """All Jobs are recreated when one fails."""
    return jobset(name, replicated_job("w", pods))


def single(name: str, pods: int) -> dict[str, Any]:
    """Only the Job that failed is recreated."""
    rules = [{"name": "one", "action": "RestartJob"}]
    return jobset(name, replicated_job("w", pods), failurePolicy={"rules": rules})


def in_order(name: str, pods: int) -> dict[str, Any]:
    """A driver that starts before its workers."""
    order = {"startupPolicyOrder": "InOrder"}
    jobs = replicated_job("d", 1, replicas=1), replicated_job("w", pods)
    return jobset(name, *jobs, startupPolicy=order)


def depends(name: str, pods: int) -> dict[str, Any]:
    """Workers that wait until a store is ready."""
    after = [{"name": "s", "status": "Ready"}]
    jobs = replicated_job("s", 1, replicas=1), replicated_job("w", pods, dependsOn=after)
    return jobset(name, *jobs)


def short(name: str, pods: int) -> dict[str, Any]:
    """A JobSet that is deleted once it has finished."""
    return jobset(name, replicated_job("w", pods), ttlSecondsAfterFinished=1)


def in_place(name: str, pods: int) -> dict[str, Any]:
    """All pods restart in place."""
    job = replicated_job("w", pods)
    spec = job["template"]["spec"]
    spec |= {"backoffLimit": keys.INT32_MAX, "podReplacementPolicy": "Failed"}
    # On a node, so that a pod that is being deleted has time to save its work.
    spec["template"]["spec"] |= {"initContainers": [dict(_AGENT)], "nodeName": NODE}
    return jobset(name, job, failurePolicy={"restartStrategy": "InPlaceRestart"})


KINDS: Final[dict[str, Callable[[str, int], dict[str, Any]]]] = {
    "recreate": recreate,
    "in-place": in_place,
    "single": single,
    "in-order": in_order,
    "depends": depends,
    "short": short,
}


class Lives:
    """All lives of a soak test.

    Args:
        world: of the JobSets.
        rand: source of all decisions; the same seed makes the same ones.
        pace_s: mean pause between two steps of a life.
    """

    def __init__(self, world: World, rand: random.Random, *, pace_s: float) -> None:
        self.world = world
        self.done: Counter[str] = Counter()
        self.stuck: list[str] = []
        self.refused = 0
        self.lived: Counter[str] = Counter()
        self._rand = rand
        self._pace_s = pace_s
        self._serial = 0
        self._path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.namespace}/jobsets"

    async def go_on(self, ending: asyncio.Event) -> None:
        """Run one life after the other until ``ending``; the last one is completed."""
        while not ending.is_set():
            self._serial += 1
            kind = self._rand.choice(sorted(KINDS))
            await self._live(Life(self, f"{kind}-{self._serial}", kind), ending)
            self.lived[kind] += 1

    async def _live(self, life: Life, ending: asyncio.Event) -> None:
        try:
            await life.begin()
            for _ in range(self._rand.randint(1, 6)):
                if ending.is_set():
                    break
                step = self._rand.choice(life.steps)
                await step()
                self.done[step.__name__] += 1
                await asyncio.sleep(self._rand.expovariate(1 / self._pace_s))
            await life.end()
        except TimeoutError as problem:
            self.stuck.append(f"{life.name}: {problem}; left: {self.world.left_of(life.name)}")
            await self.delete(life.name)

    async def request(self, method: str, name: str, body: Any = None) -> dict[str, Any]:
        """Send a request for a JobSet until it is answered: webhooks and API server may be away."""
        path = f"{self._path}/{name}" if name else self._path
        async with patience.timeout(STEP_S):
            while True:
                try:
                    return await send(self.world.client, method, path, body)
                except (InvalidError, NotFoundError):
                    raise
                except (ApiError, TransportError) as error:
                    if isinstance(error, ApiError) and error.status == 409:
                        raise
                    self.refused += "webhook" in str(error)
                    await asyncio.sleep(0.3)

    async def delete(self, name: str) -> None:
        """Request its deletion, unless it has been deleted."""
        try:
            await self.request(
                "DELETE",
                name,
                {"propagationPolicy": self._rand.choice(["Foreground", "Background"])},
            )
        except (JobSetPyError, TimeoutError):
            return


class Life:
    """A JobSet.

    Args:
        lives: of which it is one.
        name: of the JobSet.
        kind: key of ``KINDS``.
    """

    def __init__(self, lives: Lives, name: str, kind: str) -> None:
        self._lives = lives
        self._world = lives.world
        self._rand = lives._rand
        self.name = name
        self.kind = kind
        self._pods = self._rand.randint(*PODS)
        self.steps: list[Callable[[], Awaitable[None]]] = [self.suspend]
        match kind:
            case "in-place":
                self.steps += [self.restart_in_place] * 3 + [self.drain] * 3
                self.steps += [self.resize, self.lose_a_pod]
            case "single":
                self.steps += [self.restart_one_job] * 3
            case "short":
                pass
            case _:
                self.steps += [self.restart_all] * 3

    @property
    def _jobset(self) -> JobSet:
        """The JobSet as it was last seen.

        Raises:
            TimeoutError: it was deleted without a request.
        """
        found = self._world.jobsets.get(self.name)
        if found is None:
            raise TimeoutError("it does not exist any longer")
        return found

    @property
    def _expected(self) -> int:
        return 2 * self._pods + (self.kind in {"in-order", "depends"})

    async def begin(self) -> None:
        """Create the JobSet and wait for running pods."""
        if self.kind == "in-place":
            self._world.in_place.add(self.name)
        try:
            await self._lives.request("POST", "", KINDS[self.kind](self.name, self._pods))
        except ApiError as error:
            if error.status != 409:  # a POST without an answer may have been executed
                raise
        await self._world.until(
            lambda: self.name in self._world.jobsets, STEP_S, "the JobSet to be seen"
        )
        if self._rand.random() < 0.9:  # otherwise the next step begins while it starts
            await self._running()

    async def end(self) -> None:
        """Finish or delete the JobSet at some moment; then no object of it may be left."""
        if self.kind == "short" or self._rand.random() < 0.3:
            await self._running()
            await self._finish()
        if self.kind != "short":
            await self._lives.delete(self.name)
        await self._world.until(
            lambda: not self._world.left_of(self.name), STEP_S, "all its objects to be deleted"
        )
        self._world.in_place.discard(self.name)

    async def _finish(self) -> None:
        """Let all workers succeed; where Jobs start one after the other, they end so, too."""

        def over() -> bool:
            found = self._world.jobsets.get(self.name)
            return found is None or found.status.terminal_state == keys.COMPLETED_CONDITION

        while not over():
            for pod in self._world.pods_of(self.name, running=True):
                await self._world.finish(pod)
            await self._world.until(
                lambda: over() or self._world.pods_of(self.name, running=True),
                STEP_S,
                "its completion",
            )
        self._lives.done["finish"] += 1

    # ---- steps ------------------------------------------------------------------------------

    async def restart_all(self) -> None:
        """Fail one or two pods; all Jobs are recreated, once."""
        await self._running()
        before = self._jobset.status.restarts
        for pod in self._some(self._rand.choice([1, 1, 2])):
            await self._world.fail(pod)
        await self._world.until(
            lambda: self._jobset.status.restarts > before, STEP_S, "a restart to be counted"
        )
        await self._running(attempt=before + 1)
        self._expect(self._jobset.status.restarts == before + 1, "one failure counted twice")

    async def restart_one_job(self) -> None:
        """Fail a pod; only its Job is recreated."""
        await self._running()
        (pod,) = self._some(1)
        job = pod.job
        others = {p.uid for p in self._world.pods_of(self.name) if p.job != job}
        await self._world.fail(pod)
        await self._world.until(
            lambda: all(p.job != job or p.uid != pod.uid for p in self._world.pods.values()),
            STEP_S,
            "the failed Job to go",
        )
        await self._running()
        now = {p.uid for p in self._world.pods_of(self.name) if p.job != job}
        self._expect(now == others, "a Job that had not failed was recreated")

    async def restart_in_place(self) -> None:
        """Fail one or two workers; all restart in their pods."""
        await self._running()
        before = self._jobset.status.synced_epoch
        pods = {pod.uid for pod in self._world.pods_of(self.name)}
        for pod in self._some(self._rand.choice([1, 1, 2])):
            await self._world.fail(pod, 7)
        await self._world.until(
            lambda: self._jobset.status.synced_epoch > before, STEP_S, "the next epoch"
        )
        await self._running()
        self._expect(
            {pod.uid for pod in self._world.pods_of(self.name)} == pods, "pods were replaced"
        )

    async def lose_a_pod(self) -> None:
        """Delete a pod; its successor and the others reach the next epoch."""
        await self._running()
        (pod,) = self._some(1)
        await self._delete_pod(pod)
        await self._world.until(lambda: pod.ended, STEP_S, "a deleted pod to go")
        await self._running()

    async def drain(self) -> None:
        """Evict or delete up to three pods; their programs save their work and exit with 0.

        No rank is lost: all pods run again, and no Job counts an index as complete.
        """
        await self._running()
        leaving = self._some(self._rand.choice([1, 1, 2, 3]))
        for pod in leaving:
            await self._delete_pod(pod, evicted=self._rand.random() < 0.5)
        await self._world.until(
            lambda: all(pod.uid not in self._world.pods for pod in leaving), STEP_S, "drained pods"
        )
        await self._running()
        counted = {
            job.metadata.name: job.status.completed_indexes
            for job in self._world.jobs.values()
            if job.metadata.labels.get(keys.JOBSET_NAME) == self.name
            and job.status.completed_indexes
        }
        self._expect(not counted, f"indexes were counted as complete: {counted}")

    async def suspend(self) -> None:
        """Suspend until no pod is left, then resume; the JobSet may not run yet."""
        await self._lives.request("PATCH", self.name, {"spec": {"suspend": True}})
        await self._world.until(
            lambda: not self._world.pods_of(self.name),
            STEP_S,
            "its pods to be deleted by the suspension",
        )
        await self._lives.request("PATCH", self.name, {"spec": {"suspend": False}})
        await self._running()

    async def resize(self) -> None:
        """Change the number of pods of each Job."""
        await self._running()
        self._pods = self._rand.choice([n for n in range(1, 6) if n != self._pods])
        stored = await self._lives.request("GET", self.name)
        jobs = stored["spec"]["replicatedJobs"]
        jobs[0]["template"]["spec"] |= {"parallelism": self._pods, "completions": self._pods}
        await self._lives.request("PATCH", self.name, {"spec": {"replicatedJobs": jobs}})
        await self._world.until(
            lambda: len(self._world.pods_of(self.name)) == self._expected, STEP_S, "its new size"
        )
        await self._running()

    # ---- helpers ----------------------------------------------------------------------------

    async def _running(self, attempt: int = 0) -> None:
        def all_run() -> bool:
            pods = self._world.pods_of(self.name)
            run = all(pod.running and pod.attempt >= attempt for pod in pods)
            return run and len(pods) == self._expected

        def what() -> str:
            epochs = sorted(pod.barrier.epoch for pod in self._world.pods_of(self.name))
            status = self._jobset.status
            return (
                f"all {self._expected} pods to run (attempt {attempt}); running: "
                f"{sum(p.running for p in self._world.pods_of(self.name))} of {len(epochs)}, "
                f"epochs {epochs}, status {status.synced_epoch}, {status.deprecated_epoch}"
            )

        try:
            await self._world.until(all_run, STEP_S, "")
        except TimeoutError:
            raise TimeoutError(f"waited {STEP_S:.0f} s in vain for {what()}") from None

    def _some(self, count: int) -> list[PlayedPod]:
        pods = sorted(self._world.pods_of(self.name, running=True), key=lambda pod: pod.name)
        return self._rand.sample(pods, min(count, len(pods)))

    async def _delete_pod(self, pod: PlayedPod, *, evicted: bool = False) -> None:
        path = f"/api/v1/namespaces/{self._world.namespace}/pods/{pod.name}"
        request: tuple[Any, ...] = ("DELETE", path)
        if evicted:
            meta = {"name": pod.name, "namespace": self._world.namespace}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            request = ("POST", f"{path}/eviction", eviction)
        async with patience.timeout(STEP_S):
            await insist(functools.partial(send, self._world.client, *request))

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._world.violations.append(f"{self.name}: {otherwise}")
