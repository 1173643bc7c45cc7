"""User's settings for a supervisor's standby processes and processes, as its variables.

``RANK`` and related variables number the processes of all ReplicatedJobs with the annotation, in
their order, from the coordinator's pod. Values that differ between pods come from the downward API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from jobsetpy.api import keys
from jobsetpy.api.annotations import AUTO, read
from jobsetpy.api.log_lines import BUILT_IN, LogRule
from jobsetpy.api.python_command import split_python
from jobsetpy.reconcilers.failure_policy.patterns import pattern_problem, patterns_problems
from jobsetpy.reconcilers.restart_in_place.injection.annotations import Annotations
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid, required
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    child,
    job_spec,
    number,
    objects,
    pod_notes,
    text,
    texts,
)
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of
from jobsetpy.reconcilers.rules.spares import spares_in

OWN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables that differ between processes, so that a container cannot set them."""

WORLD_SIZE = "WORKER_WORLD_SIZE"
"""Variable with the total number of ranks, for the supervisor."""

INDEX_FIELDS = tuple(
    f"metadata.{kind}['{keys.COMPLETION_INDEX_ANNOTATION}']" for kind in ("annotations", "labels")
)
"""Fields of the downward API with a pod's completion index."""

JOB_INDEX_FIELDS = tuple(
    f"metadata.{kind}['{name}']"
    for kind in ("annotations", "labels")
    for name in (keys.JOB_INDEX, keys.JOB_GLOBAL_INDEX, keys.JOB_GROUP_INDEX)
)
"""Fields with the index of a pod's Job."""

_COUNT_FIELDS, _ADDRESS_FIELDS = (
    tuple(f"metadata.{kind}['{name}']" for kind in ("annotations", "labels"))
    for name in (keys.REPLICATED_JOB_REPLICAS, keys.COORDINATOR)
)
OTHER_JOB_FIELDS = _COUNT_FIELDS + _ADDRESS_FIELDS
"""Fields that change with the Jobs of an epoch: their number, and the address of the first rank."""


@attrs.frozen
class Ranks:
    """Ranks of one ReplicatedJob among all.

    Args:
        first: rank of its first process.
        pods: number of pods of each of its Jobs, without spares.
        jobs: number of its Jobs, without spare ones.
        processes: number of processes of each of its pods.
        world: total number of processes.
        master: rank of the coordinator's first process, by the order of the ReplicatedJobs.
        address: address of the coordinator's pod.
        master_job: name of the coordinator's Job, without that of the JobSet.
        master_seat: completion index of the coordinator's pod.
        hosts: the processes of all ReplicatedJobs in the order of their ranks before that of the
            coordinator's is 0, as ``NAME=JOBSxPODSxPROCESSES`` with commas.
    """

    first: int
    pods: int
    processes: int
    jobs: int = 1
    world: int = 0
    master: int = 0
    address: str = ""
    master_job: str = ""
    master_seat: int = 0
    hosts: str = ""


def standby_variables(notes: Annotations, worker: Json) -> dict[str, str]:
    """Return the supervisor's variables about standby processes.

    Args:
        notes: annotations, and errors in them.
        worker: the container.
    """
    mode_name, preload_name = keys.IN_PLACE_STANDBY_ANNOTATION, keys.IN_PLACE_PRELOAD_ANNOTATION
    mode, preload = notes.value(mode_name), notes.value(preload_name)
    if mode == "program":
        notes.refuse(preload_name, f'has no effect where {mode_name} is "program": remove it')
    if preload is None and mode in (None, "off"):
        return {}
    if why := _preload_problem(worker):
        notes.refuse(preload_name, why)
    return {
        "WORKER_STANDBY": mode or "on",
        "WORKER_PRELOAD": ",".join(read(preload_name, notes.own, notes.shared, default=())),
        "WORKER_STANDBY_DELAY_SECONDS": notes.text(keys.IN_PLACE_STANDBY_DELAY_ANNOTATION),
    }


def _preload_problem(worker: Json) -> str:
    """Return why nothing can be preloaded for a container; "" if something can."""
    words = [*texts(worker, "command"), *texts(worker, "args")]
    parts = split_python(words) if words else None
    if not isinstance(parts, str):
        return ""
    return (
        f"nothing can be preloaded for container {text(worker, 'name')!r}: {parts}. Write "
        '"python [options] FILE" or "python [options] -m MODULE" as its command; in place '
        f"of torchrun, with the annotation {keys.IN_PLACE_PROCESSES_ANNOTATION}, as "
        '"kubectl jobset convert" does'
    )


