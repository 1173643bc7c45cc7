"""Validation of spares: what a seat's next holder could not take over is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jobsetpy.api import keys
from jobsetpy.reconcilers.failure_policy.actions import FAIL_JOB
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import (
    INDEX_FIELDS,
    JOB_INDEX_FIELDS,
    OTHER_JOB_FIELDS,
    index_variables,
    variables_of,
)
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place, supervised
from jobsetpy.reconcilers.rules.annotations import changed_notes, holders, note_field
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    forbidden,
    immutable,
    invalid,
    required,
)
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    child,
    items,
    job_spec,
    number,
    objects,
    pod_notes,
    pod_spec,
    text,
    texts,
)
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of
from jobsetpy.reconcilers.rules.spares import spares_in

_NAME = keys.IN_PLACE_SPARES_ANNOTATION
_START = keys.START_WITHOUT_SPARES_ANNOTATION
_JOBS = keys.IN_PLACE_SPARE_JOBS_ANNOTATION
_LEAST = keys.MIN_PODS_ANNOTATION
_LEAST_JOBS = keys.MIN_REPLICAS_ANNOTATION
_MINIMA = (_LEAST, _LEAST_JOBS)
_NAMES = (_NAME, _JOBS, *_MINIMA)
_OF_LEAST = (keys.MIN_PODS_AFTER_ANNOTATION, keys.GROW_AFTER_ANNOTATION)
_PARTIAL = keys.KUEUE_MIN_PARALLELISM_ANNOTATION
_COUNTS = ("NNODES", "PET_NNODES", "NUM_NODES", "NUM_PROCESSES", "JAX_NUM_PROCESSES")
"""Variables in which programs expect the number of pods or ranks."""
_COUNT_OPTION = re.compile(
    r"--(?:nnodes|num[-_](?:nodes|machines|processes)|world[-_]size)[= ]+(?!1\b)[0-9]+(?![0-9:])"
)
"""Option of a launcher with a fixed number of them; torchrun's ``MIN:MAX`` is none."""


def spares(jobset: Json) -> list[FieldError]:
    """Return errors about spares of a new JobSet, after injection of its agents."""
    spec, notes = child(jobset, "spec"), child(jobset, "metadata", "annotations")
    given = [
        (note_field(name, each.path), each.notes[name])
        for each in holders(jobset)
        for name in _NAMES
        if name in each.notes
    ]
    names = {name: each.path for each in holders(jobset) for name in each.notes}
    start = list(_useless(notes, names))
    if not given or start:
        return start
    if not restarts_in_place(spec):
        why = f"has no effect unless restartStrategy is {keys.IN_PLACE_RESTART}"
        return [invalid(field, value, why) for field, value in given]
    problems: list[FieldError] = []
    jobs = list(objects(spec, "replicatedJobs"))
    if any(any(spares_in(job, notes)) for _, job in jobs):
        for at, job in jobs:
            problems += _job(job, notes, f"spec.replicatedJobs[{at}].template.spec")
        problems += _coordinator(spec, notes)
    for name, found in ((_JOBS, "jobs"), (_LEAST, "least"), (_LEAST_JOBS, "least_jobs")):
        if any(getattr(spares_in(job, notes), found) for _, job in jobs):
            problems += _rules(spec, name)
    return problems


def _rules(spec: Json, name: str) -> Iterator[FieldError]:
    """Return errors for rules that leave Jobs failed: none could take over their seats."""
    why = (
        f"a job that stays failed would keep its seats: with {name}, remove the rule, or let it "
        "restart the jobs"
    )
    for at, rule in objects(child(spec, "failurePolicy"), "rules"):
        if text(rule, "action") == FAIL_JOB:
            yield invalid(f"spec.failurePolicy.rules[{at}].action", FAIL_JOB, why)


def _useless(notes: Json, names: Mapping[str, object]) -> Iterator[FieldError]:
    """Return errors in annotations of the JobSet without those that they belong to."""
    for name, needed in ((_START, (_NAME, _JOBS)), *((each, _MINIMA) for each in _OF_LEAST)):
        if notes.get(name) is not None and not any(each in names for each in needed):
            yield invalid(note_field(name), notes[name], f"has no effect without {needed[0]}")


