"""Epochs of all JobSets' pods, counted as they change; see :mod:`domain.membership_ledger`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.epochs.decision import INVALID, Histogram, InvalidEpoch, parse_epoch
from jobsetpy.domain.membership import AttemptKey, attempt_of
from jobsetpy.domain.membership_ledger import MembershipLedger

# What is counted of a pod: its annotation as it is (it is parsed only when something has changed),
# restarts, whether it is being deleted, name and UID; nothing but the fact if it has succeeded.
_Pod: TypeAlias = tuple[str | None, int, bool, str, str] | tuple[()]


class _Job(NamedTuple):
    """What is counted of a Job besides its pods."""

    succeeded: int = 0
    lost: int = 0


class _Counts:
    """Pods of one Job, or of all Jobs of an attempt."""

    __slots__ = ("epochs", "first", "invalid", "leaving", "restarts", "succeeded")

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.first: dict[int, str] = {}
        self.restarts: dict[int, int] = {}
        self.succeeded = 0
        self.leaving = 0
        self.invalid: dict[str, InvalidEpoch] = {}

    def count(self, pod: _Pod, number: int) -> None:
        """Count one more pod, or one less."""
        if not pod:
            self.succeeded += number
            return
        text, restarts, leaving, name, uid = pod
        epoch = parse_epoch(text)
        if epoch > 0:
            self.add(epoch, number, name)
            self.leaving += number * leaving
        elif epoch == INVALID:
            self.note({uid: InvalidEpoch(name, uid, text or "")}, number)
        if restarts:
            _add(self.restarts, restarts, number)

    def merge(self, other: _Counts, sign: int) -> None:
        """Count all that ``other`` has, or take it away."""
        for epoch, count in other.epochs.items():
            self.add(epoch, sign * count, other.first.get(epoch, ""))
        for restarts, count in other.restarts.items():
            _add(self.restarts, restarts, sign * count)
        self.succeeded += sign * other.succeeded
        self.leaving += sign * other.leaving
        self.note(other.invalid, sign)

    def add(self, epoch: int, number: int, name: str) -> None:
        """Count pods at an epoch; ``name`` is one of them."""
        count = _add(self.epochs, epoch, number)
        if not count:
            self.first.pop(epoch, None)
        elif name and count == number:
            self.first[epoch] = name

    def note(self, invalid: Mapping[str, InvalidEpoch], sign: int) -> None:
        """Add pods with unusable annotations, or take them away."""
        if sign > 0:
            self.invalid.update(invalid)
        else:
            for uid in invalid:
                self.invalid.pop(uid, None)

    @property
    def empty(self) -> bool:
        """Whether nothing is counted."""
        return not (self.epochs or self.succeeded or self.invalid or self.restarts)


class _Attempt(_Counts):
    """Pods of all Jobs of an attempt, and what those Jobs' status says."""

    __slots__ = ("jobs", "lost", "succeeded_by_jobs")

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self.succeeded_by_jobs = 0
        self.lost = 0

    def pod_counted(self, job: _Job, counts: _Counts, pod: _Pod, number: int) -> bool:  # noqa: ARG002 - the ledger's protocol
        """A pod counts for the attempt as it does for its Job."""
        self.count(pod, number)
        return True

    def job_changed(self, before: _Job | None, after: _Job | None, counts: _Counts) -> bool:
        """A Job brings its pods, and takes them along."""
        was, now = before or _Job(), after or _Job()
        self.succeeded_by_jobs += now.succeeded - was.succeeded
        self.lost += now.lost - was.lost
        if before is not None and after is not None:
            return was != now
        self.merge(counts, 1 if before is None else -1)
        return not counts.empty or was != now


class EpochLedger(MembershipLedger[_Pod, _Job, _Counts, _Attempt]):
    """Counts of epochs per JobSet and attempt, kept up to date by events in O(1)."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_read_pod, _read_job, _Counts, _Attempt)

    def histogram(self, group: AttemptKey) -> Histogram:
        """The pods of the Jobs of one attempt; a live view, to be used at once.

        Pods that succeeded and were deleted since are still known from their Job's status.
        """
        counts = self._attempts.get(group)
        if counts is None:
            return Histogram()
        succeeded = max(counts.succeeded, counts.succeeded_by_jobs)
        return Histogram(
            counts.epochs, succeeded, counts.first, counts.restarts, counts.lost, counts.leaving
        )

    def invalid(self, group: AttemptKey) -> Mapping[str, InvalidEpoch]:
        """Pods with an unusable annotation, by UID; a live view."""
        counts = self._attempts.get(group)
        return {} if counts is None else counts.invalid


def _add(numbers: dict[int, int], value: int, number: int) -> int:
    """Add to one of some numbers, of which none is 0; returns what it is now."""
    count = numbers.get(value, 0) + number
    if count:
        numbers[value] = count
    else:
        del numbers[value]
    return count


def _read_pod(pod: ChildPod) -> tuple[str, _Pod] | None:
    """Pods that failed, and those that have neither an epoch nor restarts, are not counted."""
    meta, status = pod.metadata, pod.status
    owner, phase = meta.controller_uid, status.phase
    if phase == "Failed" or not owner:
        return None
    if phase == "Succeeded":
        return owner, ()
    text, restarts = meta.annotations.epoch, status.restarts
    if text is None and not restarts:
        return None
    return owner, (text, restarts, meta.deletion_timestamp is not None, meta.name, meta.uid)


def _read_job(job: Job) -> tuple[AttemptKey, _Job] | None:
    key = attempt_of(job)
    return None if key is None else (key, _Job(job.status.succeeded, _lost(job)))


def _lost(job: Job) -> int:
    """How many pods a failed Job would have, had it not failed, and will never have again."""
    if job.status.failed_condition is None:
        return 0
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return max(0, parallelism - job.status.succeeded)
