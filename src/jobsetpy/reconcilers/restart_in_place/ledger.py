"""Ledger of the epochs of all JobSets' pods (:mod:`reconcilers.rules.membership_ledger`).

In addition to counts it records, in O(1) and without decisions, observations that a plan could not
read from the current state: short-lived signs of failures, containers that crash while the barrier
is closed, a Job that is deleted to be recreated, and the times of the newest epoch and of the
latest single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from jobsetpy.api import keys
from jobsetpy.api.batch import Job, JobStatus
from jobsetpy.api.child_pod import ChildPod, ContainerRestarts
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus, TakenSeat
from jobsetpy.api.meta import version_number
from jobsetpy.reconcilers.restart_in_place.barrier import NO_RECORD
from jobsetpy.reconcilers.restart_in_place.barrier_state import (
    INVALID,
    holds_job,
    holds_seat,
)
from jobsetpy.reconcilers.restart_in_place.cause import FailureSignal
from jobsetpy.reconcilers.restart_in_place.failures import Failure, SyncedMark, sign_of
from jobsetpy.reconcilers.restart_in_place.job_seats import READY, SeatedJob, SeatPod
from jobsetpy.reconcilers.restart_in_place.observed import (
    Crash,
    Histogram,
    InvalidEpoch,
    Observations,
    Spares,
)
from jobsetpy.reconcilers.restart_in_place.pod_backoff import FailureTimes
from jobsetpy.reconcilers.restart_in_place.reports import (
    FirstProgress,
    ReportedEnd,
    parse_cause,
    parse_first,
    parse_progress,
    parse_report,
)
from jobsetpy.reconcilers.restart_in_place.seats import taken_by_job, taken_jobs_of
from jobsetpy.reconcilers.restart_in_place.succeeded import (
    completion_of,
    counted,
    is_counted,
)
from jobsetpy.reconcilers.rules.backoff import MAX_IN_WINDOW, within
from jobsetpy.reconcilers.rules.membership import (
    AttemptKey,
    attempt_of,
    parse_count,
    replicated_job_of,
)
from jobsetpy.reconcilers.rules.membership_ledger import MembershipLedger
from jobsetpy.reconcilers.rules.spares import (
    seats_of_job,
    spares_of_job,
    working_with,
)

K = TypeVar("K")

MAX_FAILURES: Final = 16
"""Maximum number of undecided failures kept per attempt; one that counts is enough."""


# Index, agent's state, address and node of a pod that says it belongs to a Job with spares.
_Place: TypeAlias = tuple[int, str, str, str]

# Counted fields of a pod: its agent's report (parsed only after a change) and if that is an
# attempt, restarts, if it is being deleted, name and UID, its progress, its place among spares, its
# completion index, and if it waits for a slow API server; of one that has succeeded, only what it
# completes.
_LivePod: TypeAlias = tuple[
    str | None, bool, int, bool, str, str, str | None, _Place | None, str | None, bool
]
_Pod: TypeAlias = _LivePod | tuple[str]


class _Job(NamedTuple):
    """Counts of a Job in addition to those of its pods."""

    status: JobStatus = JobStatus()
    lost: int = 0
    replicated_job: str = ""
    name: str = ""
    uid: str = ""
    seats: int = 0
    spares: int | None = None
    number: int = 0  # its index in its ReplicatedJob
    working: int = 0  # Jobs of the ReplicatedJob with seats, 0 if all have

    def uncounted(self, completions: Iterable[str]) -> int:
        """Return how many completions the Job's status does not include yet."""
        return sum(not is_counted(self.status, completion) for completion in completions)

    def completed(self, completions: Iterable[str]) -> int:
        """Return how many of its pods have succeeded, given the completions of its pods."""
        return counted(self.status) + self.uncounted(completions)


