"""TrainJobs and TrainingRuntimes as JSON; their containers run a shell."""

from __future__ import annotations

from typing import Any

from jobsetpy.client import Client
from jobsetpy.errors import ApiError
from support.cluster.json_api import send
from support.patience import eventually
from support.restarts.scenario import SHELL_IMAGE

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
Json = dict[str, Any]


def path(namespace: str, what: str) -> str:
    """Return the path of one of Trainer's objects."""
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/{what}"


def container(name: str = "node", **fields: Any) -> Json:
    """Return a container with the shell image."""
    return {"name": name, "image": SHELL_IMAGE, "imagePullPolicy": "IfNotPresent", **fields}


def replicated_job(
    name: str = "node",
    step: str = "trainer",
    *,
    containers: list[Json] | None = None,
    job: Json | None = None,
    **fields: Any,
) -> Json:
    """Return a ReplicatedJob of a runtime; Trainer recognizes its part by the step."""
    pod = {"spec": {"containers": containers or [container(name)], "restartPolicy": "Never"}}
    template = {"metadata": {"labels": {STEP: step}}, "spec": {**(job or {}), "template": pod}}
    return {"name": name, "template": template, **fields}


def runtime(*jobs: Json, metadata: Json | None = None, **spec: Any) -> Json:
    """Return a TrainingRuntime."""
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
    """Return a TrainJob whose trainer runs a shell."""
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
    """Wait until all webhooks admit a TrainJob: Trainer's finds its runtime in a cache."""
    query = (("dryRun", "All"),)

    async def taken() -> bool:
        try:
            await send(client, "POST", path(namespace, "trainjobs"), body, query=query)
        except ApiError as error:
            raise AssertionError from error
        return True

    await eventually(taken, 90, poll_s=0.1)
