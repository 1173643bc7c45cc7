"""JSON objects for tests with a real API server."""

from __future__ import annotations

from typing import Any

from jobsetpy.api import keys

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


def replicated_job(
    pod: dict[str, Any], pods: int | None = None, *, name: str = "w", **job: Any
) -> dict[str, Any]:
    """A ReplicatedJob with a pod spec; ``pods`` is the parallelism and number of completions."""
    counts = {} if pods is None else {"parallelism": pods, "completions": pods}
    return {"name": name, "template": {"spec": {**counts, **job, "template": {"spec": pod}}}}


def jobset(
    name: str, *jobs: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A JobSet as a user writes it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def in_place_jobset(
    name: str, *, jobs: int = 2, pods: int = 3, max_restarts: int = 100, backoff: str = "0"
) -> dict[str, Any]:
    """Return a JobSet that restarts in place; the test plays its agents.

    Successive restarts wait only if ``backoff`` says so.
    """
    container = {"name": "worker", "image": "test.invalid/worker:1"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": {keys.RESTART_BACKOFF_ANNOTATION: backoff}},
        "spec": {
            "failurePolicy": {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": jobs,
                    "template": {
                        "spec": {
                            "parallelism": pods,
                            "completions": pods,
                            "completionMode": "Indexed",
                            "backoffLimit": keys.INT32_MAX,
                            "podReplacementPolicy": "Failed",
                            "template": {
                                "spec": {"restartPolicy": "Never", "containers": [container]}
                            },
                        }
                    },
                }
            ],
        },
    }
