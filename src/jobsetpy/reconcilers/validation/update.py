"""Validation of a change of a JobSet: immutable fields, and the two exceptions.

Of the rules for creation, only those for an added policy (the CRD compares existing policies) and
for a changed coordinator apply again. ReplicatedJobs are immutable, except for the number of pods
of Indexed Jobs (elastic JobSets), and, around a suspension, for resources of containers and five
fields of the pod template that control scheduling (as for a suspended Job of Kubernetes). These
fields are reset to their old values before everything is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobsetpy.api import keys, shapes
from jobsetpy.reconcilers.coscheduling.validation import coscheduling_update
from jobsetpy.reconcilers.failure_policy.validation import failure_policy
from jobsetpy.reconcilers.jobs.template_fields import CONTAINERS, RESOURCES
from jobsetpy.reconcilers.jobs.validation.replicated_jobs import in_place_jobs, too_many_tolerations
from jobsetpy.reconcilers.restart_in_place.injection.options import SETTINGS as INJECTION_SETTINGS
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import WORLD_SIZE
from jobsetpy.reconcilers.restart_in_place.validation.restart_settings import (
    restart_settings_update,
)
from jobsetpy.reconcilers.restart_in_place.validation.spares import spares_update
from jobsetpy.reconcilers.rules.annotations import (
    changed_notes,
    check_annotations,
    note_field,
)
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import (
    IMMUTABLE,
    FieldError,
    forbidden,
    immutable,
    invalid,
)
from jobsetpy.reconcilers.rules.json_equality import same
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, job_spec, number, objects, text
from jobsetpy.reconcilers.rules.membership import MAX_PARALLELISM
from jobsetpy.reconcilers.rules.names import effective_name
from jobsetpy.reconcilers.startup_groups.validation import group_scheduling
from jobsetpy.reconcilers.validation.create import coordinator, gated_fields, in_place_restart

COUNTS = ("parallelism", "completions")
MUTABLE_WHEN_SUSPENDED = (
    ("metadata", "annotations"),
    ("metadata", "labels"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
)
"""Fields of the pod template that may change while a JobSet is, or is being, suspended."""


def validate_update(old: Json, new: Json, *, features: Features | None = None) -> list[FieldError]:
    """Return all errors of a change; empty if it is accepted.

    Args:
        old: stored JobSet as JSON, with its status.
        new: JobSet that replaces it.
        features: enabled feature gates; the defaults if ``None``.
    """
    features = features or Features()
    old_spec, new_spec = child(old, "spec"), child(new, "spec")
    olds = {text(job, "name"): job for _, job in objects(old_spec, "replicatedJobs")}
    problems: list[FieldError] = []
    masked: list[Any] = list(items(new_spec, "replicatedJobs"))
    suspended = old_spec.get("suspend") is True or new_spec.get("suspend") is True
    for at, job in enumerate(masked):
        before = olds.get(text(job, "name")) if isinstance(job, Mapping) else None
        if before is None:
            continue
        if features.elastic_jobset and text(job_spec(job), "completionMode") == "Indexed":
            path = f"spec.replicatedJobs[{at}].template.spec"
            problems += _resized(old, job_spec(before), job_spec(job), path)
            for field in COUNTS:
                masked[at] = _restored(masked[at], before, ("template", "spec", field))
        if suspended and _pod_template(masked[at]) != _pod_template(before):
            if _tolerations(masked[at]) != _tolerations(before):
                problems += too_many_tolerations(masked[at], f"spec.replicatedJobs[{at}]")
            for parent, field in MUTABLE_WHEN_SUSPENDED:
                path_of_field = ("template", "spec", "template", parent, field)
                masked[at] = _restored(masked[at], before, path_of_field)
            if features.mutable_resources:
                masked[at] = _with_resources_of(before, masked[at])
    jobs, _ = shapes.jobset_spec().fields["replicatedJobs"]
    if not same(masked, list(items(old_spec, "replicatedJobs")), jobs):
        problems.append(invalid("spec.replicatedJobs", new_spec.get("replicatedJobs"), IMMUTABLE))
    problems += gated_fields(new_spec, features, old_spec)
    problems += _added(old_spec, new_spec, features)
    problems += _group_added(old, new)
    if old_spec.get("coordinator") != new_spec.get("coordinator"):
        problems += coordinator(new_spec, effective_name(child(new, "metadata")))
    problems += _agent_notes(old, new)
    problems += coscheduling_update(old, new, features)
    problems += check_annotations(new, old).errors
    problems += restart_settings_update(old, new)
    problems += spares_update(old, new)
    if old_spec.get("managedBy") != new_spec.get("managedBy"):
        problems.append(invalid("spec.managedBy", new_spec.get("managedBy"), IMMUTABLE))
    return problems


def _added(old: Json, new: Json, features: Features) -> list[FieldError]:
    """Validate a failure policy that is added by this change."""
    if old.get("failurePolicy") is not None:
        return []
    names = {text(job, "name") for _, job in objects(new, "replicatedJobs")}
    return [
        *in_place_restart(new, features),
        *in_place_jobs(new, features),
        *failure_policy(new, names, features),
    ]


def _group_added(old: Json, new: Json) -> list[FieldError]:
    """Validate an added startup group."""
    before, after = (child(each, "spec").get("groupSchedulingConfig") for each in (old, new))
    return group_scheduling(new) if before is None and after is not None else []


def _agent_notes(old: Json, new: Json) -> list[FieldError]:
    """Reject changes of the agent's annotations, which are built into the pod templates."""
    before, after = (child(each, "metadata", "annotations") for each in (old, new))
    stated = {keys.IN_PLACE_RESTART_ANNOTATION, keys.IN_PLACE_AGENT_ANNOTATION}
    if not stated & {*before, *after}:
        return []
    return [
        immutable(note_field(name), after.get(name), "agents are added when a JobSet is created")
        for name in changed_notes(old, new, (keys.IN_PLACE_AGENT_ANNOTATION, *INJECTION_SETTINGS))
    ]