def spares_update(old: Json, new: Json) -> list[FieldError]:
    """Return errors for numbers of spares that were changed on pod templates.

    Annotations of a suspended JobSet's templates may change; pods have their seats' number built
    in.
    """
    before = {each.path: each.notes for each in holders(old)}
    after = child(new, "metadata", "annotations").get(_START)
    why = "the Jobs are created for one number of pods"
    problems = [
        immutable(note_field(name), after, why) for name in changed_notes(old, new, [_START])
    ]
    return problems + [
        immutable(note_field(name, each.path), each.notes.get(name), why)
        for each in holders(new)
        for name in _NAMES
        if each.job and each.notes.get(name) != before.get(each.path, each.notes).get(name)
    ]


def _job(job: Json, notes: Json, path: str) -> Iterator[FieldError]:
    """Return errors in one ReplicatedJob of a JobSet with spares."""
    spec, count = job_spec(job), spares_in(job, notes)
    mode = spec.get("completionMode")
    if mode != "Indexed":
        why = "seats are completion indexes: it must be Indexed, with spares in the JobSet"
        yield invalid(f"{path}.completionMode", mode, why)
    if not any(count):
        return
    pods, jobs = number(spec, "completions") or 0, replicas_of(job)
    most = (
        (_NAME, count.pods, pods, f"a job of {text(job, 'name')!r} has {pods} pods"),
        (_JOBS, count.jobs, jobs, f"{text(job, 'name')!r} has {jobs} jobs (replicas)"),
    )
    for name, spare, there, what in most:
        if spare and spare >= there:
            why = f"{what}, spares included, and at least one must work"
            yield invalid(_stated_at(name, job, path), str(spare), why)
    if count.least or count.least_jobs:
        yield from _fewest(job, notes, path)
    for name, why in (
        ("successPolicy", "the manager sets it: a job is complete when all seats have succeeded"),
        ("backoffLimitPerIndex", "a spare may fail at any time: it must not fail its index"),
    ):
        if spec.get(name) is not None:
            yield forbidden(f"{path}.{name}", f"with spares or a minimum, {why}")
    pod = pod_spec(job)
    fields = INDEX_FIELDS + (JOB_INDEX_FIELDS if count.jobs or count.least_jobs else ())
    fields += OTHER_JOB_FIELDS if count.least_jobs else ()
    for at, container in objects(pod, "containers"):
        if supervised({"containers": [container]}):
            where = f"{path}.template.spec.containers[{at}]"
            yield from _worker(container, where, fields)
    yield from _files(pod, f"{path}.template.spec", fields)


def _stated_at(name: str, job: Json, path: str) -> str:
    """Return the field of an annotation: of the Job's pods if they have it, else of the JobSet."""
    return note_field(name, f"{path}.template" if name in pod_notes(job) else "")


def _fewest(job: Json, notes: Json, path: str) -> Iterator[FieldError]:
    """Return errors about the fewest pods, or Jobs, with which a ReplicatedJob continues."""
    count = spares_in(job, notes)
    seats = (number(job_spec(job), "completions") or 0) - count.pods
    used, jobs, name = _LEAST if count.least else _LEAST_JOBS, replicas_of(job), text(job, "name")
    if count.least > seats:
        why = f"a job of {name!r} has {seats} pods that work: state that many at most"
        yield invalid(_stated_at(_LEAST, job, path), str(count.least), why)
    if count.least_jobs > jobs:
        why = f"{name!r} has {jobs} jobs (replicas): state that many at most"
        yield invalid(_stated_at(_LEAST_JOBS, job, path), str(count.least_jobs), why)
    for other, units in ((_JOBS, count.jobs), (_LEAST_JOBS, count.least and count.least_jobs)):
        if units:
            why = f"has whole jobs as units: remove {used} or this annotation"
            yield forbidden(_stated_at(other, job, path), why)
    for holder, where in ((notes, ""), (child(job, "template", "metadata", "annotations"), path)):
        if _PARTIAL in holder:
            # The manager would set back the number of pods that Kueue has reduced.
            why = f"all pods are admitted, {used} is for those that are lost: remove one of both"
            yield forbidden(note_field(_PARTIAL, where.removesuffix(".spec")), why)
    why = f"cannot change with the number of pods: with {used}, read WORLD_SIZE"
    for at, container in objects(pod_spec(job), "containers"):
        where = f"{path}.template.spec.containers[{at}]"
        for nth, each in objects(container, "env"):
            if text(each, "name") in _COUNTS and each.get("value") is not None:
                yield invalid(f"{where}.env[{nth}].value", each["value"], why)
        for part in ("command", "args"):
            if found := _COUNT_OPTION.search(" ".join(texts(container, part))):
                yield invalid(f"{where}.{part}", found[0], why)


