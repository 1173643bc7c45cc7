"""One JobSet on an API server without a Job controller, which the test plays.

Conditions and counters are read from the API server, never from the manager's caches. To show that
something does *not* happen, :meth:`Scenario.settled` waits until the manager has seen every object
in its current state and has nothing left to do, which is both quicker and stricter than a sleep.
"""

import itertools

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import PersistentVolumeClaim, Service
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import JobSetBuilder, make_jobset
from support.cluster.json_api import StoredJobSet
from support.cluster.pod_status import now
from support.patience import eventually
from support.requests_log import Requests

NAME = "test-js"
A0 = "test-js-replicated-job-a-0"
B0, B1, B2 = (f"test-js-replicated-job-b-{index}" for index in range(3))
ALL = [A0, B0, B1, B2]
RA, RB = "replicated-job-a", "replicated-job-b"

SOON_S = 1.0
"""Longer than the manager delays a write of counters."""

_MARKS = itertools.count()


def bare_jobset(name: str = NAME) -> JobSetBuilder:
    """Return a JobSet without ReplicatedJobs, with the defaults of admission."""
    jobset = make_jobset(name).success_policy("All").startup_policy("AnyOrder").suspend(on=False)
    return jobset.spec(network={"enableDNSHostnames": True, "publishNotReadyAddresses": True})


def standard_jobset(name: str = NAME) -> JobSetBuilder:
    """Return one with a Job of replicated-job-a and three of replicated-job-b."""
    return bare_jobset(name).replicated_job(RA).replicated_job(RB, replicas=3)


class Writes(Requests):
    """Number of the manager's writes by verb and resource, without events."""

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """Count one request."""
        if verb not in {"get", "list", "watch"} and resource != "events":
            super().on_response(verb, resource, status, seconds)


class Manager:
    """The manager under test, as far as tests need to inspect it."""

    def __init__(self, manager, controllers, writes: Writes) -> None:
        self.writes = writes
        self.jobsets = manager.informer(JobSet).store
        self.jobs = manager.informer(Job, label_selector=keys.JOBSET_NAME).store
        self.services = manager.informer(Service).store
        self._clock = manager.clock
        self.queues = [controller.queue for controller in controllers]

    @property
    def idle(self) -> bool:
        """True if no key is queued, in process, or due soon.

        Checks whether an own write was seen, and endless retries, are due late.
        """
        soon = self._clock.monotonic() + SOON_S
        return not any(
            len(queue) or queue.working_seconds() or (queue._delayed.next_due() or soon) < soon
            for queue in self.queues
        )


