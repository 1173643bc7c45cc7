"""Counts of the pods of an attempt, and observations that their current state does not show."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from jobsetpy.api.agent_reports import PREPARED, READY
from jobsetpy.api.child_pod import ChildPod, ContainerRestarts
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus
from jobsetpy.api.worker_reports import (
    FirstProgress,
    epoch_of,
    parse_first,
    parse_report,
)
from jobsetpy.reconcilers.restart_in_place.failures.cause import reported_cause
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure, SyncedMark
from jobsetpy.reconcilers.restart_in_place.job_controller.completions import is_counted
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import (
    CountedFields,
    CountedJob,
    CountedPod,
    JobCounts,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import (
    Arrival,
    Crash,
    EpochSeen,
    FirstOfRun,
    GroupCounts,
)
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import JobSeats
from jobsetpy.reconcilers.restart_in_place.spares.assign_jobs import taken_by_job, taken_jobs_of
from jobsetpy.reconcilers.rules.in_place_record import NO_RECORD
from jobsetpy.reconcilers.rules.membership_ledger import add_to

MAX_FAILURES: Final = 16
"""Maximum number of undecided failures kept per attempt; one that counts is enough."""


@attrs.define(eq=False)
class Attempt(GroupCounts):
    """Pods of all Jobs of an attempt, the status of those Jobs, and observations.

    Attributes:
        jobs: number of Jobs.
        noted: True once the JobSet's epochs are known.
        mark: the synced epoch, and when it was observed.
        deprecated: the deprecated epoch.
        excused: restart count of a container up to which its first crash is not counted.
        crashed: number of crashes by pod and container.
        unprobed: number of restarts of a pod's containers that its agent has reported before, and
            by container those that were excused for it.
    """

    jobs: int = 0
    noted: bool = False
    mark: SyncedMark = attrs.field(factory=SyncedMark)
    deprecated: int = 0
    excused: int = 0
    crashed: dict[tuple[str, str], int] = attrs.field(factory=dict)
    unprobed: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    # ---- observations ----------------------------------------------------------------------------

    def forget(self, failures: tuple[Failure, ...], remade: str) -> None:
        """Drop processed observations, except those newer than the synced epoch."""
        notes, newest = self.notes, self.mark.epoch
        if failures:
            notes.failures = tuple(
                one for one in notes.failures if one.epoch > newest or one not in failures
            )
        if notes.remade == remade:
            notes.remade = ""

    def note_failure(self, failure: Failure) -> None:
        """Keep a failure, unless there are enough, or failures of a newer epoch."""
        known = self.notes.failures
        if known and known[0].epoch != failure.epoch:
            if failure.epoch < known[0].epoch:
                return
            known = ()
        if len(known) < MAX_FAILURES:
            self.notes.failures = (*known, failure)

    def note_status(self, status: JobSetStatus, version: int, now: float) -> None:
        """Process the JobSet's epochs; the count of crashes is reset when they change."""
        record = status.in_place_restart or NO_RECORD
        self._move(record, now)
        synced, deprecated = status.synced_epoch, status.deprecated_epoch
        if self.noted and (synced, deprecated) == (self.mark.epoch, self.deprecated):
            return
        if self.noted or synced:
            self.crashed.clear()
            self.crashes.clear()
            self.unprobed.clear()
        if record.crashes:
            self.crashed[record.crashing_pod, record.crashing_container] = record.crashes
        self.excused = record.container_restarts + 1 if deprecated >= synced > 0 else 0
        if not self.noted or synced != self.mark.epoch:
            self.mark = SyncedMark(synced, version, now)
        self.deprecated, self.noted = deprecated, True

    def note_crash(self, replicated_job: str, pod: str, one: ContainerRestarts) -> None:
        """Record that a container has failed and was restarted; ignored while workers run.

        The first time after a restart has begun may belong to that restart. It does unless the
        container exceeds the highest restart count of that moment.
        """
        if self.epochs and self.deprecated < self.mark.epoch:
            return
        key = (pod, one.name)
        # An agent whose kubelet has restarted ends its pod's containers, and says so before. Their
        # statuses, which may come later than the next report, are those of a crash.
        if self.unprobed[key] < self.unprobed[pod, ""]:
            self.unprobed[key] += 1
            return
        if key not in self.crashed and one.times <= self.excused:
            self.crashed[key] = 0
            return
        times = self.crashed[key] = self.crashed.get(key, 0) + 1
        worst = self.crashes.get((replicated_job, one.name))
        if worst is None or times > worst.times:
            self.crashes[replicated_job, one.name] = Crash(times, pod, one.name)

    def forget_crashes(self, gone: ChildPod) -> None:
        """Drop the crash counts of a deleted pod; the worst crash is kept."""
        name = gone.metadata.name
        self.unprobed.pop((name, ""), None)
        for one in gone.status.restarts:
            for known in (self.crashed, self.unprobed):
                known.pop((name, one.name), None)

    def note_epochs(self, now: float, pod: ChildPod | None = None) -> None:
        """Record new epochs, and the pod that has arrived last, after a change of a pod."""
        epochs, notes = self.epochs, self.notes
        if not epochs:
            return
        newest = max(epochs)
        if pod is not None and epoch_of(pod) == newest:
            notes.latest = Arrival(newest, pod.metadata.name, pod.spec.node_name)
            self._note_end(newest, pod)
        if newest > notes.newest_epoch_seen.epoch:
            notes.newest_epoch_seen = EpochSeen(newest, now)
            notes.opener = notes.latest if notes.latest.epoch == newest else Arrival(newest)
        if len(epochs) == 1 and newest != notes.single.epoch:
            notes.single = EpochSeen(newest, now)

    def _note_end(self, newest: int, pod: ChildPod) -> None:
        """Record the first worker that fails: others fail because of it."""
        notes = self.notes
        first = parse_first(pod.metadata.annotations.first_progress)
        if first is not None:
            if notes.first is not None and notes.first.epoch == newest:
                other = notes.first.progress
                step, seconds = min(first.step, other.step), max(first.seconds, other.seconds)
                first = FirstProgress(step, seconds)
            notes.first = FirstOfRun(newest, first)
        if self.ended < newest and (cause := reported_cause(pod, newest - 1)) is not None:
            notes.reported, self.ended = cause, newest

    # ---- counts ----------------------------------------------------------------------------------

    def pod_counted(self, job: CountedJob, counts: JobCounts, pod: CountedPod, number: int) -> bool:
        """Count a pod for the attempt as for its Job."""
        if isinstance(pod, CountedFields):
            self._place(self.spares.seats.get(job.name), pod, number)
            doubled = counts.doubled(pod, number)
            self.doubles += doubled
            return bool(doubled or pod.report is not None or pod.restarts)
        # Only the first pod of an index counts, and only until the Job counts it.
        done = pod.completion
        if counts.completions.get(done, 0) != max(number, 0) or is_counted(job.status, done):
            return False
        if not self.spares.holds(job):
            return False
        self.succeeded += number
        return True

    def _place(self, seats: JobSeats | None, pod: CountedFields, number: int) -> None:
        """Count a pod as a part of the group, or as parked."""
        place = pod.place
        if seats is None or place is None:
            self.count(pod, number)
            return
        epoch = parse_report(pod.report, pod.is_attempt)
        if not seats.parks(pod):
            self.count(pod, number)
            if place.state != PREPARED and epoch > 0 and not pod.leaving:
                add_to(self.spares.unprepared, epoch, number)
            return
        if epoch > 0:
            add_to(self.spares.parked, epoch, number)
        if place.state == READY and epoch > 0 and not pod.leaving:
            self.spares.count_ready(seats, number)

    def _move(self, record: InPlaceRestartStatus, now: float) -> None:
        """Process the assignment of seats: pods and Jobs may join the group or leave it."""
        spares = self.spares
        if not spares.differs(record):
            return
        spares.taken, spares.taken_jobs = record.taken_seats, taken_jobs_of(record.taken_jobs)
        spares.sizes = record.job_sizes
        by_job, missing = taken_by_job(spares.taken), spares.missing_by_job()
        for name, seats in spares.seats.items():
            taken, held = by_job.get(name, {}), spares.holds(seats.job)
            fewer = missing.get(name, 0)
            if (taken, held, fewer) == (seats.taken, seats.held, seats.missing):
                continue
            counts = spares.counts(seats.job)
            pods = tuple(counts.placed.values())
            for pod in pods:
                self._place(seats, pod, -1)
            if held is not seats.held:
                self._count_ended(seats.job, counts, 1 if held else -1)
            spares.assign(seats, taken, fewer, held=held)
            for pod in pods:
                self._place(seats, pod, 1)
        self.note_epochs(now)

    def _count_ended(self, job: CountedJob, counts: JobCounts, sign: int) -> None:
        """Count the pods that a Job has lost, and those that have succeeded."""
        self.lost += sign * job.lost
        self.succeeded += sign * job.completed(counts.completions)

    def _seats_changed(
        self, before: CountedJob | None, after: CountedJob | None, counts: JobCounts
    ) -> None:
        """Add the seats of a Job with its pods, or remove both."""
        spares, pods = self.spares, counts.placed.values()
        if before is not None:
            for pod in pods:
                self._place(spares.seats.get(before.name), pod, -1)
            spares.drop(before)
        if after is not None:
            if after.spares is not None:
                spares.put(after)
            for pod in pods:
                self._place(spares.seats.get(after.name), pod, 1)

    def job_changed(
        self, before: CountedJob | None, after: CountedJob | None, counts: JobCounts
    ) -> bool:
        """Add a Job with its pods, or remove both."""
        if before is None or after is None or before.seating != after.seating:
            self._seats_changed(before, after, counts)
        elif after.name in self.spares.seats:
            self.spares.seats[after.name].job = after
        ended = self.lost, self.succeeded
        for job, sign in ((before, -1), (after, 1)):
            if job is not None and self.spares.holds(job):
                self._count_ended(job, counts, sign)
        if counts.empty or (before is not None and after is not None):
            return ended != (self.lost, self.succeeded)
        self.merge(counts, 1 if before is None else -1)
        return True
