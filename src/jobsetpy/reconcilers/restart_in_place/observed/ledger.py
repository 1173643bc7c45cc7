"""Ledger of the epochs of all JobSets' pods (:mod:`reconcilers.rules.membership_ledger`).

In addition to counts it records, in O(1) and without decisions, observations that a plan could not
read from the current state: short-lived signs of failures, containers that crash while the barrier
is closed, a Job that is deleted to be recreated, and the times of the newest epoch and of the
latest single one.
"""

from __future__ import annotations

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSetStatus
from jobsetpy.api.meta import version_number
from jobsetpy.api.worker_reports import epoch_of
from jobsetpy.reconcilers.restart_in_place.failures.cause import FailureKind
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure, kind_of
from jobsetpy.reconcilers.restart_in_place.observed.attempt_counts import Attempt
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import (
    CountedJob,
    CountedPod,
    JobCounts,
    begins_recreation,
    failed_since,
    move_of,
    read_job,
    read_pod,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, Observations
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import Spares
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.membership_ledger import MembershipLedger


class EpochLedger(MembershipLedger[CountedPod, CountedJob, JobCounts, Attempt]):
    """Counts of epochs per JobSet and attempt, kept up to date by events in O(1).

    Attributes:
        newest_version: highest observed resourceVersion of a pod. It may be too high after a
            restore of etcd, which is safe: in the first ``STATUS_LAG_S`` of an epoch, a failure is
            then noticed by its agent's report only. A lower one could take an old status for new.
    """

    __slots__ = ("newest_version",)

    def __init__(self) -> None:
        super().__init__(read_pod, read_job, JobCounts, lambda: Attempt(spares=Spares(self._pods)))
        self.newest_version = 0

    def pod_changed(
        self,
        old: ChildPod | None,
        new: ChildPod | None,
        now: float = 0.0,
    ) -> AttemptKey | None:
        """Process a pod's change.

        Args:
            old: the pod as of the event before, ``None`` if it is new.
            new: the pod now, ``None`` if it is deleted.
            now: time on the monotonic clock, in seconds.

        Returns:
            The attempt with a changed count or a new observation, or ``None``.
        """
        if new is not None:
            version = version_number(new.metadata.resource_version)
            self.newest_version = max(self.newest_version, version)
        changed = super().pod_changed(old, new)
        attempt = None if changed is None else self._attempts.get(changed)
        if attempt is not None:
            parked = new is not None and self._is_parked(new)
            attempt.note_epochs(now, None if parked else new)
        if new is not None and (unprobed := new.metadata.annotations.unprobed) is not None:
            self._note_unprobed(new, old is None or old.metadata.annotations.unprobed != unprobed)
        if old is None or new is None or new.status.restarts is old.status.restarts:
            crashed = None
        else:
            crashed = self._note_crashes(old, new)
        if old is not None and new is None and (key := self.group_of_pod(old)) is not None:
            self._attempts[key].forget_crashes(old)
        failed = None if old is None else self._note_failure(old, new, now)
        return failed or crashed or changed

    def _recount(
        self, before: tuple[str, CountedPod] | None, after: tuple[str, CountedPod] | None
    ) -> AttemptKey | None:
        if before is None or after is None or before[0] != after[0]:
            return super()._recount(before, after)
        member, move = self._jobs.get(after[0]), move_of(before[1], after[1])
        if member is None or move is None:
            return super()._recount(before, after)
        for counts in (self._pods[after[0]], self._attempts[member.attempt]):
            counts.move(*move)
        return member.attempt

    def _is_parked(self, pod: ChildPod) -> bool:
        """Return True for a pod of a Job with spares that has no seat."""
        member = self._jobs.get(pod.metadata.controller_uid)
        if member is None:
            return False
        return self._attempts[member.attempt].spares.parks(member.job.name, pod)

    def _note_unprobed(self, pod: ChildPod, more: bool) -> None:
        key = self.group_of_pod(pod) if more else None
        if key is not None:
            self._attempts[key].unprobed[pod.metadata.name, ""] += 1

    def _note_crashes(self, old: ChildPod, new: ChildPod) -> AttemptKey | None:
        member = self._jobs.get(new.metadata.controller_uid)
        if member is None or self._is_parked(new):
            return None
        failed = failed_since(old, new)
        for one in failed:
            attempt = self._attempts[member.attempt]
            attempt.note_crash(member.job.replicated_job, new.metadata.name, one)
        return member.attempt if failed else None

    def _note_failure(self, old: ChildPod, new: ChildPod | None, now: float) -> AttemptKey | None:
        kind = kind_of(old, new)
        key = None if kind is None else self.group_of_pod(old)
        if kind is None or key is None or self._is_parked(old):
            return None
        attempt, epoch = self._attempts[key], epoch_of(old)
        if epoch <= attempt.deprecated:
            return None  # it has ended, regardless of its pods
        if kind is FailureKind.CONTAINER_FAILED and not attempt.mark.shows_run(
            epoch, version_number(old.metadata.resource_version), now
        ):
            return None
        attempt.note_failure(Failure(kind, epoch, old, new, now))
        return key

    def job_changed(self, old: Job | None, new: Job | None, now: float = 0.0) -> AttemptKey | None:
        """Process a Job's change: its pods may join an attempt, or leave it.

        Args:
            old: the Job before, ``None`` if it is new.
            new: the Job now, ``None`` if it is deleted.
            now: time on the monotonic clock, in seconds.

        Returns:
            The attempt with a changed count or a new observation (the one joined, if one is left
            for another), or ``None``.
        """
        remade = None
        if old is not None and begins_recreation(old, new) and old.metadata.uid in self._jobs:
            remade = self._jobs[old.metadata.uid].attempt
            self._attempts[remade].notes.remade = old.metadata.name
        changed = super().job_changed(old, new)
        if changed is not None and changed in self._attempts:
            self._attempts[changed].note_epochs(now)
        return changed or remade

    def notes(self, group: AttemptKey) -> Observations:
        """Return the current observations of an attempt; later ones are not added to them."""
        return attrs.evolve(self.histogram(group).notes)

    def forget_notes(self, group: AttemptKey, notes: Observations) -> None:
        """Drop processed observations, except those newer than the synced epoch."""
        known = self._attempts.get(group)
        if known is not None:
            known.forget(notes.failures, notes.remade)

    def note_status(
        self,
        group: AttemptKey,
        status: JobSetStatus,
        version: int,
        now: float,
    ) -> None:
        """Process the JobSet's epochs, as they were observed or written.

        Args:
            group: the JobSet's current attempt.
            status: status with both epochs.
            version: ``newest_version`` before the status was observed or written.
            now: time on the monotonic clock, in seconds.
        """
        known = self._attempts.get(group)
        if known is not None:
            known.note_status(status, version, now)

    def histogram(self, group: AttemptKey) -> GroupCounts:
        """Return the pods of the Jobs of one attempt; a live view, for immediate use.

        Succeeded pods are known from their Job's status, and before that from themselves
        (:mod:`reconcilers.restart_in_place.job_controller.completions`).
        """
        return self._attempts.get(group) or GroupCounts()
