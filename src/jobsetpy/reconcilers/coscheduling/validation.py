"""Rules for JobSets that request gangs, by annotations or by ``spec.scheduling``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backends import DEFAULT_SCHEDULER
from jobsetpy.reconcilers.coscheduling.field_validation import (
    TargetJobs,
    excluded_annotations,
    gang_annotations,
    has_field,
    pods_of_job,
    scheduling_field,
    scheduling_update,
    targets_of_field,
)
from jobsetpy.reconcilers.coscheduling.gangs import LABELS
from jobsetpy.reconcilers.coscheduling.requests import (
    JOB,
    JOBSET,
    SCHEDULING_FIELD,
    positive,
    target_names,
)
from jobsetpy.reconcilers.rules.annotations import changed_notes, note_field
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    FieldWarning,
    forbidden,
    immutable,
    invalid,
    plain,
    required,
)
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    child,
    job_spec,
    objects,
    pod_spec,
    text,
)
from jobsetpy.reconcilers.rules.replicated_jobs import order_problems, replicas_of
from jobsetpy.reconcilers.rules.spares import spares_in

SETTINGS: Final = (
    keys.COSCHEDULING_TARGETS_ANNOTATION,
    keys.COSCHEDULING_MIN_ANNOTATION,
    keys.COSCHEDULING_TIMEOUT_ANNOTATION,
    keys.COSCHEDULING_CAPACITY_ANNOTATION,
)


def coscheduling(jobset: Json, features: Features) -> list[FieldError]:
    """Validate the coscheduling of a new JobSet; empty if it requests none."""
    notes = child(jobset, "metadata", "annotations")
    spec = child(jobset, "spec")
    scope = notes.get(keys.COSCHEDULING_ANNOTATION)
    if scope is not None and not features.coscheduling:
        why = "is not allowed while the feature gate Coscheduling is disabled"
        return [plain(f"annotation {keys.COSCHEDULING_ANNOTATION} {why}")]
    if has_field(spec) and not features.coscheduling:
        return [forbidden(SCHEDULING_FIELD, "the feature gate Coscheduling is disabled")]
    if has_field(spec):
        groups, by = targets_of_field(spec), SCHEDULING_FIELD
        problems = [
            *excluded_annotations(jobset),
            *scheduling_field(spec),
            *_own_gangs(objects(spec, "replicatedJobs"), by),
        ]
    elif scope is None:
        idle = sorted({*gang_annotations(jobset).values()} & {*SETTINGS})
        why = f"{', '.join(idle)} has no effect without it"
        return [required(note_field(keys.COSCHEDULING_ANNOTATION), why)] if idle else []
    elif problems := _targets(notes, spec):
        return problems
    else:
        targets, by = _target_jobs(notes, spec), keys.COSCHEDULING_ANNOTATION
        groups = [TargetJobs(targets, scope)]
        problems = [*_minima(notes, targets, scope), *_own_gangs(targets, by)]
    return [
        *problems,
        *(error for group in groups for error in _members(spec, notes, group, by)),
    ]


def _members(spec: Json, notes: Json, group: TargetJobs, by: str) -> Iterator[FieldError]:
    """Validate the templates of the pods of a gang."""
    yield from _reserved(group.jobs, by)
    yield from _placement(notes, group.jobs)
    yield from _spares(notes, group, by)
    if group.scope == JOBSET:
        names = {text(job, "name") for _, job in group.jobs}
        yield from order_problems(spec, names, "pods of one gang start together")
        yield from _alike(group.jobs)


def coscheduling_update(old: Json, new: Json, features: Features) -> list[FieldError]:
    """Validate a change: gangs keep their pods, but their minimum may change."""
    after = child(new, "metadata", "annotations")
    problems = [*scheduling_update(old, new)]
    before, current = (child(each, "spec").get("scheduling") for each in (old, new))
    if not problems and before != current:
        return coscheduling(new, features)
    changed = changed_notes(old, new, (keys.COSCHEDULING_ANNOTATION, *SETTINGS))
    problems += [
        immutable(note_field(name), after.get(name), "pods are in their groups already")
        for name in changed
        if name in {keys.COSCHEDULING_ANNOTATION, keys.COSCHEDULING_TARGETS_ANNOTATION}
    ]
    by_field = has_field(child(new, "spec"))
    if problems or not (by_field or keys.COSCHEDULING_ANNOTATION in after):
        return problems
    # No upper bound of an annotation's minimum: a gang that is smaller than it needs all its pods.
    by = SCHEDULING_FIELD if by_field else keys.COSCHEDULING_ANNOTATION
    targets, olds = (_target_jobs(after, child(each, "spec")) for each in (new, old))
    known, found = _own_gangs(olds, by), _own_gangs(targets, by)
    if by_field:
        known += excluded_annotations(old)
        found += excluded_annotations(new)
    return [*_reserved(targets, by), *(each for each in found if each not in known)]


def coscheduling_warnings(jobset: Json) -> list[FieldWarning]:
    """Return warnings about settings of gangs, and their labels in templates, of a new JobSet."""
    out = []
    if keys.COSCHEDULING_CAPACITY_ANNOTATION in child(jobset, "metadata", "annotations"):
        why = "has no effect: pods of gangs have no scheduling gate, and autoscalers see them"
        out.append(FieldWarning(note_field(keys.COSCHEDULING_CAPACITY_ANNOTATION), why))
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        labels = child(job_spec(job), "template", "metadata", "labels")
        given = labels.get(keys.POD_GROUP_MIN_AVAILABLE)
        if labels.get(keys.POD_GROUP_NAME) and positive(given) is None:
            path = f"spec.replicatedJobs[{at}].template.spec.template.metadata.labels"
            why = (
                f"{given!r} is not a number from 1 to {keys.INT32_MAX} and counts as 1, so each "
                "pod of the group is scheduled by itself"
            )
            out.append(FieldWarning(f"{path}[{keys.POD_GROUP_MIN_AVAILABLE}]", why))
    return out


def _target_jobs(notes: Json, spec: Json) -> list[tuple[int, Json]]:
    """Return the ReplicatedJobs that take part, each with its index."""
    wanted = set(target_names(text(notes, keys.COSCHEDULING_TARGETS_ANNOTATION)))
    return [
        (at, job)
        for at, job in objects(spec, "replicatedJobs")
        if not wanted or text(job, "name") in wanted
    ]


def _targets(notes: Json, spec: Json) -> list[FieldError]:
    given = notes.get(keys.COSCHEDULING_TARGETS_ANNOTATION)
    if given is None:
        return []
    field = note_field(keys.COSCHEDULING_TARGETS_ANNOTATION)
    names = target_names(given) if isinstance(given, str) else []
    known = {text(job, "name") for _, job in objects(spec, "replicatedJobs")}
    return [
        invalid(field, given, f"{name!r} does not appear in .spec.replicatedJobs")
        for name in names
        if name not in known
    ]


def _minima(notes: Json, targets: list[tuple[int, Json]], scope: str) -> Iterator[FieldError]:
    name = keys.COSCHEDULING_MIN_ANNOTATION
    general = notes.get(name)
    if scope == JOBSET:
        size = sum(replicas_of(job) * pods_of_job(job) for _, job in targets)
        yield from _number(general, note_field(name), size, "the group")
    for at, job in targets:
        given = child(job, "template", "metadata", "annotations").get(name)
        own_field = note_field(name, f"spec.replicatedJobs[{at}].template")
        if scope == JOBSET:
            if given is not None:
                why = "the group is all of the JobSet: set it in the JobSet's annotations"
                yield forbidden(own_field, why)
            continue
        size = pods_of_job(job) * (1 if scope == JOB else replicas_of(job))
        chosen = (general, note_field(name)) if given is None else (given, own_field)
        yield from _number(*chosen, size, f"each group of replicatedJob {text(job, 'name')!r}")


def _number(given: Any, field: str, size: int, what: str) -> list[FieldError]:
    if (positive(given) or 0) > size:
        return [invalid(field, given, f"{what} has only {size} pods")]
    return []


def _reserved(targets: list[tuple[int, Json]], by: str) -> list[FieldError]:
    return [
        forbidden(
            f"spec.replicatedJobs[{at}].template.spec.template.metadata.labels[{label}]",
            f"is set by the controller when {by} is given",
        )
        for at, job in targets
        for label in LABELS
        if label in child(job_spec(job), "template", "metadata", "labels")
    ]


def _own_gangs(targets: list[tuple[int, Json]], by: str) -> list[FieldError]:
    """Reject templates with a gang of their own."""
    why = f"excludes {by}: a pod belongs to one group"
    return [
        forbidden(f"spec.replicatedJobs[{at}].template.spec.{path}", why)
        for at, job in targets
        for path, holder in (
            ("scheduling", job_spec(job)),
            ("template.spec.schedulingGroup", child(job_spec(job), "template", "spec")),
        )
        if holder.get(path.rpartition(".")[2]) is not None
    ]


def _placement(notes: Json, targets: list[tuple[int, Json]]) -> Iterator[FieldError]:
    """Reject exclusive placement: followers wait for their leader's node, a gang for all pods."""
    name = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION
    why = (
        "with coscheduling its pods would wait for each other for ever: they have to follow one "
        "that has a node, and it gets one only together with them; use it with "
        f"{keys.NODE_SELECTOR_ANNOTATION}"
    )
    for at, job in targets:
        own = child(job, "template", "metadata", "annotations")
        overrides = own.get(name) is not None
        source = own if overrides else notes
        if source.get(name) is None or keys.NODE_SELECTOR_ANNOTATION in source:
            continue
        if pods_of_job(job) > 1:
            where = f"spec.replicatedJobs[{at}].template" if overrides else ""
            yield forbidden(note_field(name, where), why)


