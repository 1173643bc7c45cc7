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
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.reconcilers.rules.json_tree import child, number
from jobsetpy.reconcilers.rules.membership import parse_count, pods_at_once, pods_of_template

MAX_SPARES: Final = 1000
"""Maximum number of spares of a Job, and of spare Jobs of a ReplicatedJob."""


class SpareCounts(NamedTuple):
    """Numbers of spares of one ReplicatedJob: pods of each of its Jobs, and whole Jobs."""

    pods: int = 0
    jobs: int = 0


def parse_spares(value: object) -> int | None:
    """Return the value of an annotation as a number from 0; ``None`` if it is invalid."""
    count = parse_count(value) if isinstance(value, str) else None
    return None if count is None or count > MAX_SPARES else count


def spares_of(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of spares of each Job of a ReplicatedJob.

    The annotation of its pod template overrides that of the JobSet, as for all of restart in place.
    An invalid value is refused at admission; here it reads as 0, as without restart in place.
    """
    spares = _given(jobset, replicated, keys.IN_PLACE_SPARES_ANNOTATION)
    return spares if spares and spares < pods_of_template(replicated) else 0


def spare_jobs_of(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of a ReplicatedJob's Jobs that are spares; by the same rules."""
    spares = _given(jobset, replicated, keys.IN_PLACE_SPARE_JOBS_ANNOTATION)
    return spares if spares < replicated.replicas else 0


def working_jobs_of(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of Jobs of a ReplicatedJob whose pods work at the same time."""
    return replicated.replicas - spare_jobs_of(jobset, replicated)


def working_jobs(jobset: JobSet) -> dict[str, int]:
    """Return :func:`working_jobs_of` for each ReplicatedJob, by name."""
    return {item.name: working_jobs_of(jobset, item) for item in jobset.spec.replicated_jobs}


def _given(jobset: JobSet, replicated: ReplicatedJob, name: str) -> int:
    if not jobset.spec.restarts_in_place:
        return 0
    notes = jobset.metadata.annotations
    own = child(replicated.template, "spec", "template", "metadata", "annotations")
    return parse_spares(own.get(name, notes.get(name))) or 0


def spares_by_name(jobset: JobSet) -> dict[str, SpareCounts]:
    """Return the spares by name of the ReplicatedJob.

    Empty if the JobSet has no spares; otherwise the manager assigns all seats.
    """
    if not jobset.spec.restarts_in_place:
        return {}
    spares = {
        item.name: SpareCounts(spares_of(jobset, item), spare_jobs_of(jobset, item))
        for item in jobset.spec.replicated_jobs
    }
    return spares if any(map(any, spares.values())) else {}


def spare_annotations(spares: SpareCounts | None) -> dict[str, str]:
    """Return the annotations of a Job and its pods; none in a JobSet without spares."""
    if spares is None:
        return {}
    whole = {keys.IN_PLACE_SPARE_JOBS_ANNOTATION: str(spares.jobs)} if spares.jobs else {}
    return {keys.IN_PLACE_SPARES_ANNOTATION: str(spares.pods), **whole}


def spares_of_job(job: Job) -> int | None:
    """Return the number of spares of a Job; ``None`` if its JobSet has none at all.

    The manager has set the annotation on the Job, and on its pods.
    """
    spares = parse_spares(job.metadata.annotations.get(keys.IN_PLACE_SPARES_ANNOTATION))
    return None if spares is None else min(spares, pods_of_job(job))


def seats_of_job(job: Job) -> int:
    """Return the number of pods of a Job that work at the same time."""
    return pods_of_job(job) - (spares_of_job(job) or 0)


def working_with(job: Job) -> int:
    """Return the number of Jobs of a Job's ReplicatedJob that have seats; 0 if all have."""
    meta = job.metadata
    spares = parse_spares(meta.annotations.get(keys.IN_PLACE_SPARE_JOBS_ANNOTATION)) or 0
    replicas = parse_count(meta.labels.get(keys.REPLICATED_JOB_REPLICAS)) or 0
    return replicas - spares if 0 < spares < replicas else 0


def pods_of_job(job: Job) -> int:
    """Return the number of pods that a Job runs in parallel, before any of them succeeds."""
    return pods_at_once(job.spec.parallelism, job.spec.completions)


def starts_without_spares(jobset: JobSet) -> bool:
    """Return True if a JobSet's pods start together as soon as they can fill all seats."""
    return jobset.metadata.annotations.get(keys.START_WITHOUT_SPARES_ANNOTATION) == "true"


def pods_to_start(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of pods of a Job that are waited for before any of them starts."""
    pods = pods_of_template(replicated)
    return pods - spares_of(jobset, replicated) if starts_without_spares(jobset) else pods


def jobs_to_start(jobset: JobSet, replicated: ReplicatedJob) -> int:
    """Return the number of a ReplicatedJob's Jobs that a startup group waits for."""
    early = starts_without_spares(jobset)
    return working_jobs_of(jobset, replicated) if early else replicated.replicas


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
