"""Seats of the Jobs with spares of an attempt, and counts of their parked pods."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSize, TakenSeat
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import (
    CountedFields,
    CountedJob,
    JobCounts,
    place_of,
)
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import SeatedJob
from jobsetpy.reconcilers.restart_in_place.spares.assign_jobs import taken_by_job, taken_jobs_of
from jobsetpy.reconcilers.rules.barrier_state import holds_job, holds_seat
from jobsetpy.reconcilers.rules.membership_ledger import add_to
from jobsetpy.reconcilers.rules.spares import seats_of_job


@attrs.define(eq=False)
class JobSeats:
    """Seats of one Job of a JobSet with spares.

    Args:
        job: the Job.
        taken: UIDs of the holders of seats with an entry.
        held: False for a Job whose pods are all parked.
        missing: number of seats that it does not have at present.
        ready: number of its ready spares.
    """

    job: CountedJob
    taken: Mapping[int, str]
    held: bool
    missing: int = 0
    ready: int = 0

    @property
    def size(self) -> int:
        """Number of seats that it has at present."""
        return max(0, self.job.seats - self.missing)

    @property
    def lacking(self) -> int:
        """Return 1 if no spare is ready although there should be one."""
        wanted = bool(self.job.spares or self.job.working)
        return int(self.held and wanted and not self.ready)

    @property
    def whole(self) -> int:
        """Return 1 if its pods can take over all seats of another Job."""
        return int(not self.held and self.ready >= self.job.seats)

    def parks(self, pod: CountedFields) -> bool:
        """Return True if a pod has no seat."""
        return pod.place is not None and self.parks_pod(pod.uid, pod.place.pod_index)

    def parks_pod(self, uid: str, index: int) -> bool:
        """Return True if the pod with a UID and a completion index has no seat."""
        return not self.held or not holds_seat(uid, index, self.size, self.taken)


def _group_of(job: CountedJob) -> str:
    """Return the key of Jobs that share spare Jobs; all others have the same one."""
    return job.replicated_job if job.working else ""


@attrs.frozen(kw_only=True)
class SparesShown:
    """Numbers of spares at a plan; :attr:`Spares.shown` alone makes another one.

    Args:
        ready: number of ready spares.
        exhausted: number of Jobs without a ready spare.
        missing: number of seats that Jobs do without.
    """

    ready: int = 0
    exhausted: int = 0
    missing: int = 0


@attrs.define(eq=False)
class Spares:
    """Jobs with spares of an attempt, and their parked pods, which are counted nowhere else.

    Args:
        pods: counts of the pods of each Job, by UID of the Job.
        seats: seats of the Jobs with spares, by name of the Job; empty in a JobSet without spares.
        taken: the assignment of seats.
        taken_jobs: the assignment of Jobs: names of the holders, by name of the Job.
        sizes: Jobs that have fewer seats at present.
        parked: number of parked pods at each epoch.
        ready: number of those whose standby process is ready, at any epoch.
        unprepared: number of pods with seats, at each epoch, whose agents have not reported that
            their standby process is prepared; they do in a smaller group.
        lacking: number of Jobs without a ready spare, see ``_group_of``.
        whole: number of spare Jobs that are ready, by ReplicatedJob.
    """

    pods: Mapping[str, JobCounts] = attrs.field(factory=dict)
    seats: dict[str, JobSeats] = attrs.field(factory=dict)
    taken: tuple[TakenSeat, ...] = ()
    taken_jobs: dict[str, str] = attrs.field(factory=dict)
    sizes: tuple[JobSize, ...] = ()
    parked: dict[int, int] = attrs.field(factory=dict)
    ready: int = 0
    unprepared: dict[int, int] = attrs.field(factory=dict)
    lacking: dict[str, int] = attrs.field(factory=dict)
    whole: dict[str, int] = attrs.field(factory=dict)

    @property
    def exhausted(self) -> int:
        """Number of Jobs with seats and without a ready spare: a pod of theirs, or a whole Job."""
        return sum(count for group, count in self.lacking.items() if group not in self.whole)

    @property
    def shown(self) -> SparesShown:
        """Numbers for the metrics."""
        missing = sum(one.missing for one in self.sizes)
        return SparesShown(ready=self.ready, exhausted=self.exhausted, missing=missing)

    def jobs(self, *, fixed: bool = False) -> list[SeatedJob]:
        """Return the Jobs with spares, and their pods; O(pods).

        Args:
            fixed: True if the number of seats of each Job must stay as it is.
        """
        return [
            attrs.evolve(
                self.counts(seats.job).seated(seats.job), missing=seats.missing, fixed=fixed
            )
            for seats in self.seats.values()
            if not seats.job.lost
        ]

    def done(self) -> set[str]:
        """Return the names of Jobs with fewer seats, all of which have succeeded.

        A Job without a seat is done when the other Jobs of its ReplicatedJob are. O(sizes), and
        O(Jobs) with such a Job.
        """
        done = {one.job for one in self.sizes if self._beyond(one.job) >= 0}
        idle = {name for name in done if not self.seats[name].size}
        if not idle:
            return done
        working = {
            each.job.replicated_job for name, each in self.seats.items() if self._beyond(name) < 0
        }
        waiting = {name for name in idle if self.seats[name].job.replicated_job in working}
        return done - waiting

    @property
    def beyond(self) -> int:
        """Number of pods that have succeeded without a seat, as those of a Job that is done do."""
        return sum(max(0, self._beyond(one.job)) for one in self.sizes)

    def _beyond(self, name: str) -> int:
        """Return how many more pods of a Job have succeeded than it has seats."""
        seats = self.seats.get(name)
        if seats is None:
            return -1
        return seats.job.completed(self.counts(seats.job).completions) - seats.size

    def counts(self, job: CountedJob) -> JobCounts:
        """Return the counts of a Job's pods."""
        return self.pods.get(job.uid) or JobCounts()

    def holds(self, job: CountedJob) -> bool:
        """Return True if a Job has seats; others complete nothing, and are not missed."""
        return holds_job(job.name, job.number, job.working, self.taken_jobs)

    def parks(self, job: str, pod: ChildPod) -> bool:
        """Return True for a pod of a Job with this name that has no seat."""
        place, seats = place_of(pod), self.seats.get(job)
        if place is None or seats is None:
            return False
        return seats.parks_pod(pod.metadata.uid, place.pod_index)

    def at_full_size(self) -> Spares:
        """Return the same with all seats of each Job, which new pods are to fill."""
        whole = {name: attrs.evolve(each, missing=0) for name, each in self.seats.items()}
        return attrs.evolve(self, seats=whole, sizes=())

    def size_of(self, job: Job) -> int | None:
        """Return the present number of a Job's seats; ``None`` if all of its pods are parked."""
        seats = self.seats.get(job.metadata.name)
        if seats is None:
            return seats_of_job(job)
        return seats.size if seats.held else None

    def put(self, job: CountedJob) -> None:
        """Add a Job, without its pods."""
        taken = taken_by_job(self.taken).get(job.name, {})
        missing = self.missing_by_job().get(job.name, 0)
        seats = self.seats[job.name] = JobSeats(job, taken, self.holds(job), missing)
        self._tally(seats, 1)

    def drop(self, job: CountedJob) -> None:
        """Remove a Job, after its pods."""
        gone = self.seats.pop(job.name, None)
        if gone is not None:
            self._tally(gone, -1)

    def count_ready(self, seats: JobSeats, number: int) -> None:
        """Count a ready spare of a Job."""
        self._tally(seats, -1)
        self.ready += number
        seats.ready += number
        self._tally(seats, 1)

    def missing_by_job(self) -> dict[str, int]:
        """Return the number of seats that Jobs do without, by name of the Job."""
        return {one.job: one.missing for one in self.sizes}

    def assign(
        self, seats: JobSeats, taken: Mapping[int, str], missing: int, *, held: bool
    ) -> None:
        """Give a Job another assignment of its seats, while none of its pods is counted."""
        self._tally(seats, -1)
        seats.taken, seats.held, seats.missing = taken, held, missing
        self._tally(seats, 1)

    def differs(self, record: InPlaceRestartStatus) -> bool:
        """Return True if a record has another assignment."""
        return (
            record.taken_seats != self.taken
            or taken_jobs_of(record.taken_jobs) != self.taken_jobs
            or record.job_sizes != self.sizes
        )

    def _tally(self, seats: JobSeats, sign: int) -> None:
        """Count a Job by its ready spares, or take it back before they change."""
        if seats.lacking:
            add_to(self.lacking, _group_of(seats.job), sign)
        if seats.whole:
            add_to(self.whole, seats.job.replicated_job, sign)
