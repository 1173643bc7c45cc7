"""Ledger of started pods, for all JobSets with a startup group (KEP-498).

See :mod:`reconcilers.rules.membership_ledger`. A pod counts only if it is of its Job's current
attempt: a pod from before a suspension is not a pod of the Job that was resumed. The ledger is
empty while no JobSet uses group scheduling.

Its counts are necessary, not sufficient: they include Jobs that the JobSet no longer needs. The
decision reads the Jobs themselves (``release``).
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.rules.membership import AttemptKey, attempt_of, parse_count
from jobsetpy.reconcilers.rules.membership_ledger import Member, MembershipLedger, add_to
from jobsetpy.reconcilers.rules.spares import pods_to_start_of_job


class _Job(NamedTuple):
    """Counted fields of a Job; ``annotation`` is the attempt as in its pods' annotation."""

    attempt: int
    annotation: str
    finished: bool
    full: int
    want: int

    def missing(self, started: int) -> int:
        """Return the number of its pods that have yet to start, given the started ones."""
        return 0 if self.finished else max(0, self.want - started)

    def counted(self, started: int) -> int:
        """Return how many of the started pods count: at most its desired number, or all."""
        return self.full - self.missing(started)


@attrs.define(eq=False)
class _Counts:
    """Started pods of one Job, by attempt."""

    started: dict[str, int] = attrs.field(factory=dict)

    def count(self, annotation: str, number: int) -> None:
        """Count one more pod of an attempt, or one less."""
        add_to(self.started, annotation, number)

    def of(self, job: _Job) -> int:
        """Return the number of started pods of the Job's current attempt."""
        return self.started.get(job.annotation, 0)

    @property
    def empty(self) -> bool:
        """Return True if nothing is counted."""
        return not self.started


@attrs.define(eq=False)
class _Attempt:
    """Started pods of all Jobs, and number of Jobs by current group attempt."""

    jobs: int = 0
    started: int = 0
    attempts: dict[int, int] = attrs.field(factory=dict)

    def pod_counted(self, job: _Job, counts: _Counts, annotation: str, number: int) -> bool:
        """Count a pod that has started, or that is deleted."""
        if annotation != job.annotation:
            return False
        started = counts.of(job)
        more = job.counted(started) - job.counted(started - number)
        self.started += more
        return more != 0

    def job_changed(self, before: _Job | None, after: _Job | None, counts: _Counts) -> bool:
        """Count a Job that joins, changes or leaves."""
        was, now = _seen(before, counts), _seen(after, counts)
        for job, sign in ((before, -1), (after, 1)):
            if job is not None:
                self.started += sign * job.counted(counts.of(job))
                add_to(self.attempts, job.attempt, sign)
        return was != now


class StartLedger(MembershipLedger[str, _Job, _Counts, _Attempt]):
    """Ledger of started pods per Job and per JobSet's attempt, updated by events in O(1)."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_read_pod, _read_job, _Counts, _Attempt)

    def started(self, group: AttemptKey) -> int:
        """Return the number of started pods that count, over all Jobs of the group."""
        counts = self._attempts.get(group)
        return 0 if counts is None else counts.started

    def attempt(self, group: AttemptKey) -> int:
        """Return the newest attempt of any Job of the group; 0 without Jobs."""
        counts = self._attempts.get(group)
        return 0 if counts is None else max(counts.attempts)

    def missing(self, job_uid: str) -> int | None:
        """Return the number of a Job's pods yet to start; ``None`` if it is in no group."""
        if job_uid not in self._jobs:
            return None
        job, counts = self._jobs[job_uid].job, self._pods.get(job_uid)
        return job.missing(0 if counts is None else counts.of(job))


def _seen(job: _Job | None, counts: _Counts) -> tuple[int, ...] | None:
    """Return the counts of a Job that a decision uses."""
    return job and (job.attempt, job.counted(counts.of(job)), job.full, job.want)


def _read_pod(pod: ChildPod) -> tuple[str, str] | None:
    """Return the controller UID and the group attempt of a started pod."""
    meta = pod.metadata
    attempt = meta.annotations.group_attempt
    if attempt is None or not pod.status.at_barrier or meta.deletion_timestamp is not None:
        return None
    if pod.status.phase in {"Failed", "Succeeded"}:
        return None  # succeeded pods are in their Job's status
    owner = meta.controller_uid
    return (owner, attempt) if owner else None


def _read_job(job: Job) -> Member[_Job] | None:
    annotation = job.metadata.annotations.get(keys.GROUP_ATTEMPT, "")
    attempt = parse_count(annotation)
    key = attempt_of(job) if attempt is not None else None
    if attempt is None or key is None:
        return None
    full, want = pods_to_start_of_job(job), pods_to_start_of_job(job, job.status.succeeded)
    return Member(key, _Job(attempt, annotation, job.status.finished is not None, full, want))
