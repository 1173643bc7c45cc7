"""Who holds a barrier: the pods that have not come to its epoch, and why, as far as can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain.epochs.decision import expected_pods, leaves_jobs_failed, parse_epoch
from jobsetpy.domain.membership import replicated_job_of

MAX_NAMED: Final = 10
"""So many pods, and Jobs that lack pods, are named; the others are only counted."""


@attrs.frozen
class Laggards:
    """What a barrier waits for.

    Args:
        missing: how many pods, those that do not exist included.
        message: for people.
    """

    missing: int
    message: str


def laggards(
    jobset: JobSet, jobs: Iterable[Job], pods: Iterable[ChildPod], epoch: int, after_s: float
) -> Laggards:
    """Describe what the barrier of ``epoch`` waits for; O(Jobs + pods).

    Args:
        jobset: whose barrier it is.
        jobs: of its current attempt.
        pods: of those Jobs.
        epoch: that all have to come to.
        after_s: how long the barrier has been closed at least.
    """
    behind: list[str] = []
    late = arrived = 0
    present: dict[str, int] = {}
    succeeded: dict[str, int] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        owner = pod.metadata.controller_uid
        if pod.status.phase == "Failed":
            continue
        if pod.status.phase == "Succeeded":
            succeeded[owner] = succeeded.get(owner, 0) + 1
            continue
        present[owner] = present.get(owner, 0) + 1
        there = parse_epoch(pod.metadata.annotations.epoch) == epoch
        if there and pod.metadata.deletion_timestamp is None:
            arrived += 1
            continue
        late += 1
        if len(behind) < MAX_NAMED:
            behind.append(f"pod {pod.metadata.name!r} {_state(pod)}")
    lacking: list[str] = []
    made: dict[str, int] = {}
    expected, without_failed = expected_pods(jobset), leaves_jobs_failed(jobset)
    for job in sorted(jobs, key=lambda job: job.metadata.name):
        name, uid = replicated_job_of(job), job.metadata.uid
        made[name] = made.get(name, 0) + 1
        left = max(job.status.succeeded, succeeded.get(uid, 0))
        if without_failed and job.status.failed_condition is not None:
            left = max(left, 1 if job.spec.parallelism is None else job.spec.parallelism)
        expected -= left
        lack = (job.spec.parallelism or 0) - left - present.get(uid, 0)
        if lack > 0:
            lacking.append(f"job {job.metadata.name!r} lacks {_plural(lack, 'pod')}{_why(job)}")
    for item in jobset.spec.replicated_jobs:
        lack = item.replicas - made.get(item.name, 0)
        if lack > 0:
            lacking.append(f"replicated job {item.name!r} lacks {_plural(lack, 'job')}")
    parts = [*behind, *lacking[: MAX_NAMED - len(behind)]]
    more = late + len(lacking) - len(parts)
    if more > 0:
        parts.append(f"and {more} more")
    if arrived > expected:
        parts.append(f"{_plural(arrived - expected, 'pod')} too many")
    missing = max(expected - arrived, 0)
    have = "has" if missing == 1 else "have"
    message = (
        f"{missing} of {_plural(expected, 'pod')} {have} not come to epoch {epoch} for more than "
        f"{after_s:g} s"
    )
    return Laggards(missing, f"{message}: {', '.join(parts)}" if parts else message)


def _why(job: Job) -> str:
    return " (it is suspended)" if job.spec.suspend is True else ""


def _state(pod: ChildPod) -> str:
    status, meta = pod.status, pod.metadata
    parts = []
    if meta.annotations.epoch is None:
        if not pod.spec.node_name:
            parts.append(f"not scheduled: {status.waiting}" if status.waiting else "not scheduled")
        elif status.waiting:
            parts.append(f"no agent yet: {status.waiting}")
        else:
            parts.append("no agent yet")
    else:
        parts.append(f"at epoch {meta.annotations.epoch[:12]}")
        if status.waiting:
            parts.append(status.waiting)
    if meta.deletion_timestamp is not None:
        parts.append("being deleted")
    if pod.spec.node_name:
        parts.append(f"on node {pod.spec.node_name}")
    return f"({', '.join(parts)})"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
