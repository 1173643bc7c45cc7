"""A manager with both reconcilers on a pretended cluster in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling import reconciler as coscheduling_reconciler
from jobsetpy.reconcilers.coscheduling.coscheduler_watch import CoschedulerWatch
from jobsetpy.reconcilers.jobs import reconciler as jobs
from jobsetpy.reconcilers.restart_in_place import reconciler as restart_in_place_reconciler
from jobsetpy.reconcilers.startup_groups import reconciler as startup_groups_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from jobsetpy.testing.jobsets import jobset_json
from support.managers import started

NAMESPACE = "default"


class Rig:
    """The cluster, with a test in the roles of user, Job controller and kubelet."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.world.garbage_collect = True

    @property
    def faults(self):
        """What goes wrong."""
        return self.world.faults

    @asynccontextmanager
    async def manager(self, *, epochs=True, groups=False, gangs=False, looks_for=None, **settings):
        """A running manager; leaving the block stops it. It may look for a coscheduler."""
        client = RecordingClient(self.world, qps=0)
        manager = Manager(client, clock=VirtualClock())
        if looks_for is not None:
            settings["coscheduler"] = CoschedulerWatch(manager, NAMESPACE, looks_for)
            gangs = coscheduling_reconciler.CoschedulingSettings(
                coscheduler=settings["coscheduler"]
            )
        jobs.setup(manager, jobs.JobsSettings(**settings))
        if epochs:
            restart_in_place_reconciler.setup(manager)
        if groups:
            startup_groups_reconciler.setup(manager)
        if gangs:
            coscheduling_reconciler.setup(manager, None if gangs is True else gangs)
        async with started(manager):
            yield manager

    @staticmethod
    async def settle(seconds=5.0):
        """Let everything happen that happens by itself; virtual time costs nothing."""
        await asyncio.sleep(seconds)

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
        """Change something that does not matter."""
        count = len(self.world.requests)
        patch = {"metadata": {"annotations": {"touched": f"{count}-{self.world.resource_version}"}}}
        self.world.patch(JobSet, name, patch)

    def jobset(self, name="test-js"):
        """The stored JobSet."""
        return self.world.get(JobSet, name)

    def status(self, name="test-js"):
        """Its status."""
        return (self.jobset(name) or {}).get("status", {})

    def condition(self, kind):
        """Status and reason of a condition, or ``None``."""
        for item in self.status().get("conditions", ()):
            if item["type"] == kind:
                return item["status"], item["reason"]
        return None

    def epochs(self):
        """Both epochs."""
        status = self.status()
        return status.get("syncedEpoch", 0), status.get("deprecatedEpoch", 0)

    # -- the Job controller and the kubelets --------------------------------------------------

    def jobs(self):
        """Names of the Jobs and their attempts."""
        return {
            job["metadata"]["name"]: job["metadata"].get("labels", {}).get(keys.RESTART_ATTEMPT)
            for job in self.world.list("jobs")
        }

    def finish(self, name, kind="Complete", reason="", message=""):
        """Have a Job complete or fail."""
        at = VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": at,
        }
        self.world.set_status("jobs", name, active=0, ready=0, conditions=[condition])

    def run_pods(self, count=1):
        """Make the pods of all Jobs that have none."""
        made = []
        for job in self.world.list("jobs"):
            name = job["metadata"]["name"]
            for index in range(count):
                pod = make_pod(f"{name}-{index}").of(job, index).phase("Running").build()
                if self.world.get("pods", pod["metadata"]["name"]) is None:
                    self.world.create("pods", pod)
                made.append(pod["metadata"]["name"])
        return made

    def report(self, pod, epoch):
        """An agent reports its epoch."""
        annotations = {keys.EPOCH_ANNOTATION: None if epoch is None else str(epoch)}
        self.world.patch("pods", pod, {"metadata": {"annotations": annotations}})

    # -- what came of it ----------------------------------------------------------------------

    def writes(self, *verbs):
        """The manager's writes but for events, as verb, resource and name."""
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
        """Bodies of the status patches, oldest first."""
        found = self.world.requests.matching("patch", "jobsets/status")
        return [request.json["status"] for request in found]

    def events(self, reason=None):
        """Reason, message and number of the events, oldest first."""
        found = []
        for event in self.world.list("events.events.k8s.io"):
            if reason is None or event["reason"] == reason:
                count = event.get("series", {}).get("count", 1)
                found.append((event["eventTime"], event["reason"], event["note"], count))
        return [item[1:] for item in sorted(found)]


@pytest.fixture
async def rig():
    """An empty cluster."""
    return Rig()