class _Counts:
    """Pods of one Job, or of all Jobs of an attempt."""

    __slots__ = (
        *("attempts", "completions", "digest", "doubles", "epochs", "first", "invalid"),
        *("leaving", "progress", "restarts", "slow"),
    )

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.first: dict[int, str] = {}
        self.restarts: dict[int, int] = {}
        self.completions: dict[str, int] = {}
        self.leaving = 0
        self.doubles = 0
        self.attempts = 0
        self.digest = 0
        self.slow = 0
        self.progress: tuple[int, int] = (0, -1)
        self.invalid: dict[str, InvalidEpoch] = {}

    def count(self, pod: _Pod, number: int) -> None:
        """Count one more pod, or one less."""
        if len(pod) == 1:
            _add(self.completions, pod[0], number)
            return
        text, is_attempt, restarts, leaving, name, uid, progress, _, _, slow = pod
        epoch = parse_report(text, is_attempt)
        if epoch > 0:
            self.add(epoch, number, name)
            self.leaving += number * leaving
            self.attempts += number * is_attempt
            self.slow += number * slow
            self.digest ^= crc32(uid.encode()) & keys.INT32_MAX  # the same in and out
            if number > 0:
                self.reach(epoch, parse_progress(progress))
        elif epoch == INVALID:
            self.note({uid: InvalidEpoch(name, uid, text or "", is_attempt)}, number)
        if restarts:
            _add(self.restarts, restarts, number)

    def merge(self, other: _Counts, sign: int) -> None:
        """Add all counts of ``other``, or subtract them."""
        for epoch, count in other.epochs.items():
            self.add(epoch, sign * count, other.first.get(epoch, ""))
        for restarts, count in other.restarts.items():
            _add(self.restarts, restarts, sign * count)
        self.leaving += sign * other.leaving
        self.doubles += sign * other.doubles
        self.attempts += sign * other.attempts
        self.digest ^= other.digest
        self.slow += sign * other.slow
        self.note(other.invalid, sign)
        if sign > 0:
            self.reach(*other.progress)

    def reach(self, epoch: int, step: int | None) -> None:
        """Record reported progress; keep the highest of the newest epoch."""
        if step is not None:
            self.progress = max(self.progress, (epoch, step))

    def add(self, epoch: int, number: int, name: str) -> None:
        """Count pods at an epoch; ``name`` is one of them."""
        count = _add(self.epochs, epoch, number)
        if not count:
            self.first.pop(epoch, None)
        elif name and count == number:
            self.first[epoch] = name

    def note(self, invalid: Mapping[str, InvalidEpoch], sign: int) -> None:
        """Add pods with invalid annotations, or remove them."""
        if sign > 0:
            self.invalid.update(invalid)
        else:
            for uid in invalid:
                self.invalid.pop(uid, None)

    @property
    def empty(self) -> bool:
        """Return True if nothing is counted."""
        return not (self.epochs or self.completions or self.invalid or self.restarts)


class _JobCounts(_Counts):
    """Pods of one Job; those of a Job with spares are kept, as they have seats or not."""

    __slots__ = ("members", "placed")

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, int] = {}  # pods that have not ended, by completion index
        self.placed: dict[str, _LivePod] = {}

    def doubled(self, pod: _LivePod, number: int) -> int:
        """Return the change of ``doubles`` by a pod that was just counted ``number`` times."""
        index = pod[8]
        others = 0 if index is None else self.members.get(index, 0) - (1 if number > 0 else 0)
        return number if others else 0

    def count(self, pod: _Pod, number: int) -> None:
        """Count one more pod, or one less; how one with a place counts depends on its Job."""
        if len(pod) > 1 and pod[8] is not None:
            _add(self.members, pod[8], number)
            self.doubles += self.doubled(pod, number)
        if len(pod) == 1 or pod[7] is None:
            super().count(pod, number)
        elif number > 0:
            self.placed[pod[5]] = pod
        else:
            self.placed.pop(pod[5], None)

    @property
    def empty(self) -> bool:
        """Return True if nothing is counted."""
        return not self.members and not self.placed and super().empty


