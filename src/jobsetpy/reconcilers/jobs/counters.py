"""Numbers of ready, active, suspended, successful and failed Jobs of each ReplicatedJob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.api.jobset import JobSet, ReplicatedJobStatus
from jobsetpy.api.meta import condition_true
from jobsetpy.reconcilers.rules.buckets import Buckets
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import pods_of, replicated_job_of
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


def _fails_with_pods(job: Job) -> bool:
    """Return whether a Job is about to fail and its last pods still end.

    Such a Job counts as active: its containers run, and it has not failed until all have ended.
    """
    ends = condition_true(job.status.conditions, "FailureTarget") is not None
    return ends and bool(job.status.terminating)


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
    ready: Counter[str] = Counter()
    active: Counter[str] = Counter()
    suspended: Counter[str] = Counter()
    for job in buckets.active:
        name = replicated_job_of(job)
        ready[name] += is_ready(job)
        active[name] += job.status.active > 0 or _fails_with_pods(job)
        suspended[name] += job.spec.suspend is True
    succeeded = Counter(map(replicated_job_of, buckets.successful))
    failed = Counter(map(replicated_job_of, buckets.failed))
    stored = jobset.status.replicated_jobs_status if features.restart_job else ()
    old = {item.name: item for item in stored}
    return tuple(
        evolve(
            old.get(name, ReplicatedJobStatus(name=name)),
            ready=ready[name],
            succeeded=succeeded[name],
            failed=failed[name],
            active=active[name],
            suspended=suspended[name],
        )
        for name in sorted({item.name for item in jobset.spec.replicated_jobs}, reverse=True)
    )


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
