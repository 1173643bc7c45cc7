"""Number of spare pods and spare Jobs of a ReplicatedJob, and of the seats that its workers have.

A Job with S spares has N + S pods and N seats. A seat is a place in the training world: the work of
one completion index, 0 to N - 1, with its ranks. The other pods wait until they take over the seat
of a pod that is lost. Of the R Jobs of a ReplicatedJob, K may be spares as a whole: the seats are
those of R - K Jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.annotations import read
from jobsetpy.api.batch import Job
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.reconcilers.rules.json_tree import Json, child, number, pod_notes
from jobsetpy.reconcilers.rules.membership import parse_count, pods_of_template


class SpareCounts(NamedTuple):
    """Numbers of spares of one ReplicatedJob: pods of each of its Jobs, and whole Jobs.

    ``least`` is the fewest pods of each Job with which it continues, ``least_jobs`` the fewest of
    the Jobs, each of which then has all its pods or none; 0 if all are needed.
    """

    pods: int = 0
    jobs: int = 0
    least: int = 0
    least_jobs: int = 0


_NONE: Final = SpareCounts()
_PODS: Final = keys.IN_PLACE_SPARES_ANNOTATION
_JOBS: Final = keys.IN_PLACE_SPARE_JOBS_ANNOTATION
_LEAST: Final = keys.MIN_PODS_ANNOTATION
_LEAST_JOBS: Final = keys.MIN_REPLICAS_ANNOTATION
_NAMES: Final = (_PODS, _JOBS, _LEAST, _LEAST_JOBS)


def spares_in(replicated_job: Json, notes: Json) -> SpareCounts:
    """Return the numbers of spares that a ReplicatedJob asks for; 0 for invalid ones.

    The annotation of its pod template overrides that of the JobSet, as for all of restart in place.

    Args:
        replicated_job: the ReplicatedJob.
        notes: annotations of the JobSet.
    """
    return _asked(pod_notes(replicated_job), notes)


def _asked(own: Json, notes: Json) -> SpareCounts:
    return SpareCounts(*(read(name, own, notes, default=0) for name in _NAMES))


def spares_of(jobset: JobSet, replicated: ReplicatedJob) -> SpareCounts:
    """Return the numbers of spares of a ReplicatedJob.

    An invalid value is refused at admission; here it reads as 0, as without restart in place.
    """
    if not jobset.spec.restarts_in_place:
        return _NONE
    own = child(replicated.template, "spec", "template", "metadata", "annotations")
    pods, jobs, least, least_jobs = _asked(own, jobset.metadata.annotations)
    pods = pods if pods and pods < pods_of_template(replicated) else 0
    return SpareCounts(
        pods,
        jobs if jobs < replicated.replicas else 0,
        least if least <= pods_of_template(replicated) - pods else 0,
        least_jobs if least_jobs <= replicated.replicas else 0,
    )


def working_jobs(jobset: JobSet) -> dict[str, int]:
    """Return by ReplicatedJob the number of Jobs whose pods work at the same time."""
    return {
        item.name: item.replicas - spares_of(jobset, item).jobs
        for item in jobset.spec.replicated_jobs
    }


def spares_by_name(jobset: JobSet) -> dict[str, SpareCounts]:
    """Return the spares by name of the ReplicatedJob.

    Empty if the JobSet has no spares; otherwise the manager assigns all seats.
    """
    spares = {item.name: spares_of(jobset, item) for item in jobset.spec.replicated_jobs}
    return spares if any(map(any, spares.values())) else {}


def spare_annotations(spares: SpareCounts | None) -> dict[str, str]:
    """Return the annotations of a Job and its pods; none in a JobSet without spares."""
    if spares is None:
        return {}
    given = zip(_NAMES, spares, strict=True)
    return {name: str(count) for name, count in given if count or name == _PODS}


def spares_of_job(job: Job) -> int | None:
    """Return the number of spares of a Job; ``None`` if its JobSet has none at all.

    The manager has set the annotation on the Job, and on its pods.
    """
    spares: int | None = read(_PODS, job.metadata.annotations)
    return None if spares is None else min(spares, _pods_at_once(job))


def seats_of_job(job: Job) -> int:
    """Return the number of pods of a Job that work at the same time."""
    return _pods_at_once(job) - (spares_of_job(job) or 0)


def fewest_of_job(job: Job) -> int:
    """Return the fewest pods with which a Job continues; 0 if it needs all."""
    least: int = read(_LEAST, job.metadata.annotations, default=0)
    return least


def fewest_with(job: Job) -> int:
    """Return the fewest Jobs of a Job's ReplicatedJob that continue; 0 if all are needed."""
    least: int = read(_LEAST_JOBS, job.metadata.annotations, default=0)
    return least


def working_with(job: Job) -> int:
    """Return the number of Jobs of a Job's ReplicatedJob that have seats; 0 if all have."""
    meta = job.metadata
    spares: int = read(_JOBS, meta.annotations, default=0)
    replicas = parse_count(meta.labels.get(keys.REPLICATED_JOB_REPLICAS)) or 0
    return replicas - spares if 0 < spares < replicas else 0


def _pods_at_once(job: Job) -> int:
    """Return the number of pods that a Job runs in parallel, before any of them succeeds."""
    return pods_at_once(job.spec.parallelism, job.spec.completions)


def starts_without_spares(jobset: JobSet) -> bool:
    """Return True if a JobSet's pods start together as soon as they can fill all seats."""
    return jobset.metadata.annotations.get(keys.START_WITHOUT_SPARES_ANNOTATION) == "true"


def pods_to_start(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of pods of a Job that are waited for before any of them starts."""
    pods = pods_of_template(replicated)
    return pods - spares_of(jobset, replicated).pods if starts_without_spares(jobset) else pods


def jobs_to_start(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of a ReplicatedJob's Jobs that a startup group waits for."""
    spare = spares_of(jobset, replicated).jobs if starts_without_spares(jobset) else 0
    return replicated.replicas - spare


def pods_to_start_of_job(job: Job, succeeded: int = 0) -> int:
    """Return :func:`pods_to_start` of a Job in a startup group, without its succeeded pods."""
    if keys.START_WITHOUT_SPARES_ANNOTATION in job.metadata.annotations:
        return max(0, seats_of_job(job) - succeeded)
    return pods_at_once(job.spec.parallelism, job.spec.completions, succeeded)


def success_policy(job_spec: Mapping[str, Any], spares: int) -> dict[str, Any]:
    """Return fields of a Job with spares: it is complete when all seats have succeeded.

    The Job controller then ends the spares
    (https://kubernetes.io/docs/concepts/workloads/controllers/job/#success-policy).
    """
    pods = number(job_spec, "completions")
    if not spares or pods is None:
        return {}
    return {"successPolicy": {"rules": [{"succeededCount": pods - spares}]}}