def _resized(old: Json, before: Json, after: Json, path: str) -> Iterator[FieldError]:
    """Validate new numbers of pods; empty if they did not change."""
    counts = {name: number(after, name) for name in COUNTS}
    changed = [name for name, value in counts.items() if value != number(before, name)]
    if not changed:
        return
    if _finished(old):
        yield forbidden(path, "a JobSet in a terminal state cannot be scaled")
        return
    ranks = _fixed_ranks(before)
    if ranks:
        yield invalid(f"{path}.{changed[0]}", counts[changed[0]], ranks)
    for name in changed:
        value = counts[name]
        if value is None:
            # Running Jobs keep their size, and their pods would wait for a group of another size.
            why = "must stay set, since running Jobs cannot be resized to nothing"
            yield invalid(f"{path}.{name}", None, why)
        elif not 1 <= value <= MAX_PARALLELISM:
            yield invalid(f"{path}.{name}", value, f"{name} must be >= 1, <= {MAX_PARALLELISM}")
    if None not in counts.values() and counts["parallelism"] != counts["completions"]:
        why = "completions must be equal to parallelism for Elastic Indexed Jobs"
        yield invalid(f"{path}.completions", counts["completions"], why)


def _fixed_ranks(template: Json) -> str:
    """Return why a Job whose pods have ranks cannot be resized; "" if they have none."""
    for _, container in objects(child(template, "template", "spec"), "containers"):
        for _, variable in objects(container, "env"):
            name = text(variable, "name")
            if name in {WORLD_SIZE, f"{keys.AGENT_VARIABLE_PREFIX}{WORLD_SIZE}"}:
                return (
                    f"{name} of container {text(container, 'name')!r} is "
                    f"{text(variable, 'value')}, and cannot change: recreate the JobSet"
                )
    return ""


def _finished(jobset: Json) -> bool:
    return any(
        text(condition, "status") == "True"
        and text(condition, "type") in {keys.COMPLETED_CONDITION, keys.FAILED_CONDITION}
        for _, condition in objects(child(jobset, "status"), "conditions")
    )


def _with_resources_of(before: Json, job: Json) -> Json:
    """Return a ReplicatedJob with the requests and limits that its containers had before."""
    spec, old = (child(_pod_template(each), "spec") for each in (job, before))
    for kind in CONTAINERS:
        olds = {text(each, "name"): each for _, each in objects(old, kind)}
        containers = list(items(spec, kind))
        for at, each in objects(spec, kind):
            for name in RESOURCES if text(each, "name") in olds else ():
                old_one = olds[text(each, "name")]
                containers[at] = _restored(containers[at], old_one, ("resources", name))
        if containers:
            path = ("template", "spec", "template", "spec", kind)
            source = {"template": {"spec": {"template": {"spec": {kind: containers}}}}}
            job = _restored(job, source, path)
    return job


def _pod_template(replicated_job: Json) -> Json:
    return child(replicated_job, "template", "spec", "template")


def _tolerations(replicated_job: Json) -> Any:
    return child(_pod_template(replicated_job), "spec").get("tolerations")


def _restored(value: Json, source: Any, path: tuple[str, ...]) -> Any:
    """Return ``value`` with the field at ``path`` copied from ``source``; parts may be shared."""
    first, *rest = path
    given = value.get(first)
    wanted = source.get(first) if isinstance(source, Mapping) else None
    if given == wanted:
        return value
    if not rest:
        return {
            **{name: each for name, each in value.items() if name != first},
            **({} if wanted is None else {first: wanted}),
        }
    inside = given if isinstance(given, Mapping) else {}
    if wanted is None and not inside:
        return value
    return {**value, first: _restored(inside, wanted, tuple(rest))}
