"""JobSets, Jobs, pods and failures for tests of restarts in place, as a manager decodes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.decision import Wait
from jobsetpy.reconcilers.restart_in_place.failures.cause import FailureKind
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import (
    GroupCounts,
    Observations,
    ObservedEpochs,
)
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import decoded, jobset_json, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)
AT = "2026-01-01T00:00:00Z"
GROUP = AttemptKey("default", "test-js", "js-uid", 0)
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
STALLED = keys.BARRIER_STALLED_CONDITION
RESTARTING = keys.RESTARTING_IN_PLACE_CONDITION


def policy(max_restarts=10, **more):
    """Return a failure policy that restarts in place."""
    return {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart", **more}


def jobset(
    synced=1, deprecated=0, *, items=(), max_restarts=10, notes=None, deleted=False, status=None,
    **spec,
):  # fmt: skip
    """Return a JobSet that restarts in place: one Job of four pods, or other ReplicatedJobs."""
    container = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    one = replicated_job("w", parallelism=4, pod_spec={"containers": [container]})
    epochs = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
    spec = {"failurePolicy": policy(max_restarts), **spec}
    status = epochs | (status or {})
    data = jobset_json(*(items or [one]), annotations=notes, status=status, **spec)
    if deleted:
        data["metadata"]["deletionTimestamp"] = AT
    return decoded(JobSet, data)


def job(  # noqa: PLR0913 - a builder: one keyword for each field
    name="j", *, uid="", of="w", index=0, replicas=0, attempt="0", owner="js-uid", notes=None,
    deleted=False, spec=None, cls=Job, **status,
):  # fmt: skip
    """Return a Job of the JobSet, whose UID is ``owner``; its own UID is its name by default."""
    owned = {"apiVersion": JobSet.RESOURCE.api_version, "kind": "JobSet", "name": "test-js",
             "uid": owner, "controller": True}  # fmt: skip
    labels = {keys.JOBSET_NAME: "test-js", keys.REPLICATED_JOB_NAME: of,
              keys.JOB_INDEX: str(index), keys.RESTART_ATTEMPT: attempt}  # fmt: skip
    if replicas:
        labels[keys.REPLICATED_JOB_REPLICAS] = str(replicas)
    meta = {"name": name, "namespace": "default", "uid": uid or name, "labels": labels,
            "annotations": notes or {}, "ownerReferences": [owned]}  # fmt: skip
    if deleted:
        meta["deletionTimestamp"] = AT
    spec = {"parallelism": 4, **(spec or {})}
    return decoded(cls, {"metadata": meta, "spec": spec, "status": status})


def pod(  # noqa: PLR0913 - a builder: one keyword for each field
    name="p", epoch=1, *, uid="", job="j", job_name="", index=None, node="", tracked=True,
    grace=None, deleted=False, containers=(), notes=None, meta=None, **status,
):  # fmt: skip
    """Return a pod; annotations that are ``None`` are left out.

    Args:
        name: its name, and its UID if no other one is given.
        epoch: the epoch that its agent has reported; any text is possible.
        job: UID of its Job, and the Job's name if no other one is given; ``None`` for no Job.
        tracked: whether it has the finalizer of the Job controller.
        grace: grace period of a pod that is being deleted, in seconds.
        containers: statuses of its containers.
        notes: annotations.
        meta: other fields of its metadata.
        status: other fields of its status.
    """
    reported = {keys.EPOCH_ANNOTATION: epoch, keys.COMPLETION_INDEX_ANNOTATION: index}
    notes = {key: str(text) for key, text in (reported | (notes or {})).items() if text is not None}
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "annotations": notes,
                "labels": {keys.JOBSET_NAME: "test-js"},
                "finalizers": [keys.JOB_TRACKING_FINALIZER] if tracked else []}  # fmt: skip
    if job is not None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name or job, "uid": job}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    if deleted or grace is not None:
        metadata |= {"deletionTimestamp": AT, "deletionGracePeriodSeconds": grace}
    status = {"phase": "Running", "containerStatuses": [*containers], **status}
    data = {"metadata": metadata | (meta or {}), "spec": {"nodeName": node}, "status": status}
    return decoded(ChildPod, data)


def ended(code=7, **fields):
    """Return the status of a worker's container that has ended."""
    return {"name": "worker", "state": {"terminated": {"exitCode": code, **fields}}}


def failure(code=7, *, epoch=1, at=0.0, name="p"):
    """Return the end of a pod's worker."""
    before = pod(name, epoch, containers=[{"name": "worker", "state": {"running": {}}}])
    after = pod(name, epoch, containers=[ended(code, reason="Error", finishedAt=None)])
    return Failure(FailureKind.CONTAINER_FAILED, epoch, before, after, at)


def gone(*, epoch=1, at=0.0):
    """Return the end of a pod."""
    return Failure(FailureKind.POD_DELETED, epoch, pod(epoch=epoch), None, at)


def at(seconds):
    """Return the time of a plan, in seconds after the start."""
    return Now(START + timedelta(seconds=seconds), seconds)


def observed(of, epochs, *, notes=None, pods=(), **more):
    """Return the input of a plan: a JobSet with numbers of pods by epoch."""
    more = {"job_of": lambda _pod: job(), "members": lambda: ([job()], list(pods)), **more}
    counts = GroupCounts(epochs) if isinstance(epochs, dict) else epochs
    return ObservedEpochs(jobset=of, pods=counts, notes=notes or Observations(), **more)


def epochs_of(decision):
    """Return the new synced and deprecated epochs of a decision, ``None`` for those it leaves."""
    fields = {} if isinstance(decision, Wait) else decision.fields
    return fields.get("synced_epoch"), fields.get("deprecated_epoch")


def stored(of, plan):
    """Return the JobSet after the plan was executed."""
    return of if plan.status is None else evolve(of, status=plan.status.status)


def condition(plan, kind):
    """Return status and message of the conditions of a type in a plan's status."""
    found = [c for c in plan.status.status.conditions if c.type == kind]
    return [(c.status, c.message) for c in found]
