"""JobSets for tests of rules: builders, and a model of a plan's effects in an API server.

``ModelCluster`` holds one JobSet with its Jobs as plain JSON, executes plans immediately, and lets
a test play the Job controller. It has no conflicts, caches or delays: those belong to tests of
reconcilers, against ``FakeApiServer``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, JobSetStatus
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.jobs.suspension import resume_patch
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing._stores import decoded
from jobsetpy.testing.apiserver._patches import merge_patch as merge

__all__ = ["EPOCH_START", "ModelCluster", "decoded", "jobset_json", "merge", "replicated_job"]

EPOCH_START = datetime(2026, 1, 1, tzinfo=UTC)
"""Initial time of the model's clock."""


def replicated_job(  # noqa: PLR0913 - a builder: one keyword for each field
    name: str,
    replicas: int = 1,
    *,
    parallelism: int = 1,
    group: str = "default",
    depends_on: Iterable[tuple[str, str]] = (),
    metadata: Mapping[str, Any] | None = None,
    job_spec: Mapping[str, Any] | None = None,
    pod_metadata: Mapping[str, Any] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a ReplicatedJob as JSON, with one container that runs nothing."""
    template: dict[str, Any] = {
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "completionMode": "Indexed",
            **(job_spec or {}),
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "worker", "image": "worker:1"}],
                    **(pod_spec or {}),
                },
            },
        }
    }
    if metadata:
        template["metadata"] = dict(metadata)
    if pod_metadata:
        template["spec"]["template"]["metadata"] = dict(pod_metadata)
    out: dict[str, Any] = {
        "name": name,
        "groupName": group,
        "replicas": replicas,
        "template": template,
    }
    if depends_on:
        out["dependsOn"] = [{"name": each, "status": status} for each, status in depends_on]
    return out


def jobset_json(
    *replicated_jobs: Mapping[str, Any],
    name: str = "test-js",
    namespace: str = "default",
    uid: str = "js-uid",
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a JobSet as JSON: with DNS names and success policy ``All``, as after admission.

    By default it has the ReplicatedJobs of most tests: ``replicated-job-a`` with one replica and
    ``replicated-job-b`` with three. ``spec`` takes further fields by their JSON names.
    """
    chosen = replicated_jobs or (
        replicated_job("replicated-job-a"),
        replicated_job("replicated-job-b", 3),
    )
    out: dict[str, Any] = {
        "apiVersion": JobSet.RESOURCE.api_version,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "replicatedJobs": [copy.deepcopy(dict(item)) for item in chosen],
            **spec,
        },
    }
    if annotations:
        out["metadata"]["annotations"] = dict(annotations)
    if status:
        out["status"] = dict(status)
    return out


