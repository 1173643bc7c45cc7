"""Rules for the field ``spec.scheduling`` (KEP-969), and the groups of ReplicatedJobs in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import Level
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.reconcilers.coscheduling.backends import PODGROUP
from jobsetpy.reconcilers.coscheduling.pod_groups import MAX_TEMPLATES
from jobsetpy.reconcilers.coscheduling.requests import (
    JOB,
    JOBSET,
    REPLICATED_JOB,
    SCHEDULING_FIELD,
)
from jobsetpy.reconcilers.rules.annotations import holders, note_field
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    FieldWarning,
    forbidden,
    invalid,
    required,
    too_many,
)
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, number, objects, text, texts
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of

MAX_CLAIMS: Final = 4
_FIELDS: Final = ("schedulingPolicy", "schedulingConstraints", "disruptionMode", "resourceClaims")
_ENTRIES: Final = f"{SCHEDULING_FIELD}.replicatedJobs"


@attrs.frozen
class TargetJobs:
    """ReplicatedJobs whose pods share a gang, or have one for each Job.

    Args:
        jobs: ReplicatedJobs as JSON, each with its index.
        scope: one of the scopes of the annotation.
        path: path of the fields of its gangs; "" for annotations.
        fields: these fields.
    """

    jobs: list[tuple[int, Json]]
    scope: str
    path: str = ""
    fields: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def pods(self) -> int:
        """Number of pods of each gang."""
        if self.scope == JOB:
            return sum(pods_of_job(job) for _, job in self.jobs)
        return sum(replicas_of(job) * pods_of_job(job) for _, job in self.jobs)

    @property
    def count(self) -> int:
        """Number of gangs."""
        return sum(replicas_of(job) for _, job in self.jobs) if self.scope == JOB else 1


def pods_of_job(job: Json) -> int:
    """Return the number of pods of each Job of a ReplicatedJob."""
    spec = job_spec(job)
    return pods_at_once(number(spec, "parallelism"), number(spec, "completions"))


def has_field(spec: Json) -> bool:
    """Return whether a JobSet requests gangs by the field."""
    return isinstance(spec.get("scheduling"), Mapping)


def targets_of_field(spec: Json) -> list[TargetJobs]:
    """Return the groups of ReplicatedJobs that the field names."""
    scheduling, jobs = child(spec, "scheduling"), objects(spec, "replicatedJobs")
    entries = objects(scheduling, "replicatedJobs")
    if not entries:
        if not is_ordered(spec):
            return [TargetJobs(jobs, JOBSET, SCHEDULING_FIELD, scheduling)]
        return [TargetJobs([each], REPLICATED_JOB, SCHEDULING_FIELD, scheduling) for each in jobs]
    out = []
    for at, entry in entries:
        names, path = texts(entry, "targetReplicatedJobs"), f"{_ENTRIES}[{at}]"
        mine = [each for each in jobs if text(each[1], "name") in names]
        if isinstance(entry.get("job"), Mapping):
            out.append(TargetJobs(mine, JOB, f"{path}.job", entry["job"]))
        else:
            scope = REPLICATED_JOB if len(mine) == 1 else JOBSET
            out.append(TargetJobs(mine, scope, path, entry))
    return out


def is_ordered(spec: Json) -> bool:
    """Return whether some ReplicatedJobs start after others."""
    in_order = text(child(spec, "startupPolicy"), "startupPolicyOrder") == "InOrder"
    return in_order or any(objects(job, "dependsOn") for _, job in objects(spec, "replicatedJobs"))


def gang_annotations(jobset: Json) -> dict[str, str]:
    """Return the annotations that request gangs: their names by their field paths."""
    return {
        note_field(name, each.path): name
        for each in holders(jobset)
        if each.level is not Level.POD
        for name in sorted(each.notes)
        if name.startswith(keys.COSCHEDULING_ANNOTATION)
    }


def excluded_annotations(jobset: Json) -> list[FieldError]:
    """Reject the annotations that the field excludes."""
    why = f"excludes {SCHEDULING_FIELD}: a pod belongs to one group"
    return [forbidden(field, why) for field in gang_annotations(jobset)]


def scheduling_field(spec: Json) -> Iterator[FieldError]:
    """Validate the field by itself."""
    scheduling = child(spec, "scheduling")
    entries = objects(scheduling, "replicatedJobs")
    for name in _FIELDS[:3] if entries else ():
        if scheduling.get(name) is not None:
            yield forbidden(f"{SCHEDULING_FIELD}.{name}", f"excludes {_ENTRIES}: set it in these")
    yield from _entries(spec, entries)
    groups = targets_of_field(spec)
    for group in groups:
        yield from _fields(group)
    if not entries and is_ordered(spec) and _minimum(scheduling) is not None:
        yield forbidden(
            f"{SCHEDULING_FIELD}.schedulingPolicy.gang.minCount",
            "replicatedJobs start in an order, so each has a gang of its own: set it in "
            f"{_ENTRIES}",
        )
    yield from minima(groups)
    if (count := sum(group.count for group in groups)) > MAX_TEMPLATES:
        yield too_many(SCHEDULING_FIELD, count, MAX_TEMPLATES)


def minima(groups: list[TargetJobs]) -> Iterator[FieldError]:
    """Validate minimums against the numbers of pods."""
    for group in groups:
        least = _minimum(group.fields)
        if least is None:
            continue
        field = f"{group.path}.schedulingPolicy.gang.minCount"
        if not isinstance(least, int) or isinstance(least, bool) or least < 1:
            yield invalid(field, least, "must be a number from 1")
        elif least > group.pods:
            yield invalid(field, least, f"each group has only {group.pods} pods")


def scheduling_update(old: Json, new: Json) -> Iterator[FieldError]:
    """Validate a change: the field is immutable unless the JobSet is suspended."""
    before, after = child(old, "spec"), child(new, "spec")
    if before.get("scheduling") == after.get("scheduling"):
        known = list(minima(targets_of_field(before))) if has_field(before) else []
        found = minima(targets_of_field(after)) if has_field(after) else ()
        yield from (each for each in found if each not in known)
    elif before.get("suspend") is not True:
        why = "field is immutable while the JobSet is not suspended: pods are in their groups"
        yield invalid(SCHEDULING_FIELD, after.get("scheduling"), why)


def native_only(spec: Json, backend: str) -> list[FieldWarning]:
    """Return warnings about fields that only the API server's gangs have.

    Args:
        spec: spec of the JobSet.
        backend: current scheduler of gangs, one of ``backends``.
    """
    if backend == PODGROUP or not has_field(spec):
        return []
    why = f"has no effect: gangs are scheduled by {backend!r}, and not by the API server's PodGroup"
    found = {
        f"{group.path}.{name}": None
        for group in targets_of_field(spec)
        for name in _FIELDS[1:]
        if group.fields.get(name)
    }
    return [FieldWarning(field, why) for field in found]


def _entries(spec: Json, entries: list[tuple[int, Json]]) -> Iterator[FieldError]:
    """Validate targets: each ReplicatedJob is in exactly one entry."""
    known = [text(job, "name") for _, job in objects(spec, "replicatedJobs")]
    named = Counter(name for _, each in entries for name in texts(each, "targetReplicatedJobs"))
    for at, entry in entries:
        names, path = texts(entry, "targetReplicatedJobs"), f"{_ENTRIES}[{at}]"
        for nth, name in enumerate(names):
            if name not in known:
                why = "does not appear in .spec.replicatedJobs"
                yield invalid(f"{path}.targetReplicatedJobs[{nth}]", name, why)
            elif named[name] > 1:
                why = "must be in one entry, once"
                yield invalid(f"{path}.targetReplicatedJobs[{nth}]", name, why)
        if not names:
            yield required(f"{path}.targetReplicatedJobs", "names the replicatedJobs of the group")
        if not isinstance(entry.get("job"), Mapping):
            continue
        if len(names) > 1:
            why = "must be one replicatedJob, since each of its Jobs has a group of its own"
            yield invalid(f"{path}.targetReplicatedJobs", names, why)
        for name in _FIELDS:
            if entry.get(name):
                yield forbidden(f"{path}.{name}", f"excludes {path}.job: set it there")
    missing = [name for name in known if name not in named]
    if entries and missing:
        yield required(_ENTRIES, f"must name each replicatedJob: {', '.join(missing)} is missing")


def _fields(group: TargetJobs) -> Iterator[FieldError]:
    """Validate the fields of one group."""
    for name, choice in (("schedulingPolicy", ("gang", "basic")), ("disruptionMode", _MODES)):
        given = group.fields.get(name)
        if isinstance(given, Mapping) and sum(given.get(each) is not None for each in choice) != 1:
            why = f"must have exactly one of {' and '.join(choice)}"
            yield invalid(f"{group.path}.{name}", given, why)
    claims = objects(group.fields, "resourceClaims")
    if len(claims) > MAX_CLAIMS:
        yield too_many(f"{group.path}.resourceClaims", len(claims), MAX_CLAIMS)
    names = Counter(text(claim, "name") for _, claim in claims)
    for at, claim in claims:
        path = f"{group.path}.resourceClaims[{at}]"
        if names[text(claim, "name")] > 1:
            yield invalid(f"{path}.name", text(claim, "name"), "must be unique")
        if sum(bool(text(claim, each)) for each in _CLAIMS) != 1:
            yield invalid(path, dict(claim), f"must have exactly one of {' and '.join(_CLAIMS)}")


_MODES: Final = ("single", "all")
_CLAIMS: Final = ("resourceClaimName", "resourceClaimTemplateName")


def _minimum(fields: Json) -> Any:
    return child(fields, "schedulingPolicy", "gang").get("minCount")
