"""Numbers of ready, active, suspended, successful and failed Jobs of each ReplicatedJob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, ReplicatedJobStatus
from jobsetpy.reconcilers.rules.buckets import Buckets
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import pods_at_once, pods_of, replicated_job_of
from jobsetpy.reconcilers.rules.spares import seats_of_job, working_jobs


def is_ready(job: Job) -> bool:
    """Return whether the Job has as many ready or succeeded pods as it can have, without spares."""
    return job.status.succeeded + (job.status.ready or 0) >= seats_of_job(job)


def lacks_pods(job: Job) -> bool:
    """Return whether a started Job is missing pods that the Job controller should have created."""
    spec, status = job.spec, job.status
    if status.start_time is None or spec.suspend is True or status.finished is not None:
        return False
    wanted = pods_at_once(spec.parallelism, spec.completions, status.succeeded)
    return status.active + (status.terminating or 0) < wanted


def ready_pods(jobset: JobSet, jobs: Iterable[Job]) -> str:
    """Return the number of ready pods out of all, in the format of ``status.readyPods``.

    Args:
        jobset: JobSet whose spec gives the number of pods.
        jobs: Jobs of the current attempt.
    """
    return f"{sum(job.status.ready or 0 for job in jobs)}/{pods_of(jobset)}"


def replicated_job_statuses(
    jobset: JobSet, buckets: Buckets, features: Features
) -> tuple[ReplicatedJobStatus, ...]:
    """Count the Jobs of the current attempt for every ReplicatedJob.

    ``ready``, ``active`` and ``suspended`` may overlap. Jobs of unknown ReplicatedJobs are not
    counted. The order is descending by name, for compatibility with stored JobSets.
    """
    # ready, succeeded, failed, active, suspended
    counts = {item.name: [0, 0, 0, 0, 0] for item in jobset.spec.replicated_jobs}
    for job in buckets.active:
        count = counts.get(replicated_job_of(job))
        if count is None:
            continue
        count[0] += is_ready(job)
        count[3] += job.status.active > 0
        count[4] += job.spec.suspend is True
    for slot, jobs in ((1, buckets.successful), (2, buckets.failed)):
        for job in jobs:
            count = counts.get(replicated_job_of(job))
            if count is not None:
                count[slot] += 1
    old = {item.name: item for item in jobset.status.replicated_jobs_status}
    out = []
    for name in sorted(counts, reverse=True):
        ready, succeeded, failed, active, suspended = counts[name]
        kept = old.get(name) if features.restart_job else None
        out.append(
            ReplicatedJobStatus(
                name=name,
                ready=ready,
                succeeded=succeeded,
                failed=failed,
                active=active,
                suspended=suspended,
                job_restarts=kept.job_restarts if kept else (),
                job_restarts_count_towards_max=kept.job_restarts_count_towards_max if kept else (),
            )
        )
    return tuple(out)


def without_suspended(
    statuses: tuple[ReplicatedJobStatus, ...], buckets: Buckets
) -> tuple[ReplicatedJobStatus, ...]:
    """Return counters for decisions: a suspended Job is not ready, even if all its pods succeeded.

    The stored counters include it, for compatibility.
    """
    if not any(item.suspended and item.ready for item in statuses):
        return statuses
    suspended = Counter(
        replicated_job_of(job)
        for job in buckets.active
        if job.spec.suspend is True and is_ready(job)
    )
    return tuple(evolve(item, ready=item.ready - suspended[item.name]) for item in statuses)


def all_jobs_ready(
    jobset: JobSet, statuses: Iterable[ReplicatedJobStatus], *, stay_failed: int = 0
) -> bool:
    """Return whether every Job is ready or has succeeded, apart from spare and failed ones."""
    wanted = working_jobs(jobset)
    there = {item.name: item.ready + item.succeeded for item in statuses}
    missing = sum(max(0, count - there.get(name, 0)) for name, count in wanted.items())
    return missing <= stay_failed
