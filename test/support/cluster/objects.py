"""JSON objects for tests with a real API server."""

from __future__ import annotations

from typing import Any

from jobsetpy.api import keys


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