def _spares(notes: Json, group: TargetJobs, by: str) -> list[FieldError]:
    """Reject gangs of several Jobs that start without spares: their minimum is one number."""
    jobs = [replicas_of(job) for _, job in group.jobs if any(spares_in(job, notes))]
    together = (
        sum(replicas_of(job) for _, job in group.jobs)
        if group.scope == JOBSET
        else max(jobs, default=0)
    )
    if group.scope == JOB or not jobs or together < 2:
        return []
    if notes.get(keys.START_WITHOUT_SPARES_ANNOTATION) != "true":
        return []
    why = (
        f"must be {JOB} with the annotation {keys.START_WITHOUT_SPARES_ANNOTATION}: of a gang of "
        "several jobs that many pods could start in the wrong jobs, since spares fill no seat of "
        "another job"
    )
    field = group.path if by == SCHEDULING_FIELD else note_field(by)
    return [invalid(field, group.scope, why)]


_ALIKE: Final = (
    ("priorityClassName", "one priority", ""),
    ("schedulerName", "one scheduler", DEFAULT_SCHEDULER),
)
"""Field, its meaning, and the value that the API server fills in."""


def _alike(targets: list[tuple[int, Json]]) -> Iterator[FieldError]:
    """Validate fields that have to be equal in all pods of a gang, so that it stays together."""
    for name, what, default in _ALIKE:
        values = [(at, text(pod_spec(job), name) or default) for at, job in targets]
        for at, own in values[1:]:
            if own != values[0][1]:
                path = f"spec.replicatedJobs[{at}].template.spec.template.spec.{name}"
                why = f"all pods of a gang must have {what}; other pods have {values[0][1]!r}"
                yield invalid(path, own, why)
