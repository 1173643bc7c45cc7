"""TrainJobs and TrainingRuntimes as JSON; their containers run a shell."""

from __future__ import annotations

import json
from typing import Any

from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import ApiError
from support.patience import eventually
from support.restarts.scenario import SHELL_IMAGE

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
Json = dict[str, Any]


def path(namespace: str, what: str) -> str:
    """Of one of Trainer's objects."""
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/{what}"


def container(name: str = "node", **fields: Any) -> Json:
    """A container of the shell image."""
    return {"name": name, "image": SHELL_IMAGE, "imagePullPolicy": "IfNotPresent", **fields}


def replicated_job(
    name: str = "node",
    step: str = "trainer",
    *,
    containers: list[Json] | None = None,
    job: Json | None = None,
    **fields: Any,
) -> Json:
    """A ReplicatedJob of a runtime; Trainer knows by the step what to put into it."""
    pod = {"spec": {"containers": containers or [container(name)], "restartPolicy": "Never"}}
    template = {"metadata": {"labels": {STEP: step}}, "spec": {**(job or {}), "template": pod}}
    return {"name": name, "template": template, **fields}


def runtime(*jobs: Json, metadata: Json | None = None, **spec: Any) -> Json:
    """A TrainingRuntime."""
    template: Json = {"spec": {"replicatedJobs": list(jobs or (replicated_job(),)), **spec}}
    if metadata:
        template["metadata"] = metadata
    labels = {"trainer.kubeflow.org/framework": "torch"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "own", "labels": labels},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": template},
    }


def train_job(
    name: str,
    ref: str = "own",
    script: str = "true",
    *,
    cluster: bool = False,
    nodes: int = 1,
    **spec: Any,
) -> Json:
    """A TrainJob whose trainer runs a shell."""
    kind = "ClusterTrainingRuntime" if cluster else "TrainingRuntime"
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, **spec.pop("metadata", {})},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": ref},
            "trainer": {"numNodes": nodes, "command": ["sh", "-c", script]},
            **spec,
        },
    }


async def until_taken(client: Client, namespace: str, body: Json) -> None:
    """Wait until all webhooks let a TrainJob through: Trainer's finds its runtime in a cache."""
    data = json.dumps(body).encode()
    query = (("dryRun", "All"),)
    request = HttpRequest(method="POST", path=path(namespace, "trainjobs"), query=query, body=data)

    async def taken() -> bool:
        try:
            await client.raw(request)
        except ApiError as error:
            raise AssertionError from error
        return True

    await eventually(taken, 90, poll_s=0.1)
