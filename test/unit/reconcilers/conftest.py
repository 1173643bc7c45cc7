"""Managers with all reconcilers on a simulated cluster in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling import reconciler as coscheduling_reconciler
from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
from jobsetpy.reconcilers.coscheduling.native import NativeWatch
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.jobs import reconciler as jobs
from jobsetpy.reconcilers.restart_in_place import reconciler as restart_in_place_reconciler
from jobsetpy.reconcilers.startup_groups import reconciler as startup_groups_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from support.jobsets import jobset_json
from support.managers import started

NAMESPACE = "default"
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class Rig:
    """The cluster; a test plays the roles of user, Job controller and kubelet."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.world.garbage_collect = True

    @property
    def faults(self):
        """Injected faults."""
        return self.world.faults

    @asynccontextmanager
    async def manager(
        self, *, epochs=True, groups=False, gangs=False, watched=None, missing=(), **settings
    ):
        """Run a manager until the block ends, with a watch of a coscheduler if asked for.

        The CRD does not have the fields ``missing``.
        """
        client = RecordingClient(self.world, qps=0)
        manager = Manager(client, clock=VirtualClock())
        if watched is not None:
            backend = BackendWatch(manager, NAMESPACE, watched, NativeWatch(manager))
            settings["backend"] = backend
            gangs = coscheduling_reconciler.CoschedulingSettings(backend=backend)
        self.definition = definition = Definition(client, manager.clock)
        definition.missing = frozenset(missing)
        jobs.setup(manager, jobs.JobsSettings(**settings), definition)
        if epochs:
            restart_in_place_reconciler.setup(manager, definition=definition)
        if groups:
            startup_groups_reconciler.setup(manager, definition=definition)
        if gangs:
            gangs = None if gangs is True else gangs
            coscheduling_reconciler.setup(manager, gangs, definition)
        async with started(manager):
            yield manager

    @staticmethod
    async def settle(seconds=5.0):
        """Let controllers act for a while; virtual time costs nothing."""
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def running(self, *replicated_jobs, **spec):
        """Run a manager of Jobs until the block ends, with a JobSet that has its children."""
        async with self.manager(epochs=False) as manager:
            self.create(*replicated_jobs, **spec)
            await self.settle()
            yield manager

    # -- the user -----------------------------------------------------------------------------

    def create(self, *replicated_jobs, **spec):
        """Create a JobSet."""
        body = jobset_json(*replicated_jobs, **spec)
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        status = body.pop("status", None)
        made = self.world.create(JobSet, body)
        if status:
            made = self.world.patch(
                JobSet, made["metadata"]["name"], {"status": status}, subresource="status"
            )
        return made

    def change(self, name="test-js", **spec):
        """Change a JobSet's spec."""
        self.world.patch(JobSet, name, {"spec": spec})

    def touch(self, name="test-js"):
        """Change an annotation that has no meaning, which causes a reconcile."""
        count = len(self.world.requests)
        patch = {"metadata": {"annotations": {"touched": f"{count}-{self.world.resource_version}"}}}
        self.world.patch(JobSet, name, patch)

    def jobset(self, name="test-js"):
        """Return the stored JobSet."""
        return self.world.get(JobSet, name)

    def status(self, name="test-js"):
        """Return the JobSet's status."""
        return (self.jobset(name) or {}).get("status", {})

    def condition(self, kind):
        """Return status and reason of a condition, or ``None``."""
        for item in self.status().get("conditions", ()):
            if item["type"] == kind:
                return item["status"], item["reason"]
        return None

    def epochs(self):
        """Return the synced and the deprecated epoch."""
        status = self.status()
        return status.get("syncedEpoch", 0), status.get("deprecatedEpoch", 0)

    # -- the Job controller and the kubelets --------------------------------------------------

    def jobs(self):
        """Return the attempt of each Job, by its name."""
        return {
            job["metadata"]["name"]: job["metadata"].get("labels", {}).get(keys.RESTART_ATTEMPT)
            for job in self.world.list("jobs")
        }

    def finish(self, name, kind="Complete", reason="", message=""):
        """Let a Job complete or fail, or begin to."""
        known = self.world.get("jobs", name).get("status", {}).get("conditions", [])
        at = VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": at,
        }
        self.world.set_status("jobs", name, active=0, ready=0, conditions=[*known, condition])

    def run_pods(self, count=1):
        """Create ``count`` running pods for each Job; return the names of all."""
        made = []
        for job in self.world.list("jobs"):
            name = job["metadata"]["name"]
            for index in range(count):
                pod = make_pod(f"{name}-{index}").of(job, index).phase("Running").build()
                if self.world.get("pods", pod["metadata"]["name"]) is None:
                    self.world.create("pods", pod)
                made.append(pod["metadata"]["name"])
        return made

    def make_pods(self, **pod_spec):
        """Create the pods that Jobs are missing, from their templates; return their names.

        Pods with gates have the condition that the scheduler gives them.
        """
        names = []
        for job in self.world.list("jobs"):
            template = job["spec"]["template"]
            gates = template["spec"].get("schedulingGates", [])
            for index in range(job["spec"]["parallelism"]):
                name = f"{job['metadata']['name']}-{index}"
                if job["spec"]["suspend"] or self.world.get("pods", name) is not None:
                    continue
                pod = make_pod(name).of(job, index).phase("Pending")
                pod.labels(template["metadata"]["labels"])
                pod.annotations(template["metadata"]["annotations"])
                self.world.create("pods", pod.spec(schedulingGates=gates, **pod_spec).build())
                if gates:
                    self.world.set_status("pods", name, conditions=[GATED])
                names.append(name)
        return names

    def report(self, pod, epoch):
        """Report an epoch as a pod's agent does."""
        annotations = {keys.EPOCH_ANNOTATION: None if epoch is None else str(epoch)}
        self.world.patch("pods", pod, {"metadata": {"annotations": annotations}})

    # -- results -----------------------------------------------------------------------------

    def writes(self, *verbs):
        """Return the manager's writes, except events, as verb, resource and name."""
        out = []
        for request in self.world.requests.writes:
            if request.resource == "events":
                continue
            if verbs and request.verb not in verbs:
                continue
            body = request.json
            name = request.name or body["metadata"]["name"]
            out.append((request.verb, request.resource, name))
        return out

    def status_writes(self):
        """Return the bodies of the status patches, oldest first."""
        found = self.world.requests.matching("patch", "jobsets/status")
        return [request.json["status"] for request in found]

    def events(self, reason=None):
        """Return reason, message and number of the events, oldest first."""
        found = []
        for event in self.world.list("events.events.k8s.io"):
            if reason is None or event["reason"] == reason:
                count = event.get("series", {}).get("count", 1)
                found.append((event["eventTime"], event["reason"], event["note"], count))
        return [item[1:] for item in sorted(found)]


@pytest.fixture
async def rig():
    """Return an empty cluster."""
    return Rig()