class _Seats:
    """Seats of one Job of a JobSet with spares, and the number of its ready spares.

    Args:
        job: the Job.
        taken: UIDs of the holders of seats with an entry.
        held: False for a Job whose pods are all parked.
    """

    __slots__ = ("held", "job", "ready", "taken")

    def __init__(self, job: _Job, taken: Mapping[int, str], *, held: bool) -> None:
        self.job = job
        self.taken = taken
        self.held = held
        self.ready = 0

    @property
    def lacking(self) -> int:
        """Return 1 if no spare is ready although there should be one."""
        wanted = bool(self.job.spares or self.job.working)
        return int(self.held and wanted and not self.ready)

    @property
    def whole(self) -> int:
        """Return 1 if its pods can take over all seats of another Job."""
        return int(not self.held and self.ready >= self.job.seats)

    def parks(self, pod: _LivePod) -> bool:
        """Return True if a pod has no seat."""
        return pod[7] is not None and self.parks_pod(pod[5], pod[7][0])

    def parks_pod(self, uid: str, index: int) -> bool:
        """Return True if the pod with a UID and a completion index has no seat."""
        return not self.held or not holds_seat(uid, index, self.job.seats, self.taken)


class _Attempt(_Counts):
    """Pods of all Jobs of an attempt, the status of those Jobs, and observations.

    Parked pods of Jobs with spares are counted by themselves: they are no part of the group.
    """

    __slots__ = (
        *("lacking", "parked", "ready", "seats", "taken", "taken_jobs", "whole"),
        *("crashed", "crashed_at", "crashes", "deprecated", "excused", "failures", "from_start"),
        *("invalid_seen", "jobs", "latest", "lost", "mark", "noted", "opened", "opener", "remade"),
        *("reported", "single", "succeeded", "window_s"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self.succeeded = 0
        self.lost = 0
        self.noted = False
        self.mark = SyncedMark()
        self.deprecated = 0
        self.excused = 0
        self.crashed: dict[tuple[str, str], int] = {}  # by pod and container
        self.crashed_at: dict[tuple[str, str], tuple[datetime, ...]] = {}  # if there is a window
        self.window_s = 0.0
        self.crashes: dict[tuple[str, str], Crash] = {}
        self.failures: list[Failure] = []
        self.remade = ""
        self.invalid_seen = 0
        self.opened = self.single = (0, 0.0)
        self.opener = self.latest = (0, "", "")
        self.reported: ReportedEnd | None = None
        self.from_start: tuple[int, FirstProgress] | None = None
        self.seats: dict[str, _Seats] = {}  # by name of the Job
        self.taken: tuple[TakenSeat, ...] = ()
        self.parked: dict[int, int] = {}  # number by epoch
        self.taken_jobs: dict[str, str] = {}
        self.ready = 0
        self.lacking: dict[str, int] = {}  # Jobs without a ready spare, see _group_of
        self.whole: dict[str, int] = {}  # spare Jobs that are ready, by ReplicatedJob

    def note(self, invalid: Mapping[str, InvalidEpoch], sign: int) -> None:
        """Count those that appear."""
        super().note(invalid, sign)
        if sign > 0:
            self.invalid_seen += len(invalid)

    def note_failure(self, failure: Failure) -> None:
        """Keep a failure, unless there are enough, or failures of a newer epoch."""
        known = self.failures
        if known and known[0].epoch != failure.epoch:
            if failure.epoch < known[0].epoch:
                return
            known.clear()
        if len(known) < MAX_FAILURES:
            known.append(failure)

    def note_status(self, status: JobSetStatus, version: int, now: float, window_s: float) -> None:
        """Process the JobSet's epochs; the count of crashes is reset when they change."""
        self.window_s = window_s
        synced, deprecated = status.synced_epoch, status.deprecated_epoch
        if self.noted and (synced, deprecated) == (self.mark.epoch, self.deprecated):
            return
        record = status.in_place_restart or NO_RECORD
        if self.noted or synced:
            self.crashed.clear()
            self.crashed_at.clear()
            self.crashes.clear()
        if record.crashes:
            key = record.crashing_pod, record.crashing_container
            self.crashed[key] = record.crashes
            self.crashed_at[key] = record.crash_times
        self.excused = record.container_restarts + 1 if deprecated >= synced > 0 else 0
        if not self.noted or synced != self.mark.epoch:
            self.mark = SyncedMark(synced, version, now)
        self.deprecated, self.noted = deprecated, True

    def note_crash(
        self, replicated_job: str, pod: str, one: ContainerRestarts, wall: datetime | None
    ) -> None:
        """Record that a container has failed and was restarted; ignored while workers run.

        The first time after a restart has begun may belong to that restart. It does unless the
        container exceeds the highest restart count of that moment.
        """
        if self.epochs and self.deprecated < self.mark.epoch:
            return
        key = (pod, one.name)
        if key not in self.crashed and one.times <= self.excused:
            self.crashed[key] = 0
            return
        times = self.crashed[key] = self.crashed.get(key, 0) + 1
        worst = self.crashes.get((replicated_job, one.name))
        known = 0 if worst is None else worst.times
        at: tuple[datetime, ...] = ()
        if self.window_s and wall is not None:
            recent = within(self.crashed_at.get(key, ()), wall, self.window_s)
            at = self.crashed_at[key] = (
                *recent[-MAX_IN_WINDOW:],
                wall.replace(microsecond=0),  # as it is stored
            )
            times = len(at)
            if worst is not None:
                same = (worst.pod, worst.container) == key
                known = 0 if same else len(within(worst.at, wall, self.window_s))
        if times > known:
            self.crashes[replicated_job, one.name] = Crash(times, pod, one.name, at)

    def note_epochs(self, now: float, pod: ChildPod | None = None) -> None:
        """Record new epochs, and the pod that has arrived last, after a change of a pod."""
        epochs = self.epochs
        if not epochs:
            return
        newest = max(epochs)
        if pod is not None:
            reported = pod.metadata.annotations
            if parse_report(reported.report, reported.is_attempt) == newest:
                self.latest = (newest, pod.metadata.name, pod.spec.node_name)
                self._note_end(newest, pod)
        if newest > self.opened[0]:
            self.opened = (newest, now)
            self.opener = self.latest if self.latest[0] == newest else (newest, "", "")
        if len(epochs) == 1 and newest != self.single[0]:
            self.single = (newest, now)

    def _note_end(self, newest: int, pod: ChildPod) -> None:
        """Record the first worker that fails: others fail because of it."""
        known, annotations = self.reported, pod.metadata.annotations
        first = parse_first(annotations.first_progress)
        if first is not None:
            if self.from_start is not None and self.from_start[0] == newest:
                other = self.from_start[1]
                step, seconds = min(first.step, other.step), max(first.seconds, other.seconds)
                first = FirstProgress(step, seconds)
            self.from_start = (newest, first)
        if known is not None and known.epoch >= newest:
            return
        end = parse_cause(annotations.restart_cause)
        if end is not None:
            last = parse_progress(annotations.progress)
            where = (pod.metadata.name, pod.spec.node_name)
            self.reported = ReportedEnd(newest, *where, end, -1 if last is None else last)

    @property
    def exhausted(self) -> int:
        """Number of Jobs with seats and without a ready spare: a pod of theirs, or a whole Job."""
        return sum(count for group, count in self.lacking.items() if group not in self.whole)

    def pod_counted(self, job: _Job, counts: _JobCounts, pod: _Pod, number: int) -> bool:
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

    def _holds(self, job: _Job) -> bool:
        """Return True if a Job has seats; others complete nothing, and are not missed."""
        return holds_job(job.name, job.number, job.working, self.taken_jobs)

    def _tally(self, seats: _Seats, sign: int) -> None:
        """Count a Job by its ready spares, or take it back before they change."""
        if seats.lacking:
            _add(self.lacking, _group_of(seats.job), sign)
        if seats.whole:
            _add(self.whole, seats.job.replicated_job, sign)

    def place(self, seats: _Seats | None, pod: _LivePod, number: int) -> None:
        """Count a pod as a part of the group, or as parked."""
        place = pod[7]
        if seats is None or place is None or not seats.parks(pod):
            self.count(pod, number)
            return
        epoch = parse_report(pod[0], pod[1])
        if epoch > 0:
            _add(self.parked, epoch, number)
        elif epoch == INVALID:
            self.note({pod[5]: InvalidEpoch(pod[4], pod[5], pod[0] or "", pod[1])}, number)
        if place[1] == READY and epoch > 0 and not pod[3]:
            self._tally(seats, -1)
            self.ready += number
            seats.ready += number
            self._tally(seats, 1)

    def move(self, record: InPlaceRestartStatus, placed: Mapping[str, _JobCounts]) -> None:
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

    def _seats_changed(self, before: _Job | None, after: _Job | None, counts: _Counts) -> None:
        """Add the seats of a Job with its pods, or remove both."""
        pods = counts.placed.values() if isinstance(counts, _JobCounts) else ()
        if before is not None:
            for pod in pods:
                self.place(self.seats.get(before.name), pod, -1)
            gone = self.seats.pop(before.name, None)
            if gone is not None:
                self._tally(gone, -1)
        if after is not None:
            if after.spares is not None:
                taken = taken_by_job(self.taken).get(after.name, {})
                seats = _Seats(after, taken, held=self._holds(after))
                self.seats[after.name] = seats
                self._tally(seats, 1)
            for pod in pods:
                self.place(self.seats.get(after.name), pod, 1)

    def job_changed(self, before: _Job | None, after: _Job | None, counts: _Counts) -> bool:
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


class EpochLedger(MembershipLedger[_Pod, _Job, _JobCounts, _Attempt]):
    """Counts of epochs per JobSet and attempt, kept up to date by events in O(1).

    Attributes:
        newest_version: highest observed resourceVersion of a pod.
    """

    __slots__ = ("_failure_times", "newest_version")

    def __init__(self) -> None:
        super().__init__(_read_pod, _read_job, _JobCounts, _Attempt)
        self.newest_version = 0
        self._failure_times = FailureTimes()

    def failed_at(self, job: Job) -> float | None:
        """Return the monotonic time at which the latest failure of a Job's pod was observed."""
        return self._failure_times.of(job)

    def pod_changed(
        self,
        old: ChildPod | None,
        new: ChildPod | None,
        now: float = 0.0,
        wall: Callable[[], datetime] | None = None,
    ) -> AttemptKey | None:
        """Process a pod's change.

        Args:
            old: the pod as of the event before, ``None`` if it is new.
            new: the pod now, ``None`` if it is deleted.
            now: time on the monotonic clock, in seconds.
            wall: reads the wall clock, called at a crash only; without it crashes are not counted
                within a window.

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
        if old is None or new is None or new.status.restarts is old.status.restarts:
            crashed = None
        else:
            crashed = self._note_crashes(old, new, wall)
        if old is not None and new is None:
            self._forget_crashes(old)
        failed = None if old is None else self._note_failure(old, new, now)
        return failed or crashed or changed

    def _is_parked(self, pod: ChildPod) -> bool:
        """Return True for a pod of a Job with spares that has no seat."""
        job = self._jobs.get(pod.metadata.controller_uid)
        place = _place_of(pod)
        if job is None or place is None:
            return False
        seats = self._attempts[job[0]].seats.get(job[1].name)
        return seats is not None and seats.parks_pod(pod.metadata.uid, place[0])

    def _note_crashes(
        self, old: ChildPod, new: ChildPod, wall: Callable[[], datetime] | None
    ) -> AttemptKey | None:
        job = self._jobs.get(new.metadata.controller_uid)
        if job is None or self._is_parked(new):
            return None
        failed = _failed_since(old, new)
        at = wall() if failed and wall is not None else None
        for one in failed:
            self._attempts[job[0]].note_crash(job[1].replicated_job, new.metadata.name, one, at)
        return job[0] if failed else None

    def _forget_crashes(self, gone: ChildPod) -> None:
        """Drop the crash counts of a deleted pod; the worst crash is kept."""
        key = self.group_of_pod(gone)
        if key is None:
            return
        for one in gone.status.restarts:
            self._attempts[key].crashed.pop((gone.metadata.name, one.name), None)
            self._attempts[key].crashed_at.pop((gone.metadata.name, one.name), None)

    def _note_failure(self, old: ChildPod, new: ChildPod | None, now: float) -> AttemptKey | None:
        sign = sign_of(old, new)
        key = None if sign is None else self.group_of_pod(old)
        if sign is None or key is None or self._is_parked(old):
            return None
        attempt, reported = self._attempts[key], old.metadata.annotations
        epoch = parse_report(reported.report, reported.is_attempt)
        if epoch <= attempt.deprecated:
            return None  # it has ended, regardless of its pods
        if sign is FailureSignal.CONTAINER_FAILED and not attempt.mark.shows_run(
            epoch, version_number(old.metadata.resource_version), now
        ):
            return None
        attempt.note_failure(Failure(sign, epoch, old, new, now))
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
        self._failure_times.job_changed(old, new, now)
        remade = None
        if old is not None and _goes_to_be_remade(old, new) and old.metadata.uid in self._jobs:
            remade = self._jobs[old.metadata.uid][0]
            self._attempts[remade].remade = old.metadata.name
        changed = super().job_changed(old, new)
        if changed is not None and changed in self._attempts:
            self._attempts[changed].note_epochs(now)
        return changed or remade

    def notes(self, group: AttemptKey) -> Observations:
        """Return the current observations of an attempt."""
        known = self._attempts.get(group)
        if known is None:
            return Observations()
        failures = tuple(known.failures)
        return Observations(
            failures,
            known.remade,
            known.invalid_seen,
            known.opened,
            known.single,
            known.opener,
            known.latest,
            known.reported,
            known.from_start,
        )

    def forget_notes(self, group: AttemptKey, notes: Observations) -> None:
        """Drop processed observations, except those newer than the synced epoch."""
        known = self._attempts.get(group)
        if known is None:
            return
        if notes.failures:
            newest = known.mark.epoch
            known.failures = [
                one for one in known.failures if one.epoch > newest or one not in notes.failures
            ]
        if known.remade == notes.remade:
            known.remade = ""

    def note_status(
        self,
        group: AttemptKey,
        status: JobSetStatus,
        version: int,
        now: float,
        window_s: float = 0.0,
    ) -> None:
        """Process the JobSet's epochs, as they were observed or written.

        Args:
            group: the JobSet's current attempt.
            status: status with both epochs.
            version: ``newest_version`` before the status was observed or written.
            now: time on the monotonic clock, in seconds.
            window_s: window in seconds for counting crashes; 0 for since the barrier closed.
        """
        known = self._attempts.get(group)
        if known is None:
            return
        record = status.in_place_restart or NO_RECORD
        if (
            record.taken_seats != known.taken
            or taken_jobs_of(record.taken_jobs) != known.taken_jobs
        ):
            known.move(record, self._pods)
            known.note_epochs(now)
        known.note_status(status, version, now, window_s)

    def histogram(self, group: AttemptKey) -> Histogram:
        """Return the pods of the Jobs of one attempt; a live view, for immediate use.

        Succeeded pods are known from their Job's status, and before that from themselves
        (:mod:`reconcilers.restart_in_place.succeeded`).
        """
        counts = self._attempts.get(group)
        if counts is None:
            return Histogram()
        return Histogram(
            counts.epochs,
            counts.succeeded,
            counts.first,
            counts.restarts,
            counts.lost,
            counts.leaving,
            counts.doubles,
            counts.crashes,
            counts.attempts,
            counts.progress,
            0 if counts.reported is None else counts.reported.epoch,
            counts.digest,
            counts.slow,
            Spares(
                counts.parked,
                counts.ready,
                counts.exhausted,
                partial(self._seated_jobs, counts),
            )
            if counts.seats
            else None,
        )

    def _seated_jobs(self, attempt: _Attempt) -> list[SeatedJob]:
        """Return the Jobs with spares, and their pods; O(pods)."""
        return [
            SeatedJob(
                name,
                seats.job.seats,
                [_seat_pod(pod) for pod in self._placed(seats.job) if parse_report(*pod[:2]) > 0],
                partial(self._has_completed, seats.job),
                seats.job.replicated_job,
                seats.job.number,
                seats.job.working,
                begun=self._has_begun(seats.job),
            )
            for name, seats in attempt.seats.items()
            if not seats.job.lost
        ]

    def _placed(self, job: _Job) -> Iterable[_LivePod]:
        counts = self._pods.get(job.uid)
        return () if counts is None else counts.placed.values()

    def _has_completed(self, job: _Job, index: int) -> bool:
        counts = self._pods.get(job.uid)
        here = counts is not None and str(index) in counts.completions
        return here or is_counted(job.status, str(index))

    def _has_begun(self, job: _Job) -> bool:
        counts = self._pods.get(job.uid)
        return bool(counted(job.status) or (counts is not None and counts.completions))

    def invalid(self, group: AttemptKey) -> Mapping[str, InvalidEpoch]:
        """Return pods with an invalid annotation, by UID; a live view."""
        counts = self._attempts.get(group)
        return {} if counts is None else counts.invalid


def _group_of(job: _Job) -> str:
    """Return the key of Jobs that share spare Jobs; all others have the same one."""
    return job.replicated_job if job.working else ""


def _add(numbers: dict[K, int], value: K, number: int) -> int:
    """Add to a number in a mapping without zeros and return the new value."""
    count = numbers.get(value, 0) + number
    if count:
        numbers[value] = count
    else:
        del numbers[value]
    return count


def _read_pod(pod: ChildPod) -> tuple[str, _Pod] | None:
    """Return the counted fields of a pod; ``None`` if it failed or has nothing to count.

    Succeeded pods are counted until their Job counts them.
    """
    meta, status = pod.metadata, pod.status
    owner, phase = meta.controller_uid, status.phase
    if phase == "Failed" or not owner:
        return None
    if phase == "Succeeded":
        completion = completion_of(pod)
        return (owner, (completion,)) if completion else None
    annotations = meta.annotations
    text = annotations.report
    restarts = max([one.times for one in status.restarts]) if status.restarts else 0
    if text is None and not restarts and annotations.completion_index is None:
        return None
    leaving = meta.deletion_timestamp is not None
    who = (meta.name, meta.uid, annotations.progress)
    # What was said of an earlier epoch is over.
    slow = annotations.slow_patch is not None and annotations.slow_patch.split()[:1] == [text]
    where = (_place_of(pod), annotations.completion_index, slow)
    return owner, (text, annotations.is_attempt, restarts, leaving, *who, *where)


def _place_of(pod: ChildPod) -> _Place | None:
    """Return the place of a pod that says it belongs to a Job with spares."""
    annotations = pod.metadata.annotations
    if not annotations.spares:
        return None
    index = parse_count(annotations.completion_index)
    where = (pod.status.pod_ip, pod.spec.node_name)
    return None if index is None else (index, annotations.agent_state, *where)


def _seat_pod(pod: _LivePod) -> SeatPod:
    index, state, address, node = pod[7] or (0, "", "", "")
    epoch = parse_report(pod[0], pod[1])
    return SeatPod(pod[4], pod[5], index, epoch, state, pod[3], address, node)


def _read_job(job: Job) -> tuple[AttemptKey, _Job] | None:
    key = attempt_of(job)
    if key is None:
        return None
    meta, seats, spares = job.metadata, seats_of_job(job), spares_of_job(job)
    name, index = replicated_job_of(job), parse_count(meta.labels.get(keys.JOB_INDEX)) or 0
    place = (meta.name, meta.uid, seats, spares, index, working_with(job))
    return key, _Job(job.status, _lost(job), name, *place)


def _failed_since(old: ChildPod, new: ChildPod) -> list[ContainerRestarts]:
    """Return containers that were restarted for a failure; of several failures, the latest."""
    before = {one.name: one.times for one in old.status.restarts}
    return [
        one for one in new.status.restarts if one.failed and one.times > before.get(one.name, 0)
    ]


def _goes_to_be_remade(old: Job, new: Job | None) -> bool:
    """Return True if the deletion of a Job begins that has the annotation for recreation."""
    if old.metadata.deletion_timestamp is not None:
        return False
    gone = new is None or new.metadata.deletion_timestamp is not None
    return gone and keys.RESTART_ANNOTATION in old.metadata.annotations


def _lost(job: Job) -> int:
    """Return the number of pods that a failed Job will never have again."""
    if job.status.failed_condition is None:
        return 0
    return max(0, seats_of_job(job) - job.status.succeeded)
