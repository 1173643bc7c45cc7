"""JobSets on a model cluster, and their plans, for tests of reconcilers."""

from __future__ import annotations

from typing import Any

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.child_jobs import JobTemplateBuilder, SharedParts
from jobsetpy.reconcilers.rules.features import Features
from support.jobsets import ModelCluster, jobset_json


def begin(*replicated_jobs: dict, features: Features | None = None, **spec) -> ModelCluster:
    """Return a model cluster whose JobSet has its children; arguments are those of ``jobset_json``."""
    cluster = ModelCluster(jobset_json(*replicated_jobs, **spec), features)
    cluster.reconcile()
    return cluster


def builders(
    jobset: JobSet, features: Features | None = None, *more: Any
) -> list[JobTemplateBuilder]:
    """Return the builders of Jobs, in the order of the spec."""
    parts = SharedParts(jobset, features or Features(), *more)
    return [JobTemplateBuilder(parts, item) for item in jobset.spec.replicated_jobs]


def settle(cluster: ModelCluster) -> None:
    """Reconcile, remove terminating Jobs and reconcile again."""
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()


def rule(action: str, reasons=(), patterns=(), targets=(), name: str = "rule") -> dict:
    """Return a rule of a failure policy as JSON."""
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": list(reasons),
        "onJobFailureMessagePatterns": list(patterns),
        "targetReplicatedJobs": list(targets),
    }


def restart_arrays(cluster: ModelCluster, name: str) -> tuple[list[int] | None, list[int] | None]:
    """Return both restart arrays of a ReplicatedJob, ``None`` where absent."""
    (item,) = (i for i in cluster.object["status"]["replicatedJobsStatus"] if i["name"] == name)
    return item.get("jobRestarts"), item.get("jobRestartsCountTowardsMax")


def uids(cluster: ModelCluster) -> dict[str, str]:
    """Return the UID of each Job by its name."""
    return {name: job["metadata"]["uid"] for name, job in cluster.jobs.items()}


def recreated(cluster: ModelCluster, before: dict[str, str]) -> set[str]:
    """Return the names of the Jobs whose UID is not the one in ``before``."""
    return {name for name, uid in uids(cluster).items() if uid != before.get(name)}


def labels_of(cluster: ModelCluster, key: str) -> dict[str, str | None]:
    """Return a label of each Job by the Job's name, ``None`` where absent."""
    return {name: job["metadata"]["labels"].get(key) for name, job in cluster.jobs.items()}


def suspended(cluster: ModelCluster) -> dict[str, bool]:
    """Return ``spec.suspend`` of each Job by the Job's name."""
    return {name: job["spec"]["suspend"] for name, job in cluster.jobs.items()}


def reported(plan) -> list[str]:
    """Return the reasons of the events that a plan stores with the status."""
    return [] if plan.status is None else [event.reason for event in plan.status.events]


def delay(plan) -> float | None:
    """Return the seconds until the next reconcile, ``None`` if it waits for an event."""
    return None if plan.result.delay is None else plan.result.delay.total_seconds()
