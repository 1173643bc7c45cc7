"""Ledger of pods per Job and per attempt of a JobSet, updated by events.

A restart of a JobSet with thousands of pods means thousands of pod events. Counting all pods at
each would be quadratic, so counts are kept: an event changes a few numbers, regardless of the
number of pods or Jobs.

The membership of a pod in a JobSet depends on UIDs alone: the pod's controller is a Job, that Job
is in the cache, and that Job's controller is the JobSet. Labels and annotations of a pod prove
nothing, since any client that may create pods can set them. Pods whose Job is not known yet are
stored and count once their Job appears; they stop counting when their Job is deleted. Of a Job's
own labels only the restart attempt is read, which separates the Jobs of one attempt from those of
the previous one. A count by a key that each object carries itself needs no ledger but only an index
of the informer.

A ledger receives every change of a pod or Job, and holds no pods: its size is proportional to Jobs,
not to pods. It subtracts exactly what it has counted of a pod: ``old`` is the state of the previous
event, even when the pod is deleted in another state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.rules.membership import AttemptKey

K = TypeVar("K")
P = TypeVar("P")  # counted fields of a pod
J = TypeVar("J")  # counted fields of a Job


class Member(NamedTuple, Generic[J]):
    """Job of an attempt.

    Args:
        attempt: the attempt.
        job: counted fields of the Job.
    """

    attempt: AttemptKey
    job: J


class JobCounts(Protocol):
    """Counts of one Job's pods."""

    def count(self, pod: Any, number: int) -> None:
        """Count ``number`` (1 or -1) pods like this."""

    @property
    def empty(self) -> bool:
        """Return True if nothing is counted."""


class AttemptCounts(Protocol):
    """Counts of all Jobs of one attempt, and of their pods. Every method takes O(1) for a pod."""

    jobs: int
    """Number of Jobs; maintained by the ledger."""

    def pod_counted(self, job: Any, counts: Any, pod: Any, number: int) -> bool:
        """Count a pod that was counted for a Job; return True if that changes anything.

        Args:
            job: the Job.
            counts: counts of its pods, including this one.
            pod: counted fields of the pod.
            number: 1 or -1.
        """

    def job_changed(self, before: Any, after: Any, counts: Any) -> bool:
        """Count a Job that joins, changes or leaves; return True if that changes anything.

        Args:
            before: the Job before; ``None`` if it joins.
            after: the Job now; ``None`` if it leaves.
            counts: counts of its pods.
        """


C = TypeVar("C", bound=JobCounts)
A = TypeVar("A", bound=AttemptCounts)


def add_to(numbers: dict[K, int], value: K, number: int) -> int:
    """Add to a number in a mapping without zeros and return the new value."""
    count = numbers.get(value, 0) + number
    if count:
        numbers[value] = count
    else:
        del numbers[value]
    return count


class MembershipLedger(Generic[P, J, C, A]):
    """Counts per JobSet and attempt, kept up to date by events in O(1).

    Args:
        read_pod: returns the UID of a pod's controller and the pod's counted fields; ``None`` if it
            does not count.
        read_job: returns the attempt of a Job and its counted fields; ``None`` if it does not
            count.
        new_counts: creates the counts of a Job's pods.
        new_attempt: creates the counts of an attempt.
    """

    __slots__ = (
        *("_attempts", "_jobs", "_new_attempt", "_new_counts", "_nothing", "_pods"),
        *("_read_job", "_read_pod"),
    )

    def __init__(
        self,
        read_pod: Callable[[ChildPod], tuple[str, P] | None],
        read_job: Callable[[Job], Member[J] | None],
        new_counts: Callable[[], C],
        new_attempt: Callable[[], A],
    ) -> None:
        self._read_pod, self._read_job = read_pod, read_job
        self._new_counts = new_counts
        self._nothing = new_counts()  # counts of Jobs without pods; only read
        self._new_attempt = new_attempt
        self._pods: dict[str, C] = {}  # by UID of the controller
        self._jobs: dict[str, Member[J]] = {}  # by UID
        self._attempts: dict[AttemptKey, A] = {}

    def __len__(self) -> int:
        """Return the number of attempts and Jobs with counts."""
        return len(self._pods) + len(self._jobs) + len(self._attempts)

    def group_of_pod(self, pod: ChildPod) -> AttemptKey | None:
        """Return the attempt of a pod's Job, if it has one and the Job is known."""
        job = self._jobs.get(pod.metadata.controller_uid)
        return None if job is None else job.attempt

    def pod_changed(self, old: ChildPod | None, new: ChildPod | None) -> AttemptKey | None:
        """Process a pod's change.

        Args:
            old: the pod as of the event before, ``None`` if it is new.
            new: the pod now, ``None`` if it is deleted.

        Returns:
            The attempt with changed counts, or ``None``.
        """
        read = self._read_pod
        try:
            before = None if old is None else read(old)
        except Exception:  # noqa: BLE001 - raised when this state was new, so it was not counted
            before = None
        try:
            after = None if new is None else read(new)
        except Exception:
            self._count(before, -1)
            raise
        return None if before == after else self._recount(before, after)

    def job_changed(self, old: Job | None, new: Job | None) -> AttemptKey | None:
        """Process a Job's change: its pods may join an attempt, or leave it.

        Args:
            old: the Job before, ``None`` if it is new.
            new: the Job now, ``None`` if it is deleted.

        Returns:
            The attempt whose counts changed (the one joined, if one is left for another), or
            ``None``.
        """
        after = None if new is None else self._read_job(new)
        left = None
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            left = self._put_job(old.metadata.uid, None)
        return left if new is None else self._put_job(new.metadata.uid, after) or left

    def _recount(
        self, before: tuple[str, P] | None, after: tuple[str, P] | None
    ) -> AttemptKey | None:
        left = self._count(before, -1)
        return self._count(after, 1) or left

    def _count(self, pod: tuple[str, P] | None, number: int) -> AttemptKey | None:
        if pod is None:
            return None
        owner, part = pod
        counts = self._pods.get(owner)
        if counts is None:
            counts = self._pods[owner] = self._new_counts()
        counts.count(part, number)
        if counts.empty:
            del self._pods[owner]
        member = self._jobs.get(owner)
        if member is None:
            return None
        key, job = member
        return key if self._attempts[key].pod_counted(job, counts, part, number) else None

    def _put_job(self, uid: str, after: Member[J] | None) -> AttemptKey | None:
        before = self._jobs.get(uid)
        if before == after:
            return None
        if after is None:
            del self._jobs[uid]
        else:
            self._jobs[uid] = after
        counts = self._pods.get(uid, self._nothing)
        if before is not None and after is not None and before.attempt == after.attempt:
            changed = self._attempts[after.attempt].job_changed(before.job, after.job, counts)
            return after.attempt if changed else None
        left = joined = None
        if before is not None:
            key, job = before
            attempt = self._attempts[key]
            if attempt.job_changed(job, None, counts):
                left = key
            attempt.jobs -= 1
            if not attempt.jobs:
                del self._attempts[key]
        if after is not None:
            key, job = after
            if key not in self._attempts:
                self._attempts[key] = self._new_attempt()
            attempt = self._attempts[key]
            attempt.jobs += 1
            if attempt.job_changed(None, job, counts):
                joined = key
        return joined or left