class Scenario(StoredJobSet):
    """A namespace with one JobSet, ``test-js`` unless named otherwise."""

    def __init__(self, client, manager: Manager, namespace: str) -> None:
        super().__init__(client, namespace, NAME)
        self.manager = manager

    # -- objects ------------------------------------------------------------------------------

    async def create(self, jobset: JobSetBuilder | dict) -> dict:
        """Create a JobSet; return it as stored."""
        body = jobset.build() if isinstance(jobset, JobSetBuilder) else jobset
        body["metadata"]["namespace"] = self.namespace
        stored = await self.client.create(JobSet, self.namespace, body)
        return await self.read(JobSet, stored.metadata.name)

    async def started(self, jobset: JobSetBuilder | None = None) -> None:
        """Create a JobSet, by default the standard one, and wait for its four Jobs."""
        await self.create(jobset or standard_jobset())
        await self.until_jobs(*ALL)

    async def suspend(self, *, on: bool) -> None:
        """Suspend or resume the JobSet."""
        await self.change({"spec": {"suspend": on}})

    async def replace_templates(self, edit) -> None:
        """Let ``edit`` change each ReplicatedJob of the spec, and store the spec."""
        jobset = await self.read(JobSet, NAME)
        for item in jobset["spec"]["replicatedJobs"]:
            edit(item)
        await self.change({"spec": {"replicatedJobs": jobset["spec"]["replicatedJobs"]}})

    # -- actions of the Job controller and the garbage collector ------------------------------

    async def _job_status(self, name: str, status: dict) -> None:
        body = {"status": status}
        await self.client.merge_patch(Job, self.namespace, name, body, subresource="status")

    async def complete(self, *names: str) -> None:
        """Let Jobs succeed."""
        for name in names:
            job = await self.read(Job, name)
            completions = job["spec"]["completions"]
            indexes = "0" if completions == 1 else f"0-{completions - 1}"
            await self._job_status(
                name,
                {
                    "startTime": job["status"].get("startTime") or now(),
                    "completionTime": now(),
                    "active": 0,
                    "ready": 0,
                    "succeeded": completions,
                    "completedIndexes": indexes,
                    "conditions": [
                        _condition("SuccessCriteriaMet", "CompletionsReached"),
                        _condition("Complete", "CompletionsReached"),
                    ],
                },
            )

    async def fail(
        self, name: str, reason: str = "BackoffLimitExceeded", message: str = "failed by the test"
    ) -> None:
        """Let a Job fail."""
        job = await self.read(Job, name)
        await self._job_status(
            name,
            {
                "startTime": job["status"].get("startTime") or now(),
                "active": 0,
                "ready": 0,
                "failed": 1,
                "conditions": [
                    _condition("FailureTarget", reason, message),
                    _condition("Failed", reason, message),
                ],
            },
        )

    async def activate(self, *names: str, ready: bool = False) -> None:
        """Let the pod of each Job run, ready or not."""
        for name in names:
            since = (await self.read(Job, name))["status"].get("startTime") or now()
            await self._job_status(name, {"startTime": since, "active": 1, "ready": int(ready)})

    async def ready(self, *names: str) -> None:
        """Let the pod of each Job run and be ready."""
        await self.activate(*names, ready=True)

    async def collect(self, *names: str) -> None:
        """Finish the foreground deletion of Jobs, by default of all that are being deleted."""
        for name, job in (await self.read_all(Job)).items():
            if "deletionTimestamp" in job["metadata"] and (not names or name in names):
                assert job["metadata"]["finalizers"] == ["foregroundDeletion"]
                body = {"metadata": {"finalizers": None, "uid": job["metadata"]["uid"]}}
                await self.client.merge_patch(Job, self.namespace, name, body)

    async def restarted(self, attempt: int) -> None:
        """Play a restart of all Jobs: all four are recreated with ``attempt``."""
        await self.until_attempts(dict.fromkeys(ALL, attempt - 1), terminating=set(ALL))
        await self.collect()
        await self.until_attempts(dict.fromkeys(ALL, attempt))

    # -- the stored objects -------------------------------------------------------------------

    async def own_restarts(self) -> dict[str, dict[str, list[int]]]:
        """Return the stored restarts of single Jobs."""
        names = ("jobRestarts", "jobRestartsCountTowardsMax")
        stored = (await self.status()).get("replicatedJobsStatus", ())
        return {
            item["name"]: own
            for item in stored
            if (own := {name: item[name] for name in names if name in item})
        }

    async def counters(self, name: str = NAME) -> list[tuple[str, dict[str, int]]]:
        """Return name and stored counters of each ReplicatedJob, without zeros."""
        out = []
        for item in (await self.status(name)).get("replicatedJobsStatus", ()):
            numbers = ("ready", "succeeded", "failed", "active", "suspended")
            out.append((item["name"], {key: item[key] for key in numbers if item[key]}))
        return out

    async def job_names(self) -> list[str]:
        """Return the names of the Jobs with the JobSet's label."""
        jobs = await self.read_all(Job)
        return sorted(
            name
            for name, job in jobs.items()
            if job["metadata"].get("labels", {}).get(keys.JOBSET_NAME)
        )

    async def suspended_jobs(self) -> list[str]:
        """Return the names of the suspended Jobs."""
        jobs = await self.read_all(Job)
        return sorted(name for name, job in jobs.items() if job["spec"].get("suspend") is True)

    async def attempts(self) -> tuple[dict[str, int], set[str]]:
        """Return the attempt of each Job, and the Jobs that are being deleted."""
        jobs = await self.read_all(Job)
        attempts = {
            name: int(job["metadata"]["labels"][keys.RESTART_ATTEMPT]) for name, job in jobs.items()
        }
        gone = {name for name, job in jobs.items() if "deletionTimestamp" in job["metadata"]}
        return attempts, gone

    async def services(self) -> list[str]:
        """Return the names of the Services."""
        return sorted(await self.read_all(Service))

    async def claims(self) -> list[str]:
        """Return the names of the volume claims."""
        return sorted(await self.read_all(PersistentVolumeClaim))

    async def events(self, reason: str) -> list[dict]:
        """Return the events with a reason."""
        return [e for e in (await self.read_all(Event)).values() if e["reason"] == reason]

    async def is_active(self) -> bool:
        """Return whether the JobSet has neither ended nor is suspended."""
        return not {"Failed", "Completed", "Suspended"} & {
            item["type"]
            for item in (await self.status()).get("conditions", ())
            if item["status"] == "True"
        }

    # -- waiting ------------------------------------------------------------------------------

    async def until_jobs(self, *names: str) -> None:
        """Wait until exactly these Jobs exist."""
        await self.until_equal(self.job_names, sorted(names))

    async def until_suspended_jobs(self, *names: str) -> None:
        """Wait until exactly these Jobs are suspended."""
        await self.until_equal(self.suspended_jobs, sorted(names))

    async def until_attempts(
        self, attempts: dict[str, int], terminating: set[str] | None = None
    ) -> None:
        """Wait for these Jobs at these attempts, of which some are being deleted."""
        await self.until_equal(self.attempts, (attempts, terminating or set()))

    async def until_restarts(self, restarts: int, counted: int) -> None:
        """Wait for these numbers of restarts."""
        await self.until_equal(self.restarts, (restarts, counted))

    async def until_counters(self, *expected: tuple[str, dict[str, int]], name: str = NAME) -> None:
        """Wait for exactly these counters, in this order."""
        await self.until_equal(self.counters, list(expected), name)

    async def stays_active(self) -> None:
        """The JobSet is active when the manager has nothing left to do."""
        await self.settled()
        assert await self.is_active()

    async def settled(self, name: str = NAME) -> None:
        """Wait until the manager has seen all objects in their current state and has nothing left to do.

        An annotation of the JobSet causes one more reconcile. Two checks in a row have to agree, since the
        manager may write between a read of the API server and one of its queue.
        """
        mark = {"metadata": {"annotations": {"test.invalid/mark": str(next(_MARKS))}}}
        await self.client.merge_patch(JobSet, self.namespace, name, mark)
        before = None

        async def quiet() -> bool:
            nonlocal before
            seen = await self._versions()
            agreed = self.manager.idle and seen == self._cached_versions() and seen == before
            before = seen
            return agreed

        await eventually(quiet, self.limit_s, poll_s=self.poll_s / 5)

    async def rests(self, name: str = NAME) -> None:
        """Once settled, one more reconcile causes no write."""
        await self.settled(name)
        before = self.manager.writes.copy()
        await self.settled(name)
        assert self.manager.writes == before

    async def _versions(self) -> set[tuple[str, str]]:
        return {
            (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
            for cls in (JobSet, Job, Service)
            for item in (await self.read_all(cls)).values()
            if cls is not Job or keys.JOBSET_NAME in item["metadata"].get("labels", {})
        }

    def _cached_versions(self) -> set[tuple[str, str]]:
        stores = (self.manager.jobsets, self.manager.jobs, self.manager.services)
        return {
            (item.metadata.uid, item.metadata.resource_version)
            for store in stores
            for item in store.list(self.namespace)
        }


def _condition(kind: str, reason: str, message: str = "") -> dict:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": now(),
        "lastTransitionTime": now(),
    }
