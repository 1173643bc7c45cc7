"""Warnings about workers that are started by a launcher such as torchrun."""

from __future__ import annotations

import json

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.launchers.launchers import Translation, translate
from jobsetpy.reconcilers.rules.agent_containers import jobs_in_place, supervised
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    child,
    job_spec,
    number,
    objects,
    pod_spec,
    text,
    texts,
)
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of

MAX_WARNINGS = 2
"""Maximum number of containers that are parsed and warned about."""

_LONGEST = 160


def warnings(jobset: Json, features: Features) -> list[FieldWarning]:
    """Return warnings about launchers in a new JobSet that restarts in place."""
    found: list[FieldWarning] = []
    for path, job in jobs_in_place(child(jobset, "spec"), features):
        is_supervised = bool(supervised(pod_spec(job)))
        for nth, container in objects(pod_spec(job), "containers"):
            translation = translation_of(job, container)
            if translation is not None:
                field = f"template.spec.template.spec.containers[{nth}].command"
                message = advice(translation, is_supervised=is_supervised)
                found.append(FieldWarning(f"{path}.{field}", message))
            if len(found) == MAX_WARNINGS:
                return found
    return found


def translation_of(job: Json, container: Json) -> Translation | None:
    """Return what replaces the launcher of a container; ``None`` if it has none.

    Args:
        job: the ReplicatedJob.
        container: a container of its pods.
    """
    variables = {text(each, "name"): text(each, "value") for _, each in objects(container, "env")}
    pods = number(job_spec(job), "parallelism") or number(job_spec(job), "completions") or 1
    return translate(
        [*texts(container, "command"), *texts(container, "args")],
        variables=variables,
        gpus=_gpus(container),
        pods=pods * replicas_of(job),
    )


def _gpus(container: Json) -> int:
    """Return the number of accelerators of a container; 0 if its resources name none."""
    for kind in ("limits", "requests"):
        for name, value in child(container, "resources", kind).items():
            digits = str(value)
            if name.endswith("/gpu") and digits.isascii() and digits.isdigit() and len(digits) < 6:
                return int(digits)
    return 0


def advice(translation: Translation, *, is_supervised: bool) -> str:
    """Return why and how to replace a launcher, as one sentence.

    Args:
        translation: what replaces it.
        is_supervised: True if the agent runs the container's command.
    """
    why = (
        f"{translation.launcher} starts the processes itself, so that each restart imports the "
        "framework twice and no standby process can be kept"
    )
    if not translation.command:
        return f"{why}; {translation.notes[0]}"
    count = "N" if translation.processes is None else str(translation.processes)
    mode = "" if is_supervised else f"{keys.IN_PLACE_AGENT_ANNOTATION}: supervisor, "
    command = json.dumps(translation.command, ensure_ascii=False)
    if len(command) > _LONGEST:
        command = f"{command[: _LONGEST - 3]}..."
    points = len(translation.notes)
    more = f"; {points} more {'point' if points == 1 else 'points'} in it" if points else ""
    return (
        f'{why}. In its place write {mode}{keys.IN_PLACE_PROCESSES_ANNOTATION}: "{count}" and the '
        f'command {command}, as "kubectl jobset convert" does{more}'
    )