def health_variables(notes: Annotations, pod: Json, path: str) -> dict[str, str]:
    """Return the supervisor's variables about its health command.

    Args:
        notes: annotations, and errors in them.
        pod: spec of the pod.
        path: field path of the pod's spec.
    """
    if notes.value(keys.IN_PLACE_HEALTH_ANNOTATION) is None:
        return {}
    if pod.get("restartPolicy") == "OnFailure":
        why = "a pod on an unfit machine ends, which needs restartPolicy Never"
        notes.problems.append(invalid(f"{path}.restartPolicy", "OnFailure", why))
    return {
        "HEALTH_COMMAND": _literal(notes.text(keys.IN_PLACE_HEALTH_ANNOTATION)),
        "HEALTH_SECONDS": notes.text(keys.IN_PLACE_HEALTH_SECONDS_ANNOTATION),
        "HEALTH_INTERVAL_SECONDS": notes.text(keys.IN_PLACE_HEALTH_INTERVAL_ANNOTATION),
    }


def _literal(value: str) -> str:
    """Return a variable's value that the kubelet leaves as it is: $(NAME) would be replaced."""
    return value.replace("$", "$$")


def output_variables(notes: Annotations, pod: Json, worker: Json, path: str) -> dict[str, str]:
    """Return the supervisor's variables about the worker's output.

    Args:
        notes: annotations, and errors in them.
        pod: spec of the pod.
        worker: the container.
        path: field path of the pod's spec.
    """
    pattern, rules = keys.PROGRESS_PATTERN_ANNOTATION, keys.LOG_RULES_ANNOTATION
    for name in (pattern, rules):
        if worker.get("tty") is True:
            notes.refuse(
                name,
                f"has no effect: container {text(worker, 'name')!r} has a terminal (tty: true), "
                "whose output the agent does not read. Remove one of them",
            )
    found: dict[str, str] = {"PROGRESS_PATTERN": _literal(notes.text(pattern))}
    given: list[LogRule] = read(rules, notes.own, notes.shared, default=[])
    ending = [each for each in given if each.then in {"end-pod", "unfit-node"}]
    if ending and pod.get("restartPolicy") == "OnFailure":
        why = f"rule {ending[0].name!r} ends the pod, which needs restartPolicy Never"
        notes.problems.append(invalid(f"{path}.restartPolicy", "OnFailure", why))
    patterns = [each.line for each in given]
    own = notes.text(pattern)
    if own not in ("", AUTO, *BUILT_IN) and (why := pattern_problem(own)):
        notes.refuse(pattern, why)
    for rule, why in zip(given, patterns_problems(tuple(patterns)), strict=True):
        if why:
            notes.refuse(rules, f"line of rule {rule.name!r} {why}")
    if given:
        found["LOG_RULES"] = _literal(msgspec.json.encode(given).decode())
    return found


def process_variables(
    notes: Annotations, template: Json, worker: Json, path: str, ranks: Ranks | None
) -> dict[str, str]:
    """Return the supervisor's variables about its processes.

    Args:
        notes: annotations, and errors in them.
        template: the Job's spec.
        worker: the container.
        path: field path of the container.
        ranks: ranks of this ReplicatedJob; ``None`` if the annotation has no number.
    """
    setting, problems = keys.IN_PLACE_PROCESSES_ANNOTATION, notes.problems
    if notes.value(setting) is None:
        return {}
    names = {text(each, "name"): at for at, each in objects(worker, "env")}
    mode = template.get("completionMode")
    if mode not in (None, "Indexed"):
        field = f"{path.rpartition('.template.spec.')[0]}.completionMode"
        why = "pods have ranks by their index: it must be Indexed, or left out"
        problems.append(invalid(field, mode, why))
    for name in filter(names.__contains__, OWN_NAMES):
        why = f"differs from process to process, as {setting} has it: remove the variable"
        problems.append(invalid(f"{path}.env[{names[name]}].name", name, why))
    if ranks is None:
        return {}
    if not ranks.address and "MASTER_ADDR" not in names:
        why = (
            "pods have no names by which the first rank is found (network.enableDNSHostnames is "
            "false): set the variable, or allow the names"
        )
        problems.append(required(f"{path}.env[MASTER_ADDR]", why))
    return {
        "WORKER_PROCESSES": str(ranks.processes),
        WORLD_SIZE: str(ranks.world),
        "WORKER_FIRST_RANK": str(ranks.first),
        "WORKER_MASTER_RANK": str(ranks.master),
        "WORKER_JOB_PODS": str(ranks.pods),
        "MASTER_ADDR": "" if "MASTER_ADDR" in names else ranks.address,
    }