class ModelCluster:
    """One JobSet and its children; plans are executed immediately and completely.

    Args:
        jobset: the JobSet as JSON.
        features: feature gates of the plan.

    Attributes:
        events: reasons of the events that were stored with a status, in order.
        notices: reasons of the other events.
        group_objects: objects created by group scheduling, by kind and name.
        group_rbac: True if they include the permission to watch them.
        clock: time of the plans; only a test advances it.
    """

    def __init__(self, jobset: Mapping[str, Any], features: Features | None = None) -> None:
        self.object: dict[str, Any] = copy.deepcopy(dict(jobset))
        self.features = features or Features()
        self.jobs: dict[str, dict[str, Any]] = {}
        self.services: dict[str, Mapping[str, Any]] = {}
        self.claims: dict[str, Mapping[str, Any]] = {}
        self.group_objects: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.group_rbac = False
        self.events: list[p.EmitEvent] = []
        self.notices: list[p.EmitEvent] = []
        self.clock = EPOCH_START
        self.deleted = False
        self.status_writes = 0
        self._uids = 0

    # -- reading ------------------------------------------------------------------------------

    @property
    def jobset(self) -> JobSet:
        """JobSet as the controller would read it."""
        return decoded(JobSet, self.object)

    @property
    def status(self) -> JobSetStatus:
        """Status of the JobSet."""
        return self.jobset.status

    def job(self, name: str) -> Job:
        """Return a Job as the controller would read it."""
        return decoded(Job, self.jobs[name])

    def condition(self, kind: str) -> tuple[str, str] | None:
        """Return status and reason of a condition, or ``None``."""
        for item in self.status.conditions:
            if item.type == kind:
                return item.status, item.reason
        return None

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters that are not zero, by ReplicatedJob."""
        return {
            item["name"]: {k: v for k, v in item.items() if v and k != "name"}
            for item in self.object.get("status", {}).get("replicatedJobsStatus", ())
        }

    def reasons(self) -> list[str]:
        """Return the reasons of the stored events."""
        return [event.reason for event in self.events]

    # -- the controller -----------------------------------------------------------------------

    def observe(self) -> ObservedJobSet:
        """Return the input of a reconcile with an up-to-date cache."""
        jobset = self.jobset
        return ObservedJobSet(
            key=jobset.metadata.key,
            jobset=jobset,
            jobs=[self.job(name) for name in self.jobs],
            surroundings={
                *(("Service", name) for name in self.services),
                *(("PersistentVolumeClaim", name) for name in self.claims),
                *self.group_objects,
            },
            features=self.features,
            group_rbac=self.group_rbac,
        )

    @property
    def now(self) -> Now:
        """Time of the model; its monotonic clock stands still."""
        return Now(self.clock, 0.0)

    def plan(self) -> p.JobsPlan:
        """Return the plan for the current state, by a reconciler without memory."""
        return plan_jobs(self.observe(), p.JobsMemory(), self.now)

    def reconcile(self, *, limit: int = 12) -> p.JobsPlan:
        """Plan and execute until the plan is empty; return the last plan."""
        for _ in range(limit):
            plan = self.plan()
            if plan.empty:
                return plan
            self.carry_out(plan)
        raise AssertionError(f"no rest after {limit} passes: {self.plan()}")

    def carry_out(self, plan: p.JobsPlan) -> None:
        """Execute a plan."""
        for action in plan.actions:
            self._act(action)
        self.notices += plan.notices
        if plan.status is not None and plan.status.patch:
            self.object["status"] = merge(self.object.get("status"), plan.status.patch)
            self.events += plan.status.events
            self.status_writes += 1

    def _act(self, action: p.Action) -> None:
        match action:
            case p.CreateJob(name, body):
                assert name not in self.jobs
                job = copy.deepcopy(dict(body))
                self._uids += 1
                job["metadata"]["uid"] = f"job-{self._uids}"
                self.jobs[name] = job
            case p.DeleteJob(name, uid):
                assert self.jobs[name]["metadata"]["uid"] == uid
                self.jobs[name]["metadata"]["deletionTimestamp"] = seconds_text(self.clock)
            case p.SuspendJob(name, _):
                self.jobs[name]["spec"]["suspend"] = True
            case p.ResumeJob(name, _):
                if action.clear_start_time:
                    self.jobs[name]["status"].pop("startTime")
                job = self.jobs[name]
                patch = resume_patch(
                    action, job["spec"]["template"], job["metadata"].get("annotations", {})
                )
                self.jobs[name] = merge(self.jobs[name], patch)
            case p.ResizeJob(name, _, parallelism, completions):
                size = {"parallelism": parallelism, "completions": completions}
                self.jobs[name] = merge(self.jobs[name], {"spec": size})
            case p.CreateObject("Service", name, body):
                assert name not in self.services
                self.services[name] = body
            case p.CreateObject("PersistentVolumeClaim", name, body):
                assert name not in self.claims
                self.claims[name] = body
            case p.CreateObject(kind, name, body):
                self.group_objects[kind, name] = body
            case p.DeleteJobSet():
                self.deleted = True
                self.object["metadata"]["deletionTimestamp"] = seconds_text(self.clock)

    # -- the rest of the cluster --------------------------------------------------------------

    def collect(self, *names: str) -> None:
        """Remove terminating Jobs: those named, or all."""
        for name in names or tuple(self.jobs):
            if "deletionTimestamp" in self.jobs[name]["metadata"]:
                del self.jobs[name]

    def change_spec(self, **spec: Any) -> None:
        """Replace fields of the spec."""
        self.object["spec"].update(spec)

    def set_status(self, name: str, **status: Any) -> None:
        """Merge into a Job's status."""
        self.jobs[name]["status"] = {**self.jobs[name].get("status", {}), **status}

    def ready(self, *names: str) -> None:
        """Set all pods of Jobs to ready."""
        for name in names:
            pods = self.jobs[name]["spec"].get("parallelism", 1)
            self.set_status(name, active=pods, ready=pods)

    def complete(self, *names: str) -> None:
        """Let Jobs complete."""
        for name in names:
            self._finish(name, "Complete", "CompletionsReached", "")

    def fail(
        self, name: str, reason: str = "BackoffLimitExceeded", message: str = "", *, after: int = 0
    ) -> None:
        """Let a Job fail, ``after`` seconds from now."""
        self._finish(name, "Failed", reason, message, self.clock + timedelta(seconds=after))

    def _finish(
        self, name: str, kind: str, reason: str, message: str, at: datetime | None = None
    ) -> None:
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": seconds_text(at or self.clock),
        }
        self.set_status(name, active=0, ready=0, conditions=[condition])

    def each(self, action: Callable[[str], None], *, prefix: str = "") -> None:
        """Call a function with every Job whose name starts with ``prefix``."""
        for name in tuple(self.jobs):
            if name.startswith(prefix):
                action(name)
