"""Epochs of all JobSets' pods, counted as they change.

A restart of a JobSet with thousands of pods means thousands of pod events. Counting all pods at
each would be quadratic, so the counts are kept: an event changes a few numbers, whatever the number
of pods or Jobs.

Which pods belong to a JobSet is decided by UIDs alone: the pod's controller is a Job, that Job is
in the cache, and that Job's controller is the JobSet. Labels and annotations of a pod prove
nothing, since whoever may create pods may put anything there. A pod whose Job is not known yet is
kept aside and counts from the moment its Job appears; it stops counting when its Job goes. Of a
Job's own labels only the restart attempt is read, which separates the Jobs of one attempt from
those of the one before.

The ledger is fed with every change of a pod or Job, in order, and holds no pods: its size grows
with Jobs, not with pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.epochs.decision import INVALID, Histogram, InvalidEpoch, parse_epoch
from jobsetpy.domain.membership import AttemptKey, attempt_of

K = TypeVar("K")

_SUCCEEDED: Final = -2
_OUT: Final = 0  # not started, failed, or nobody's: neither is in a histogram


class _Counts:
    """Pods of one Job, or of all Jobs of a group."""

    __slots__ = (
        *("epochs", "first", "invalid", "jobs", "leaving", "lost", "restarts"),
        *("succeeded", "succeeded_by_jobs"),
    )

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.first: dict[int, str] = {}
        self.restarts: dict[int, int] = {}
        self.succeeded = 0
        self.succeeded_by_jobs = 0
        self.lost = 0
        self.leaving = 0
        self.invalid: dict[str, InvalidEpoch] = {}
        self.jobs = 0

    def add(self, kind: int, number: int, name: str = "") -> None:
        """Count ``number`` more (or fewer) pods of a kind: an epoch, or those that succeeded."""
        if kind > 0:
            count = self.epochs.get(kind, 0) + number
            if count:
                self.epochs[kind] = count
                if name and count == number:
                    self.first[kind] = name
            else:
                del self.epochs[kind]
                self.first.pop(kind, None)
        else:
            self.succeeded += number

    def add_restarts(self, restarts: int, number: int) -> None:
        """Count ``number`` more (or fewer) pods whose containers were restarted so often."""
        count = self.restarts.get(restarts, 0) + number
        if count:
            self.restarts[restarts] = count
        else:
            del self.restarts[restarts]

    @property
    def empty(self) -> bool:
        return not (self.epochs or self.succeeded or self.invalid or self.jobs or self.restarts)


class EpochLedger:
    """Counts of epochs per JobSet and attempt, kept up to date by events in O(1)."""

    __slots__ = ("_groups", "_jobs", "_pods")

    def __init__(self) -> None:
        self._pods: dict[str, _Counts] = {}  # by UID of the controller
        self._jobs: dict[str, AttemptKey] = {}  # by UID of the Job
        self._groups: dict[AttemptKey, _Counts] = {}

    def __len__(self) -> int:
        """How many groups and Jobs it has counts of."""
        return len(self._pods) + len(self._jobs) + len(self._groups)

    def histogram(self, group: AttemptKey) -> Histogram:
        """The pods of the Jobs of one attempt; a live view, to be used at once.

        Pods that succeeded and were deleted since are still known from their Job's status.
        """
        counts = self._groups.get(group)
        if counts is None:
            return Histogram()
        succeeded = max(counts.succeeded, counts.succeeded_by_jobs)
        return Histogram(
            counts.epochs, succeeded, counts.first, counts.restarts, counts.lost, counts.leaving
        )

    def invalid(self, group: AttemptKey) -> Mapping[str, InvalidEpoch]:
        """Pods with an unusable annotation, by UID; a live view."""
        counts = self._groups.get(group)
        return {} if counts is None else counts.invalid

    def pod_changed(self, old: ChildPod | None, new: ChildPod | None) -> AttemptKey | None:
        """Take a pod's change into account.

        Args:
            old: the pod before, ``None`` if it is new.
            new: the pod now, ``None`` if it is gone.

        Returns:
            The group whose counts changed, or ``None`` if nothing that counts did.
        """
        restarted = self._restarts_changed(old, new)
        old_kind = _OUT if old is None else _kind(old)
        new_kind = _OUT if new is None else _kind(new)
        if old is not None and new is not None:
            before, after = old.metadata, new.metadata
            same = (
                old_kind == new_kind
                and (new_kind != INVALID or before.annotations.epoch == after.annotations.epoch)
                and (before.deletion_timestamp is None) == (after.deletion_timestamp is None)
            )
            if same and before.controller_uid == after.controller_uid:
                return restarted
        group = restarted
        if old is not None and old_kind != _OUT:
            group = self._count(old, old_kind, -1) or group
        if new is not None and new_kind != _OUT:
            group = self._count(new, new_kind, 1) or group
        return group

    def job_changed(self, old: Job | None, new: Job | None) -> AttemptKey | None:
        """Take a Job's change into account: it may bring its pods into a group, or out of it.

        Args:
            old: the Job before, ``None`` if it is new.
            new: the Job now, ``None`` if it is gone.

        Returns:
            The group whose counts changed (the one joined, if one is left for another), or
            ``None``.
        """
        changed = None
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            key = attempt_of(new)
            if key is not None and self._jobs.get(new.metadata.uid) == key:
                more = new.status.succeeded - old.status.succeeded
                lost = _lost(new) - _lost(old)
                if not more and not lost:
                    return None
                self._groups[key].succeeded_by_jobs += more
                self._groups[key].lost += lost
                return key
        if old is not None:
            changed = self._leave(old)
        if new is not None:
            changed = self._join(new) or changed
        return changed

    def group_of_pod(self, pod: ChildPod) -> AttemptKey | None:
        """The group of a pod's Job, if it has one and the Job is known."""
        return self._jobs.get(pod.metadata.controller_uid)

    def _restarts_changed(self, old: ChildPod | None, new: ChildPod | None) -> AttemptKey | None:
        before = _restarts(old)
        after = _restarts(new)
        if before == after:
            return None
        group = None
        for (owner, restarts), number in ((before, -1), (after, 1)):
            if not restarts:
                continue
            counts = self._pods.get(owner)
            if counts is None:
                counts = self._pods[owner] = _Counts()
            counts.add_restarts(restarts, number)
            if counts.empty:
                del self._pods[owner]
            key = self._jobs.get(owner)
            if key is not None:
                self._groups[key].add_restarts(restarts, number)
                group = key
        return group

    def _count(self, pod: ChildPod, kind: int, number: int) -> AttemptKey | None:
        owner = pod.metadata.controller_uid
        key = self._jobs.get(owner)
        self._count_in(self._pods, owner, pod, kind, number)
        if key is not None:
            self._count_in(self._groups, key, pod, kind, number)
        return key

    @staticmethod
    def _count_in(table: dict[K, _Counts], key: K, pod: ChildPod, kind: int, number: int) -> None:
        counts = table.get(key)
        if counts is None:
            counts = table[key] = _Counts()
        if kind == INVALID:
            uid = pod.metadata.uid
            if number > 0:
                text = pod.metadata.annotations.epoch or ""
                counts.invalid[uid] = InvalidEpoch(pod.metadata.name, uid, text)
            else:
                counts.invalid.pop(uid, None)
        else:
            counts.add(kind, number, pod.metadata.name)
            if kind > 0 and pod.metadata.deletion_timestamp is not None:
                counts.leaving += number
        if number < 0 and counts.empty:
            del table[key]

    def _join(self, job: Job) -> AttemptKey | None:
        key = attempt_of(job)
        if key is None:
            return None
        uid = job.metadata.uid
        self._jobs[uid] = key
        group = self._groups.setdefault(key, _Counts())
        group.jobs += 1
        group.succeeded_by_jobs += job.status.succeeded
        group.lost += _lost(job)
        changed = self._move(uid, group, 1)
        return key if changed or job.status.succeeded or _lost(job) else None

    def _leave(self, job: Job) -> AttemptKey | None:
        uid = job.metadata.uid
        key = self._jobs.pop(uid, None)
        if key is None:
            return None
        group = self._groups[key]
        group.jobs -= 1
        group.succeeded_by_jobs -= job.status.succeeded
        group.lost -= _lost(job)
        changed = self._move(uid, group, -1)
        if group.empty:
            del self._groups[key]
        return key if changed or job.status.succeeded or _lost(job) else None

    def _move(self, uid: str, group: _Counts, sign: int) -> bool:
        """Add the pods of a Job to a group or take them away; whether there were any."""
        counts = self._pods.get(uid)
        if counts is None:
            return False
        for epoch, count in counts.epochs.items():
            group.add(epoch, sign * count, counts.first.get(epoch, ""))
        for restarts, count in counts.restarts.items():
            group.add_restarts(restarts, sign * count)
        group.succeeded += sign * counts.succeeded
        group.leaving += sign * counts.leaving
        for pod_uid, invalid in counts.invalid.items():
            if sign > 0:
                group.invalid[pod_uid] = invalid
            else:
                group.invalid.pop(pod_uid, None)
        return not counts.empty


def _lost(job: Job) -> int:
    """How many pods a failed Job would have, had it not failed, and will never have again."""
    if job.status.failed_condition is None:
        return 0
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return max(0, parallelism - job.status.succeeded)


def _restarts(pod: ChildPod | None) -> tuple[str, int]:
    """Controller and restart count of a pod; 0 for one that is out or has had none."""
    if pod is None or not pod.status.restarts or pod.status.phase in {"Succeeded", "Failed"}:
        return "", 0
    owner = pod.metadata.controller_uid
    return (owner, pod.status.restarts) if owner else ("", 0)


def _kind(pod: ChildPod) -> int:
    """A pod's epoch, or one of the marks."""
    phase = pod.status.phase
    if phase == "Succeeded":
        return _SUCCEEDED
    if phase == "Failed" or not pod.metadata.controller_uid:
        return _OUT
    return parse_epoch(pod.metadata.annotations.epoch)
