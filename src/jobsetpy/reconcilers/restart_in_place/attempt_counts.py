"""Counts of the pods of an attempt: those with a seat, and parked ones."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from jobsetpy.api.jobset import InPlaceRestartStatus, TakenSeat
from jobsetpy.reconcilers.restart_in_place.attempt_notes import AttemptNotes
from jobsetpy.reconcilers.restart_in_place.barrier_state import INVALID, holds_job, holds_seat
from jobsetpy.reconcilers.restart_in_place.job_seats import READY
from jobsetpy.reconcilers.restart_in_place.observed import InvalidEpoch
from jobsetpy.reconcilers.restart_in_place.pod_counts import (
    CountedJob,
    CountedPod,
    Counts,
    JobCounts,
    LivePod,
)
from jobsetpy.reconcilers.restart_in_place.reports import parse_report
from jobsetpy.reconcilers.restart_in_place.seats import taken_by_job, taken_jobs_of
from jobsetpy.reconcilers.restart_in_place.succeeded import is_counted
from jobsetpy.reconcilers.rules.membership_ledger import add_to


@attrs.define(eq=False)
class JobSeats:
    """Seats of one Job of a JobSet with spares.

    Args:
        job: the Job.
        taken: UIDs of the holders of seats with an entry.
        held: False for a Job whose pods are all parked.
        ready: number of its ready spares.
    """

    job: CountedJob
    taken: Mapping[int, str]
    held: bool
    ready: int = 0

    @property
    def lacking(self) -> int:
        """Return 1 if no spare is ready although there should be one."""
        wanted = bool(self.job.spares or self.job.working)
        return int(self.held and wanted and not self.ready)

    @property
    def whole(self) -> int:
        """Return 1 if its pods can take over all seats of another Job."""
        return int(not self.held and self.ready >= self.job.seats)

    def parks(self, pod: LivePod) -> bool:
        """Return True if a pod has no seat."""
        return pod[7] is not None and self.parks_pod(pod[5], pod[7][0])

    def parks_pod(self, uid: str, index: int) -> bool:
        """Return True if the pod with a UID and a completion index has no seat."""
        return not self.held or not holds_seat(uid, index, self.job.seats, self.taken)


def _group_of(job: CountedJob) -> str:
    """Return the key of Jobs that share spare Jobs; all others have the same one."""
    return job.replicated_job if job.working else ""


@attrs.define(eq=False)
class Attempt(AttemptNotes):
    """Pods of all Jobs of an attempt, the status of those Jobs, and observations.

    Parked pods of Jobs with spares are counted by themselves: they are no part of the group.

    Attributes:
        seats: seats of the Jobs with spares, by name of the Job.
        parked: number of parked pods by epoch.
        lacking: number of Jobs without a ready spare, see ``_group_of``.
        whole: number of spare Jobs that are ready, by ReplicatedJob.
    """

    jobs: int = 0
    succeeded: int = 0
    lost: int = 0
    seats: dict[str, JobSeats] = attrs.field(factory=dict)
    taken: tuple[TakenSeat, ...] = ()
    parked: dict[int, int] = attrs.field(factory=dict)
    taken_jobs: dict[str, str] = attrs.field(factory=dict)
    ready: int = 0
    lacking: dict[str, int] = attrs.field(factory=dict)
    whole: dict[str, int] = attrs.field(factory=dict)

    @property
    def exhausted(self) -> int:
        """Number of Jobs with seats and without a ready spare: a pod of theirs, or a whole Job."""
        return sum(count for group, count in self.lacking.items() if group not in self.whole)

    def pod_counted(self, job: CountedJob, counts: JobCounts, pod: CountedPod, number: int) -> bool:
        """Count a pod for the attempt as for its Job."""
        if len(pod) > 1:
            self.place(self.seats.get(job.name), pod, number)
            doubled = counts.doubled(pod, number)
            self.doubles += doubled
            return bool(doubled or pod[0] is not None or pod[2])
        # Only the first pod of an index counts, and only until the Job counts it.
        if counts.completions.get(pod[0], 0) != max(number, 0) or is_counted(job.status, pod[0]):
            return False
        if not self._holds(job):
            return False
        self.succeeded += number
        return True

    def _holds(self, job: CountedJob) -> bool:
        """Return True if a Job has seats; others complete nothing, and are not missed."""
        return holds_job(job.name, job.number, job.working, self.taken_jobs)

    def _tally(self, seats: JobSeats, sign: int) -> None:
        """Count a Job by its ready spares, or take it back before they change."""
        if seats.lacking:
            add_to(self.lacking, _group_of(seats.job), sign)
        if seats.whole:
            add_to(self.whole, seats.job.replicated_job, sign)

    def place(self, seats: JobSeats | None, pod: LivePod, number: int) -> None:
        """Count a pod as a part of the group, or as parked."""
        place = pod[7]
        if seats is None or place is None or not seats.parks(pod):
            self.count(pod, number)
            return
        epoch = parse_report(pod[0], pod[1])
        if epoch > 0:
            add_to(self.parked, epoch, number)
        elif epoch == INVALID:
            self.note({pod[5]: InvalidEpoch(pod[4], pod[5], pod[0] or "", pod[1])}, number)
        if place[1] == READY and epoch > 0 and not pod[3]:
            self._tally(seats, -1)
            self.ready += number
            seats.ready += number
            self._tally(seats, 1)

    def move(self, record: InPlaceRestartStatus, placed: Mapping[str, JobCounts]) -> None:
        """Process another assignment of seats: pods and Jobs join the group or leave it."""
        self.taken = record.taken_seats
        self.taken_jobs = taken_jobs_of(record.taken_jobs)
        by_job = taken_by_job(self.taken)
        for name, seats in self.seats.items():
            now, held = by_job.get(name, {}), self._holds(seats.job)
            if (now, held) == (seats.taken, seats.held):
                continue
            counts = placed.get(seats.job.uid)
            pods = () if counts is None else tuple(counts.placed.values())
            for pod in pods:
                self.place(seats, pod, -1)
            if held is not seats.held:
                change = 1 if held else -1
                completions = () if counts is None else counts.completions
                self.lost += change * seats.job.lost
                self.succeeded += change * seats.job.completed(completions)
            self._tally(seats, -1)
            seats.taken, seats.held = now, held
            self._tally(seats, 1)
            for pod in pods:
                self.place(seats, pod, 1)

    def _seats_changed(
        self, before: CountedJob | None, after: CountedJob | None, counts: Counts
    ) -> None:
        """Add the seats of a Job with its pods, or remove both."""
        pods = counts.placed.values() if isinstance(counts, JobCounts) else ()
        if before is not None:
            for pod in pods:
                self.place(self.seats.get(before.name), pod, -1)
            gone = self.seats.pop(before.name, None)
            if gone is not None:
                self._tally(gone, -1)
        if after is not None:
            if after.spares is not None:
                taken = taken_by_job(self.taken).get(after.name, {})
                seats = JobSeats(after, taken, held=self._holds(after))
                self.seats[after.name] = seats
                self._tally(seats, 1)
            for pod in pods:
                self.place(self.seats.get(after.name), pod, 1)

    def job_changed(
        self, before: CountedJob | None, after: CountedJob | None, counts: Counts
    ) -> bool:
        """Add a Job with its pods, or remove both."""
        if before is None or after is None or before[-4:] != after[-4:]:
            self._seats_changed(before, after, counts)
        elif after.name in self.seats:
            self.seats[after.name].job = after
        more = change = 0
        for job, sign in ((before, -1), (after, 1)):
            if job is not None and self._holds(job):
                more += sign * job.lost
                change += sign * job.completed(counts.completions)
        self.lost += more
        self.succeeded += change
        changed = bool(change or more)
        if counts.empty or (before is not None and after is not None):
            return changed
        self.merge(counts, 1 if before is None else -1)
        return True
