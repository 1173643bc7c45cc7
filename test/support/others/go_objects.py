"""Objects as the JobSet controller written in Go stores them, by the documents of its API.

That controller does not run here. It is replaced by objects that it would leave: JobSets with its
webhook's defaults, Jobs with its labels and annotations, its status fields and conditions.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from jobsetpy.api import keys

Json = dict[str, Any]
STATUS_FIELDS: Final = (
    "conditions",
    "currentInPlaceRestartAttempt",
    "previousInPlaceRestartAttempt",
    "replicatedJobsStatus",
    "restarts",
    "restartsCountTowardsMax",
    "terminalState",
)
"""Status fields of its CRD; it prunes all others."""


def jobset(name: str, **spec: Any) -> Json:
    """Return a JobSet of one Job ``a`` and two Jobs ``b``, with all defaults."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "Recreate"},
            "replicatedJobs": [_replicated_job("a", 1), _replicated_job("b", 2)],
            **spec,
        },
    }


def _replicated_job(name: str, replicas: int) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "w", "image": "test.invalid/w:1"}]}
    return {
        "name": name,
        "replicas": replicas,
        "groupName": "default",
        "template": {
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": {"spec": pod},
            }
        },
    }


def job(stored: Json, name: str, index: int, *, attempt: int = 0, suspend: bool = False) -> Json:
    """Return a child Job of a stored JobSet."""
    meta = stored["metadata"]
    replicated = stored["spec"]["replicatedJobs"]
    (own,) = [each for each in replicated if each["name"] == name]
    before = replicated[: replicated.index(own)]
    full = f"{meta['name']}-{name}-{index}"
    total = str(sum(each["replicas"] for each in replicated))
    at = str(sum(each["replicas"] for each in before) + index)
    prefix = "jobset.sigs.k8s.io"
    marks = {
        keys.JOBSET_NAME: meta["name"],
        keys.JOBSET_UID: meta["uid"],
        keys.REPLICATED_JOB_NAME: name,
        keys.RESTART_ATTEMPT: str(attempt),
        f"{prefix}/replicatedjob-replicas": str(own["replicas"]),
        f"{prefix}/global-replicas": total,
        keys.JOB_INDEX: str(index),
        keys.JOB_KEY: hashlib.sha1(f"{meta['namespace']}/{full}".encode()).hexdigest(),
        f"{prefix}/job-global-index": at,
        f"{prefix}/group-name": "default",
        f"{prefix}/group-replicas": total,
        f"{prefix}/job-group-index": at,
    }
    spec = own["template"]["spec"]
    template = {
        "metadata": {"labels": marks, "annotations": marks},
        "spec": {**spec["template"]["spec"], "subdomain": meta["name"]},
    }
    owner = {
        "apiVersion": stored["apiVersion"],
        "kind": "JobSet",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": full,
            "namespace": meta["namespace"],
            "labels": marks,
            "annotations": marks,
            "ownerReferences": [owner],
        },
        "spec": {**spec, "suspend": suspend, "template": template},
    }


def condition(kind: str, status: str, reason: str, message: str, *, ago_s: float = 0) -> Json:
    """Return a condition in its form."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def next_steps(stored: Json, jobs: list[Json]) -> dict[str, list[str]]:
    """Return the Jobs that it would delete and create, from the fields that it documents.

    Args:
        stored: a JobSet.
        jobs: its Jobs, by owner reference.
    """
    status = stored.get("status", {})
    restarts = status.get("restarts", 0)
    finished = any(
        each["type"] in {"Completed", "Failed"} and each["status"] == "True"
        for each in status.get("conditions", ())
    )
    attempts = {
        each["metadata"]["name"]: int(each["metadata"]["labels"][keys.RESTART_ATTEMPT])
        for each in jobs
    }
    running = {
        each["metadata"]["name"]
        for each in jobs
        if not any(
            one["type"] in {"Complete", "Failed"} and one["status"] == "True"
            for one in each.get("status", {}).get("conditions", ())
        )
    }
    old = {name for name, attempt in attempts.items() if attempt < restarts}
    wanted = {
        f"{stored['metadata']['name']}-{each['name']}-{index}"
        for each in stored["spec"]["replicatedJobs"]
        for index in range(each["replicas"])
    }
    return {
        "delete": sorted(running - old if finished else old),
        "create": [] if finished else sorted(wanted - attempts.keys()),
    }
