"""Decision on releasing a startup group, progress reports, and missing pods (KEP-498).

The ledger's count shows when to check; the decision is made on the Jobs, each of which has to be
the one that the JobSet currently needs. That is O(Jobs), and happens about once for each attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.failure_policy.decision import split
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.buckets import sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import (
    AttemptKey,
    attempt_of,
    parse_count,
    replicated_job_of,
)
from jobsetpy.reconcilers.rules.names import job_name
from jobsetpy.reconcilers.rules.spares import jobs_to_start, pods_to_start_of_job
from jobsetpy.reconcilers.rules.spares import pods_to_start as pods_to_start_of
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.spec import attempt, startup_group_size, targets

TELL_AFTER_S: Final = 1.0
"""Seconds below which a gathering group is reported only once it is complete."""

COMPLAIN_AFTER_S: Final = 60.0
"""Seconds after which missing pods are reported, at growing intervals."""

NAMED: Final = 5
"""Maximum number of missing pods to name."""

_BEFORE_TIMEOUT_S: Final = 2.0

_gathers: Final = partial(cond.DesiredCondition, keys.GROUP_IN_PROGRESS_CONDITION)


def pods_to_start(jobset: JobSet, jobs: Iterable[Job]) -> int:
    """Return the number of pods that have to start; O(Jobs).

    Pods of Jobs that were created before the JobSet had a group have no barrier and do not count,
    unless the Job is suspended, since it joins the group when it is resumed.

    Args:
        jobset: JobSet with a startup group.
        jobs: all Jobs that it controls.
    """
    group = AttemptKey.of(jobset)
    pods = {item.name: pods_to_start_of(jobset, item) for item in targets(jobset)}
    return startup_group_size(jobset) - sum(
        pods.get(replicated_job_of(job), 0)
        for job in jobs
        if _is_outside(job)
        and attempt_of(job) == group
        and job.metadata.deletion_timestamp is None
        and job.spec.suspend is not True
    )


def _is_outside(job: Job) -> bool:
    """Return True if it was created before the JobSet had a group."""
    return keys.GROUP_ATTEMPT not in job.metadata.annotations


def released_attempt(
    jobset: JobSet, jobs: Iterable[Job], ledger: StartLedger, features: Features
) -> int:
    """Return the attempt to release: that of the newest Job, if all pods of the group have started.

    Args:
        jobset: the cached JobSet, perhaps older than its Jobs.
        jobs: all Jobs that it controls.
        ledger: started pods by Job.
        features: the feature gates.

    Returns:
        0 if a Job or pod is missing, or if it cannot be decided yet.
    """
    by_name = {job.metadata.name: job for job in jobs}
    buckets = sort_jobs(jobset, by_name.values(), features)
    stay_failed, _ = split(jobset.spec.failure_policy, buckets.failed)
    given_up = {match.job.metadata.uid for match in stay_failed}
    current = {job.metadata.uid for job in (*buckets.active, *buckets.successful)} | given_up
    now = attempt(jobset)
    newest = 0
    for item in targets(jobset):
        wanted, there = pods_to_start_of(jobset, item), 0
        for index in range(item.replicas):
            job = by_name.get(job_name(jobset.metadata.name, item.name, index))
            if job is None or job.metadata.uid not in current:
                continue
            own = parse_count(job.metadata.annotations.get(keys.GROUP_ATTEMPT, "0"))
            # A Job of an attempt that the cached JobSet does not know yet: wait for the JobSet.
            if own is None or own > now:
                return 0
            if job.status.finished is not None or _all_started(job, wanted, ledger):
                there, newest = there + 1, max(newest, own)
        if there < jobs_to_start(jobset, item):
            return 0
    return newest


def _all_started(job: Job, wanted: int, ledger: StartLedger) -> bool:
    if job.metadata.deletion_timestamp is not None or job.spec.suspend is True:
        return False
    if pods_to_start_of_job(job) < wanted:
        return False  # it grows
    if _is_outside(job):
        return True
    return ledger.missing(job.metadata.uid) == 0


def next_progress(elapsed: float, timeout_s: int | None) -> float | None:
    """Return when to write the number of started pods next, for timeout messages.

    A few times for each attempt, regardless of pods and duration: early, so that pods find a value
    when they start; and shortly before the first of them may time out.

    Args:
        elapsed: seconds since the group began to wait.
        timeout_s: configured timeout in seconds; without one the number is never read.

    Returns:
        Seconds since the beginning; ``None`` for never again.
    """
    if timeout_s is None:
        return None
    moments = [TELL_AFTER_S]
    moments += [timeout_s * share - _BEFORE_TIMEOUT_S for share in (0.25, 0.5, 0.75, 1.0)]
    moments += [timeout_s * share for share in (1.5, 2.0, 4.0, 8.0)]
    return min((at for at in moments if at > max(elapsed, TELL_AFTER_S / 2)), default=None)


def next_complaint(elapsed: float) -> float:
    """Return when to report missing pods next, in seconds since the group began to wait."""
    at = COMPLAIN_AFTER_S
    while at <= elapsed:
        at *= 2
    return at


def missing_pods(
    jobset: JobSet, jobs: Iterable[Job], pods: Iterable[ChildPod], *, limit: int = NAMED
) -> list[str]:
    """Return some of the pods that have not started, with reasons, in the order of the spec.

    O(pods + Jobs).

    Args:
        jobset: JobSet with the desired Jobs.
        jobs: all Jobs that it controls.
        pods: all pods of the namespace, or more.
        limit: maximum number of pods.
    """
    by_name = {job.metadata.name: job for job in jobs}
    by_job: dict[str, list[ChildPod]] = {}
    for pod in pods:
        if pod.metadata.labels.jobset_name == jobset.metadata.name:
            by_job.setdefault(pod.metadata.controller_uid, []).append(pod)
    out: list[str] = []
    for item in targets(jobset):
        for index in range(item.replicas):
            name = job_name(jobset.metadata.name, item.name, index)
            job = by_name.get(name)
            if job is None:
                out.append(f"{name} (its job does not exist)")
            elif job.status.finished is None and not _is_outside(job):
                out += _missing_of(job, by_job.get(job.metadata.uid, ()))
            if len(out) >= limit:
                return out[:limit]
    return out


def _missing_of(job: Job, pods: Sequence[ChildPod]) -> list[str]:
    wanted = pods_at_once(job.spec.parallelism, job.spec.completions, job.status.succeeded)
    attempt = job.metadata.annotations.get(keys.GROUP_ATTEMPT)
    present = [
        pod for pod in pods if pod.live and pod.metadata.annotations.group_attempt == attempt
    ]
    started = sum(pod.status.at_barrier for pod in present)
    if started >= pods_to_start_of_job(job, job.status.succeeded):
        return []  # the others are spares
    out = [f"{pod.metadata.name} ({_why(pod)})" for pod in present if not pod.status.at_barrier]
    return sorted([*out, *_absent(job, present, wanted)])


def _absent(job: Job, present: Sequence[ChildPod], wanted: int) -> list[str]:
    """Return pods of a Job that do not exist."""
    if job.spec.completion_mode == "Indexed":
        there = {pod.metadata.annotations.completion_index for pod in present}
        absent = islice((index for index in range(wanted) if str(index) not in there), NAMED)
        if job.status.succeeded:  # it is unknown which indexes no longer have a pod
            return []
        return [f"{job.metadata.name}-{index} (its pod does not exist)" for index in absent]
    lack = wanted - len(present)
    if lack <= 0:
        return []
    why = "1 pod does not exist" if lack == 1 else f"{lack} pods do not exist"
    return [f"{job.metadata.name} ({why})"]


def _why(pod: ChildPod) -> str:
    if pod.status.phase == "Running":
        return "it runs without the barrier: was the webhook for pods reached when it was made?"
    if not pod.spec.node_name:
        return "not scheduled"
    return f"not started on node {pod.spec.node_name}"


def starting(started: int, expected: int) -> cond.DesiredCondition:
    """Return the condition of a group that gathers."""
    message = (
        f"{started} of {expected} pods have started; their main containers wait for the others"
    )
    return _gathers(True, keys.GROUP_STARTING_REASON, message)


def complaint(
    started: int, expected: int, missing: Sequence[str], after_s: float
) -> cond.DesiredCondition:
    """Return the same condition as a warning when it takes long."""
    more = expected - started - len(missing)
    names = ", ".join(missing) + (f" and {more} more" if more > 0 else "")
    message = f"{started} of {expected} pods have started after {after_s:.0f} s"
    message += f"; missing: {names}" if missing else ""
    return _gathers(True, keys.GROUP_MISSING_REASON, message, cond.WARNING)


def completed(expected: int) -> cond.DesiredCondition:
    """Return the condition of a group that was released."""
    message = f"all {expected} pods have started; their main containers may start"
    condition, reason = keys.GROUP_COMPLETED_CONDITION, keys.GROUP_STARTED_REASON
    return cond.DesiredCondition(condition, True, reason, message)


FINISHED: Final = _gathers(False, keys.GROUP_FINISHED_REASON, "jobset has finished")
SUSPENDED: Final = _gathers(False, keys.GROUP_SUSPENDED_REASON, "jobset is suspended")
GONE: Final = attrs.evolve(SUSPENDED, type=keys.GROUP_COMPLETED_CONDITION)
"""Condition of a suspended JobSet: its pods are deleted, and gather when it is resumed."""
