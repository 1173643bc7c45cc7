"""Gangs that a JobSet requests: by the field ``spec.scheduling`` (KEP-969), or by annotations.

Both have one model. The field names the API server's PodGroups and excludes the annotations:

* ``jobset.sigs.k8s.io/coscheduling`` is the scope: ``JobSet`` (one gang over all targets),
  ``ReplicatedJob`` or ``Job`` (one gang for each).
* ``…-targets``: comma-separated names of the ReplicatedJobs that take part; default all.
* ``…-min-available``: minimum number of pods of a gang that start together; default all. With the
  scopes ``ReplicatedJob`` and ``Job`` it may also be set on a Job template, which then overrides
  the JobSet's.
* ``in-place-restart-start-without-spares: "true"``: a gang of one Job does not wait for its spares.
* ``…-timeout-seconds``: time for which a coscheduler holds reservations of an incomplete gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet, JobSetSpec, ReplicatedJobScheduling
from jobsetpy.reconcilers.rules.json_tree import child, number, text
from jobsetpy.reconcilers.rules.membership import parse_count

JOBSET: Final = "JobSet"
REPLICATED_JOB: Final = "ReplicatedJob"
JOB: Final = "Job"
SCOPES: Final = (JOBSET, REPLICATED_JOB, JOB)

SCHEDULING_FIELD: Final = "spec.scheduling"
_WHOLE: Final = "jobset"
"""Template name of a gang by annotations that spans ReplicatedJobs."""


@attrs.frozen
class GangRequest:
    """Gang of all targets, or a gang for each Job of the only one.

    Args:
        targets: names of ReplicatedJobs.
        title: name for users of the shared gang; "" for the whole JobSet.
        template: name of its template in the ``Workload``; "" for one for each Job.
        minimum: minimum number of pods; ``None`` for all.
        native: further fields of its ``PodGroup``.
        per_job: one gang for each Job.
    """

    targets: tuple[str, ...]
    title: str
    template: str
    minimum: int | None = None
    native: Mapping[str, Any] = attrs.field(factory=dict, eq=False)
    per_job: bool = False


def requests_gangs(jobset: JobSet) -> bool:
    """Return whether a JobSet requests gangs, perhaps in an invalid way."""
    return (
        jobset.spec.scheduling is not None
        or keys.COSCHEDULING_ANNOTATION in jobset.metadata.annotations
    )


def gang_requests(jobset: JobSet) -> list[GangRequest] | None:
    """Return the gangs that a JobSet requests; ``None`` for none, and if the scope is invalid."""
    if jobset.spec.scheduling is not None:
        return _of_field(jobset)
    scope = jobset.metadata.annotations.get(keys.COSCHEDULING_ANNOTATION)
    return None if scope not in SCOPES else _of_annotations(jobset, scope)


def starts_in_order(spec: JobSetSpec) -> bool:
    """Return whether some ReplicatedJobs start after others."""
    return spec.in_order or any(item.depends_on for item in spec.replicated_jobs)


def target_names(value: str) -> list[str]:
    """Return the names in the annotation for targets, without duplicates."""
    return list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def positive(value: object) -> int | None:
    """Return a decimal number from 1 to 2³¹-1, or ``None`` if the value is not one as text."""
    number = (parse_count(value) if isinstance(value, str) else None) or 0
    return number if 0 < number <= keys.INT32_MAX else None


def _of_annotations(jobset: JobSet, scope: str) -> list[GangRequest]:
    notes = jobset.metadata.annotations
    given = set(target_names(notes.get(keys.COSCHEDULING_TARGETS_ANNOTATION, "")))
    general = positive(notes.get(keys.COSCHEDULING_MIN_ANNOTATION))
    items = [each for each in jobset.spec.replicated_jobs if not given or each.name in given]
    if scope == JOBSET:
        return [GangRequest(tuple(each.name for each in items), "", _WHOLE, general)]
    out = []
    for item in items:
        own = child(item.template, "metadata", "annotations")
        least = positive(text(own, keys.COSCHEDULING_MIN_ANNOTATION))
        minimum = general if least is None else least
        out.append(GangRequest((item.name,), item.name, item.name, minimum, per_job=scope == JOB))
    return out


def _of_field(jobset: JobSet) -> list[GangRequest]:
    scheduling, names = jobset.spec.scheduling, [i.name for i in jobset.spec.replicated_jobs]
    assert scheduling is not None, "the JobSet has no field for its gangs"
    if scheduling.replicated_jobs:
        return [_of_entry(each) for each in scheduling.replicated_jobs]
    native = {
        "schedulingPolicy": scheduling.scheduling_policy,
        "schedulingConstraints": scheduling.scheduling_constraints,
        "disruptionMode": scheduling.disruption_mode,
    }
    if starts_in_order(jobset.spec):
        # One gang would wait for pods that start only after its first ones.
        return [_request((name,), name, name, native) for name in names]
    return [_request(names, "", jobset.metadata.name, native)]


def _of_entry(entry: ReplicatedJobScheduling) -> GangRequest:
    names = entry.target_replicated_jobs
    if entry.job is not None:
        return _request(names, "", "", entry.job, per_job=True)
    native = {
        "schedulingPolicy": entry.scheduling_policy,
        "schedulingConstraints": entry.scheduling_constraints,
        "disruptionMode": entry.disruption_mode,
        "resourceClaims": entry.resource_claims,
    }
    return _request(names, "+".join(names), "-".join(names), native)


def _request(
    targets: Iterable[str],
    title: str,
    template: str,
    native: Mapping[str, Any],
    *,
    per_job: bool = False,
) -> GangRequest:
    policy = child(native, "schedulingPolicy")
    return GangRequest(
        tuple(targets),
        title,
        template,
        1 if "basic" in policy else number(child(policy, "gang"), "minCount"),
        {
            name: value
            for name, value in native.items()
            if value and (name != "schedulingPolicy" or "basic" in policy)
        },
        per_job,
    )