def _files(pod: Json, path: str, fields: tuple[str, ...]) -> list[FieldError]:
    """Return errors for volumes with an index that follows the seat of the pod in a file."""
    sources = [(f"volumes[{at}]", volume) for at, volume in objects(pod, "volumes")]
    sources += [
        (f"{field}.projected.sources[{nth}]", source)
        for field, volume in tuple(sources)
        for nth, source in objects(child(volume, "projected"), "sources")
    ]
    return [
        invalid(
            f"{path}.{field}.downwardAPI.items[{at}].fieldRef.fieldPath",
            source,
            "the file would keep the index of the pod when a seat moves: use a variable",
        )
        for field, volume in sources
        for at, item in objects(child(volume, "downwardAPI"), "items")
        if (source := text(child(item, "fieldRef"), "fieldPath")) in fields
    ]


def _worker(container: Json, path: str, fields: tuple[str, ...]) -> Iterator[FieldError]:
    """Return errors in the container that the supervisor runs; ``fields`` follow the seat."""
    env = objects(container, "env")
    names = {text(each, "name") for _, each in env}
    if f"{keys.AGENT_VARIABLE_PREFIX}WORKER_PROCESSES" not in names:
        why = (
            "ranks and the address of the first one follow the seats: with spares or "
            "a minimum, say how many processes a pod has"
        )
        yield required(note_field(keys.IN_PLACE_PROCESSES_ANNOTATION), why)
    followers = [*index_variables(container), *variables_of(container, fields)]
    fixed = "is set when the container starts, and could not follow a seat to another pod"
    for at, each in env:
        if text(each, "name") == "MASTER_ADDR":
            why = "the address of the first rank follows its seat: remove the variable"
            yield forbidden(f"{path}.env[{at}]", why)
        elif _refers(text(each, "value"), followers):
            yield invalid(f"{path}.env[{at}].value", text(each, "value"), fixed)
    for part in ("command", "args"):
        for at, word in enumerate(items(container, part)):
            if isinstance(word, str) and _refers(word, followers):
                yield invalid(
                    f"{path}.{part}[{at}]", word, f"{fixed}: read the variable in the program"
                )
    for at, each in objects(container, "volumeMounts"):
        folder = text(each, "subPathExpr")
        if _refers(folder, followers):
            why = (
                "a folder for each index cannot follow a seat to another pod: mount the volume, "
                "and choose the folder in the program"
            )
            yield invalid(f"{path}.volumeMounts[{at}].subPathExpr", folder, why)


def _refers(value: str, names: list[str]) -> bool:
    return any(f"$({name})" in value for name in names)


def _coordinator(spec: Json, notes: Json) -> Iterator[FieldError]:
    """Return an error for a coordinator that is a spare."""
    chosen = child(spec, "coordinator")
    index, job_index = number(chosen, "podIndex") or 0, number(chosen, "jobIndex") or 0
    for _, job in objects(spec, "replicatedJobs"):
        if text(job, "name") != text(chosen, "replicatedJob"):
            continue
        spares = spares_in(job, notes)
        seats = (number(job_spec(job), "completions") or 0) - spares.pods
        working = (number(job, "replicas") or 0) - spares.jobs
        if seats > index >= spares.least > 0:
            why = f"may be missing: {_LEAST} leaves the lowest {spares.least} pods of a job"
            yield invalid("spec.coordinator.podIndex", index, why)
        if index >= seats > 0:
            yield invalid(
                "spec.coordinator.podIndex", index, f"is a spare: a job has {seats} seats"
            )
        elif job_index >= working > 0:
            why = f"is a spare job: {working} of the jobs have seats, from index 0"
            yield invalid("spec.coordinator.jobIndex", job_index, why)
