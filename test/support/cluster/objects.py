"""JSON objects for tests with a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet

RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of a pod under the restricted Pod Security Standard."""
RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Security context of a container under the restricted Pod Security Standard."""


def shell_worker(script: str, **fields: Any) -> dict[str, Any]:
    """A container that runs a script in the image with nothing but a shell."""
    image = {"image": "localhost/shell:1", "imagePullPolicy": "IfNotPresent"}
    return {"name": "worker", **image, "command": ["sh", "-c", script], **fields}


def spread(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Topology spread constraints by which pods with these labels prefer different nodes."""
    how = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    selector = {"matchLabels": dict(labels)}
    return [{"topologyKey": "kubernetes.io/hostname", **how, "labelSelector": selector}]


def replicated_job(
    pod: Mapping[str, Any],
    pods: int | None = None,
    *,
    name: str = "w",
    replicas: int | None = None,
    **job: Any,
) -> dict[str, Any]:
    """A ReplicatedJob with a pod spec; ``pods`` is the parallelism and number of completions."""
    counts = {} if pods is None else {"parallelism": pods, "completions": pods}
    number = {} if replicas is None else {"replicas": replicas}
    spec = {**counts, **job, "template": {"spec": pod}}
    return {"name": name, **number, "template": {"spec": spec}}


def jobset(
    name: str,
    *jobs: dict[str, Any],
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A JobSet as a user writes it."""
    metadata: dict[str, Any] = {"name": name, "annotations": annotations or {}}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": JobSet.RESOURCE.api_version,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def in_place_jobset(
    name: str,
    *,
    jobs: int = 2,
    pods: int = 3,
    max_restarts: int = 100,
    backoff: str = "0",
    pod: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a JobSet that restarts in place; the test plays its agents.

    Successive restarts wait only if ``backoff`` says so. ``pod`` is the pod spec, ``spec`` has fields
    of the JobSet that replace the usual ones.
    """
    container = {"name": "worker", "image": "test.invalid/worker:1"}
    item = replicated_job(
        pod or {"restartPolicy": "Never", "containers": [container]},
        pods,
        replicas=jobs,
        completionMode="Indexed",
        backoffLimit=keys.INT32_MAX,
        podReplacementPolicy="Failed",
    )
    usual = {
        "failurePolicy": {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    }
    annotations = {keys.RESTART_BACKOFF_ANNOTATION: backoff}
    return jobset(name, item, annotations=annotations, **{**usual, **spec})
