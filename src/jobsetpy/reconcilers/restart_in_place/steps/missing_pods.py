"""Report of the pods that block a barrier or are missing from a running restart group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.worker_reports import epoch_of
from jobsetpy.reconcilers.restart_in_place.epochs import barrier
from jobsetpy.reconcilers.restart_in_place.job_controller import replacement_delay
from jobsetpy.reconcilers.restart_in_place.job_controller.completions import succeeded
from jobsetpy.reconcilers.restart_in_place.job_controller.template_rules import is_ending
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import Spares
from jobsetpy.reconcilers.rules.in_place_record import is_starting
from jobsetpy.reconcilers.rules.membership import replicated_job_of

MAX_NAMED: Final = 10
"""Maximum number of pods, and Jobs with missing pods, to name; the others are only counted."""


@attrs.frozen
class MissingPods:
    """Pods that a restart group waits for, or that are missing from it.

    Args:
        missing: number of pods, including those that do not exist.
        message: explanation for users.
    """

    missing: int
    message: str


def describe_behind(
    jobset: JobSet,
    jobs: Sequence[Job],
    pods: Sequence[ChildPod],
    spares: Spares,
    epoch: int,
    after_s: float,
) -> MissingPods:
    """Describe the pods that the barrier of ``epoch`` waits for; O(Jobs + pods).

    Args:
        jobset: JobSet with the barrier.
        jobs: Jobs of its current attempt.
        pods: pods of those Jobs.
        spares: seats of those Jobs, if they have spares.
        epoch: epoch that all have to reach.
        after_s: minimum time for which the barrier has been closed, in seconds.
    """
    excused = [job for job in jobs if _stays_failed(jobset, job)]
    missing, expected, details = _lacking(jobset, jobs, pods, spares, epoch, excused)
    message = (
        f"{missing} of {_plural(expected, 'pod')} {_have(missing)} not come to epoch {epoch} for "
        f"more than {after_s:g} s"
    )
    return MissingPods(missing, f"{message}: {details}" if details else message)


def describe_missing(
    jobset: JobSet,
    jobs: Sequence[Job],
    pods: Sequence[ChildPod],
    spares: Spares,
    since: str,
) -> MissingPods:
    """Describe the pods that are missing from a running restart group; O(Jobs + pods).

    Pods of a Job that is about to end are not missing: the failure policy decides what follows.

    Args:
        jobset: JobSet of the group.
        jobs: Jobs of its current attempt.
        pods: pods of those Jobs.
        spares: seats of those Jobs, if they have spares.
        since: time, as "since ..." or "for more than ...".
    """
    excused = [job for job in jobs if _stays_failed(jobset, job) or is_ending(job)]
    epoch = jobset.status.synced_epoch
    missing, expected, details = _lacking(jobset, jobs, pods, spares, epoch, excused)
    message = f"{missing} of {_plural(expected, 'pod')} {_have(missing)} been missing {since}"
    return MissingPods(missing, f"{message}: {details}")


def _stays_failed(jobset: JobSet, job: Job) -> bool:
    return job.status.failed_condition is not None and barrier.leaves_jobs_failed(jobset)


def _lacking(
    jobset: JobSet,
    jobs: Sequence[Job],
    pods: Sequence[ChildPod],
    spares: Spares,
    epoch: int,
    excused: list[Job],
) -> tuple[int, int, str]:
    """Return the numbers of missing and expected pods, without excused Jobs, and a description."""
    away = {job.metadata.uid for job in excused}
    here, behind = _Pods(), []
    spares = spares.at_full_size() if is_starting(jobset) else spares
    expected = barrier.expected_pods(jobset) - sum(one.missing for one in spares.sizes)
    names = {job.metadata.uid: job.metadata.name for job in jobs}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        owner = pod.metadata.controller_uid
        if owner in away or spares.parks(names.get(owner, ""), pod):
            continue
        if here.is_behind(pod, epoch):
            behind.append(pod)
    lacking: list[str] = []
    made: dict[str, int] = {}
    for job in sorted(jobs, key=lambda job: job.metadata.name):
        name, uid = replicated_job_of(job), job.metadata.uid
        made[name] = made.get(name, 0) + 1
        size = spares.size_of(job)
        if size is None:
            continue
        if uid in away:
            expected -= size
            continue
        left = min(succeeded(job, here.succeeded.get(uid, ())), size)
        expected -= left
        lack = size - left - here.present.get(uid, 0)
        if lack > 0:
            lacking.append(
                f"job {job.metadata.name!r} is missing {_plural(lack, 'pod')}{_why(job)}"
            )
    for item in jobset.spec.replicated_jobs:
        lack = item.replicas - made.get(item.name, 0)
        if lack > 0:
            lacking.append(f"replicated job {item.name!r} is missing {_plural(lack, 'job')}")
    parts = [f"pod {pod.metadata.name!r} {_state(pod)}" for pod in behind[:MAX_NAMED]]
    parts += lacking[: MAX_NAMED - len(parts)]
    more = len(behind) + len(lacking) - len(parts)
    if more > 0:
        parts.append(f"and {more} more")
    if here.arrived > expected:
        parts.append(f"{_plural(here.arrived - expected, 'pod')} too many")
    return max(expected - here.arrived, 0), expected, ", ".join(parts)


@attrs.define
class _Pods:
    """Counts of a group's pods: those at the epoch, and live and succeeded ones of each Job."""

    arrived: int = 0
    present: dict[str, int] = attrs.field(factory=dict)
    succeeded: dict[str, list[ChildPod]] = attrs.field(factory=dict)

    def is_behind(self, pod: ChildPod, epoch: int) -> bool:
        """Count a pod; return True if it is live and has not come to the epoch."""
        owner, phase = pod.metadata.controller_uid, pod.status.phase
        if phase == "Succeeded":
            self.succeeded.setdefault(owner, []).append(pod)
        if phase in {"Succeeded", "Failed"}:
            return False
        self.present[owner] = self.present.get(owner, 0) + 1
        arrived = epoch_of(pod) == epoch and pod.metadata.deletion_timestamp is None
        self.arrived += arrived
        return not arrived


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _why(job: Job) -> str:
    why = "it is suspended" if job.spec.suspend is True else replacement_delay.explain(job)
    return f" ({why})" if why else ""


def _state(pod: ChildPod) -> str:
    status, meta = pod.status, pod.metadata
    report = meta.annotations.report
    if report is not None:
        parts = [f"at {'attempt' if meta.annotations.is_attempt else 'epoch'} {report[:12]}"]
        parts += [status.waiting] if status.waiting else []
    else:
        what = "no agent yet" if pod.spec.node_name else "not scheduled"
        parts = [f"{what}: {status.waiting}" if status.waiting else what]
    if meta.deletion_timestamp is not None:
        parts.append("being deleted")
    if pod.spec.node_name:
        parts.append(f"on node {pod.spec.node_name}")
    return f"({', '.join(parts)})"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
