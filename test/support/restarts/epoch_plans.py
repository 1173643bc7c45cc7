"""JobSets, pods and failures for tests of plans of restarts in place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.cause import FailureSignal
from jobsetpy.reconcilers.restart_in_place.failures import Failure
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, Observations, ObservedEpochs
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)


RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}


STALLED = keys.BARRIER_STALLED_CONDITION


RESTARTING = keys.RESTARTING_IN_PLACE_CONDITION


def jobset(synced=1, deprecated=0, *, max_restarts=10, status=None, **spec):
    """A JobSet of one Job with four pods."""
    container = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    item = replicated_job("w", 1, parallelism=4, pod_spec={"containers": [container]})
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    epochs = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
    data = jobset_json(
        item, status={**epochs, **(status or {})}, **{"failurePolicy": policy, **spec}
    )
    return decoded(JobSet, data)


def job(**status):
    """Its Job."""
    meta = {
        "name": "j",
        "uid": "j",
        "labels": {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"},
    }
    return decoded(Job, {"metadata": meta, "spec": {"parallelism": 4}, "status": status})


def pod(name="p", epoch=1, state=None, **meta):
    """A pod of the Job, whose worker is in a state."""
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    annotations = {keys.EPOCH_ANNOTATION: str(epoch)}
    one = {"name": "worker", "state": {"running": {}} if state is None else state}
    return decoded(
        ChildPod,
        {
            "metadata": {
                "name": name,
                "annotations": annotations,
                "ownerReferences": [owner],
                **meta,
            },
            "status": {"phase": "Running", "containerStatuses": [one]},
        },
    )


def failure(code=7, *, epoch=1, at=0.0, name="p"):
    """A worker's end."""
    end = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": None}}
    before, after = pod(name, epoch), pod(name, epoch, end)
    return Failure(FailureSignal.CONTAINER_FAILED, epoch, before, after, at)


def gone(*, epoch=1, at=0.0):
    """A pod's end."""
    return Failure(FailureSignal.POD_DELETED, epoch, pod(epoch=epoch), None, at)


def at(seconds):
    """So long after the start."""
    return Now(START + timedelta(seconds=seconds), seconds)


def observed(of, epochs, *, notes=None, pods=(), **more):
    """A JobSet with so many pods at each epoch."""
    more = {"job_of": lambda _pod: job(), "members": lambda: ([job()], list(pods)), **more}
    counts = Histogram(epochs) if isinstance(epochs, dict) else epochs
    return ObservedEpochs(jobset=of, pods=counts, notes=notes or Observations(), **more)


def stored(of, plan):
    """The JobSet once the plan is carried out."""
    return of if plan.status is None else evolve(of, status=plan.status.status)


def condition(plan, kind):
    """Status and message of a condition in the status of a plan."""
    found = [c for c in plan.status.status.conditions if c.type == kind]
    return [(c.status, c.message) for c in found]
