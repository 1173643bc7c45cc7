"""JobSets that request an agent, and their stored form after admission."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.testing import json_patch
from support.cluster import objects

Json = dict[str, Any]
IMAGE = "test.invalid/agent:1"
WORKER = {"name": "worker", "image": "test.invalid/train:1", "command": ["python3", "train.py"]}


def job(
    name: str = "w",
    *,
    pod: Json | None = None,
    notes: Json | None = None,
    containers: list[Json] | None = None,
    replicas: int | None = None,
    **fields: Any,
) -> Json:
    """Return a ReplicatedJob of ordinary training.

    Args:
        name: its name.
        pod: other fields of the pod.
        notes: annotations of the pod template.
        containers: containers of the pod; one worker if absent.
        replicas: number of its Jobs; left out if absent.
        fields: other fields of the Job.
    """
    template: Json = {"spec": {"containers": containers or [copy.deepcopy(WORKER)], **(pod or {})}}
    if notes:
        template["metadata"] = {"annotations": notes}
    item = {"name": name, "template": {"spec": {"template": template, **fields}}}
    return item if replicas is None else {**item, "replicas": replicas}


def jobset(
    *jobs: Json,
    mode: str | None = "sidecar",
    notes: Json | None = None,
    strategy: str = "InPlaceRestart",
    **spec: Any,
) -> Json:
    """Return a JobSet with these ReplicatedJobs, or one; annotations that are ``None`` are left out."""
    given = {keys.IN_PLACE_AGENT_ANNOTATION: mode, **(notes or {})}
    annotations = {name: value for name, value in given.items() if value is not None}
    policy = {"maxRestarts": 3, "restartStrategy": strategy}
    spec = {"failurePolicy": policy, **spec}
    return objects.jobset("js", *(jobs or [job()]), annotations=annotations, **spec)


def admitted(body: Json, image: str = IMAGE) -> tuple[Json, Sequence[Any]]:
    """Return the JobSet as admission stores it, and all errors."""
    injection = inject(body, image=image)
    if injection.problems:
        return injection.jobset, injection.problems
    stored = json_patch(injection.jobset, default_jobset(injection.jobset))
    return stored, validate_create(stored)


def problems(body: Json) -> list[str]:
    """Return field and reason of each error, as text."""
    return [str(each) for each in admitted(body)[1]]


def job_of(obj: Json, at: int = 0) -> Json:
    """Return the spec of a ReplicatedJob's Jobs."""
    spec: Json = obj["spec"]["replicatedJobs"][at]["template"]["spec"]
    return spec


def pod_of(obj: Json, at: int = 0) -> Json:
    """Return the spec of a ReplicatedJob's pods."""
    spec: Json = job_of(obj, at)["template"]["spec"]
    return spec


def fields_of(env: list[Json]) -> Json:
    """Return variables by name: the value, or the path of the field that it is taken from."""
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in env
    }


def variables_of(obj: Json, at: int = 0) -> Json:
    """Return the supervisor's variables in the pods of a ReplicatedJob, without their prefix."""
    (worker,) = pod_of(obj, at)["containers"]
    prefix = keys.AGENT_VARIABLE_PREFIX
    found = fields_of(worker["env"])
    return {name.removeprefix(prefix): v for name, v in found.items() if name.startswith(prefix)}


def variables(body: Json, at: int = 0) -> Json:
    """Return the supervisor's variables of an accepted JobSet, without their prefix."""
    stored, errors = admitted(body)
    assert errors == []
    return variables_of(stored, at)