def ranks_of(spec: Json, notes: Mapping[str, Any], problems: list[FieldError]) -> dict[int, Ranks]:
    """Return the ranks of each ReplicatedJob that has any, by its index.

    Args:
        spec: spec of the JobSet; Jobs' counts are filled in.
        notes: annotations of the JobSet.
        problems: errors so far, to which that of a coordinator without ranks is added.
    """
    name = keys.IN_PLACE_PROCESSES_ANNOTATION
    found, world = _placed_ranks(spec, notes)
    jobs = dict(objects(spec, "replicatedJobs"))
    places: dict[str, Ranks] = {}
    for at, each in found.items():
        places.setdefault(text(jobs[at], "name"), each)
    if not places:
        return found
    chosen = child(spec, "coordinator")
    job_name = text(chosen, "replicatedJob") or next(iter(places))
    if job_name not in places:
        why = (
            f"has no ranks, and the first one must be the coordinator: set the annotation {name} "
            "for its pods as well"
        )
        problems.append(invalid("spec.coordinator.replicatedJob", job_name, why))
        return found
    place = places[job_name]
    job_index, pod_index = number(chosen, "jobIndex") or 0, number(chosen, "podIndex") or 0
    common: dict[str, Any] = {
        "world": world,
        "master": place.first + (job_index * place.pods + pod_index) * place.processes,
        "address": _address(spec, f"{job_name}-{job_index}-{pod_index}"),
        "master_job": f"{job_name}-{job_index}",
        "master_seat": pod_index,
        "hosts": ",".join(
            f"{name}={each.jobs}x{each.pods}x{each.processes}" for name, each in places.items()
        ),
    }
    return {at: attrs.evolve(each, **common) for at, each in found.items()}


def _placed_ranks(spec: Json, notes: Mapping[str, Any]) -> tuple[dict[int, Ranks], int]:
    """Return the ranks before the coordinator is known, by index, and their number."""
    name = keys.IN_PLACE_PROCESSES_ANNOTATION
    found: dict[int, Ranks] = {}
    world = 0
    for at, job in objects(spec, "replicatedJobs"):
        processes: int | None = read(name, pod_notes(job), notes)
        pods = number(job_spec(job), "completions")
        if processes is None or pods is None or pods < 0:
            continue
        spares, jobs = spares_in(job, notes), max(0, replicas_of(job))
        pods -= min(pods, spares.pods)
        found[at] = ranks = Ranks(world, pods, processes, jobs - min(jobs, spares.jobs))
        world += pods * ranks.processes * ranks.jobs
    return found, world


def seat_variables(
    job: Json, worker: Json, notes: Mapping[str, Any], ranks: Ranks | None
) -> dict[str, str]:
    """Return the supervisor's variables about its seat, for a JobSet with spares.

    Args:
        job: the ReplicatedJob.
        worker: the container.
        notes: annotations of the JobSet.
        ranks: ranks of this ReplicatedJob, if it has any.
    """
    spares, pods = spares_in(job, notes), number(job_spec(job), "completions") or 0
    found = {"WORKER_SEATS": str(pods - min(pods, spares.pods))}
    if spares.jobs:
        found["WORKER_SEAT_JOBS"] = str(replicas_of(job) - spares.jobs)
        found["WORKER_SEAT_JOB_VARIABLES"] = ",".join(variables_of(worker, JOB_INDEX_FIELDS))
    if spares.least_jobs:
        # Webhooks of clusters with TPUs set these for slices, after this one.
        for name, fields, known in (
            ("WORKER_SEAT_JOB_VARIABLES", JOB_INDEX_FIELDS, "MEGASCALE_SLICE_ID"),
            ("WORKER_SEAT_COUNT_VARIABLES", _COUNT_FIELDS, "MEGASCALE_NUM_SLICES"),
            ("WORKER_SEAT_ADDRESS_VARIABLES", _ADDRESS_FIELDS, "MEGASCALE_COORDINATOR_ADDRESS"),
        ):
            found[name] = ",".join(dict.fromkeys([known, *variables_of(worker, fields)]))
    if ranks is not None:
        jobset = f"$({keys.AGENT_VARIABLE_PREFIX}JOBSET_NAME)"
        found["WORKER_MASTER_JOB"] = f"{jobset}-{ranks.master_job}"
        found["WORKER_MASTER_SEAT"] = str(ranks.master_seat)
        found["WORKER_HOSTS"] = ranks.hosts
    return found | {"WORKER_SEAT_VARIABLES": ",".join(index_variables(worker))}


def index_variables(worker: Json) -> list[str]:
    """Return the variables of a container that have the completion index of its pod as value."""
    return list(dict.fromkeys(["JOB_COMPLETION_INDEX", *variables_of(worker, INDEX_FIELDS)]))


def variables_of(worker: Json, fields: tuple[str, ...]) -> list[str]:
    """Return the variables of a container that have a field of its pod as value."""
    return [
        text(each, "name")
        for _, each in objects(worker, "env")
        if text(child(each, "valueFrom", "fieldRef"), "fieldPath") in fields
    ]


def _address(spec: Json, pod: str) -> str:
    """Return the address of a pod, with variables in place of a name that is not known yet."""
    network = child(spec, "network")
    if network.get("enableDNSHostnames") is False:
        return ""
    jobset = f"$({keys.AGENT_VARIABLE_PREFIX}JOBSET_NAME)"
    return f"{jobset}-{pod}.{text(network, 'subdomain') or jobset}"
