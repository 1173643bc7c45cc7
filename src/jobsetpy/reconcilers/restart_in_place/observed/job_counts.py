"""Counts of the pods of a Job, and what is counted of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job, JobStatus
from jobsetpy.api.child_pod import ChildPod, ContainerRestarts
from jobsetpy.api.worker_reports import parse_progress, parse_report
from jobsetpy.reconcilers.restart_in_place.job_controller.completions import (
    completion_of,
    counted,
    is_counted,
)
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import SeatedJob, SeatPod, uid_digest
from jobsetpy.reconcilers.rules.membership import (
    attempt_of,
    parse_count,
    replicated_job_of,
)
from jobsetpy.reconcilers.rules.membership_ledger import Member, add_to
from jobsetpy.reconcilers.rules.spares import (
    fewest_of_job,
    fewest_with,
    seats_of_job,
    spares_of_job,
    working_with,
)


class Place(NamedTuple):
    """Place of a pod that says it belongs to a Job with spares."""

    pod_index: int
    state: str
    address: str
    node: str


class CountedFields(NamedTuple):
    """Counted fields of a pod that has not ended.

    Args:
        report: its agent's report, which is parsed only after a change.
        progress: the progress that it reports with it.
        is_attempt: True if the report is an attempt of the Go project's agent.
        restarts: highest restart count of a container.
        leaving: True if it is being deleted.
        name: its name.
        uid: its UID.
        place: its place among spares, if its Job has some.
        completion_index: its completion index.
    """

    report: str | None
    progress: str | None
    is_attempt: bool
    restarts: int
    leaving: bool
    name: str
    uid: str
    place: Place | None
    completion_index: str | None


class Completed(NamedTuple):
    """Pod that has succeeded: only what it completes is counted."""

    completion: str


CountedPod: TypeAlias = CountedFields | Completed


class CountedJob(NamedTuple):
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
    least: int = 0  # fewest pods with which it continues, 0 if it needs all
    least_jobs: int = 0  # fewest Jobs of the ReplicatedJob that continue, 0 if all are needed

    @property
    def seating(self) -> tuple[int | None, ...]:
        """Everything that decides who of its pods has a seat."""
        return self.seats, self.spares, self.number, self.working, self.least, self.least_jobs

    def uncounted(self, completions: Iterable[str]) -> int:
        """Return how many completions the Job's status does not include yet."""
        return sum(not is_counted(self.status, completion) for completion in completions)

    def completed(self, completions: Iterable[str]) -> int:
        """Return how many of its pods have succeeded, given the completions of its pods."""
        return counted(self.status) + self.uncounted(completions)


@attrs.define(eq=False)
class Counts:
    """Pods of one Job, or of all Jobs of an attempt.

    Args:
        epochs: number of live pods at each epoch, without zeros.
        restarts: number of live pods for each restart count of a container above 0, for any cause.
        leaving: number of pods at an epoch that are being deleted.
        doubles: number of live pods whose completion index another live pod has as well; including
            those that have not reported an epoch yet, and may join any that is not synced.
        attempts: number of live pods with an agent of the Go project, which reports attempts.
        digest: digest of the UIDs of pods with an epoch, in any order.
        progress: the newest epoch with which a pod has reported earlier progress, and the highest
            step; -1 without a number.
    """

    epochs: dict[int, int] = attrs.field(factory=dict)
    restarts: dict[int, int] = attrs.field(factory=dict)
    leaving: int = 0
    doubles: int = 0
    attempts: int = 0
    digest: int = 0
    progress: tuple[int, int] = (0, -1)

    def count(self, pod: CountedFields, number: int) -> None:
        """Count one more pod, or one less."""
        epoch = parse_report(pod.report, pod.is_attempt)
        if epoch > 0:
            add_to(self.epochs, epoch, number)
            self.leaving += number * pod.leaving
            self.attempts += number * pod.is_attempt
            self.digest ^= uid_digest(pod.uid)  # the same in and out
            if number > 0:
                self.reach(epoch, parse_progress(pod.progress))
        if pod.restarts:
            add_to(self.restarts, pod.restarts, number)

    def move(self, before: int, after: int, progress: str | None) -> None:
        """Count a pod at another epoch, and the progress that it reports there."""
        add_to(self.epochs, before, -1)
        add_to(self.epochs, after, 1)
        self.reach(after, parse_progress(progress))

    def merge(self, other: Counts, sign: int) -> None:
        """Add all counts of ``other``, or subtract them."""
        for epoch, count in other.epochs.items():
            add_to(self.epochs, epoch, sign * count)
        for restarts, count in other.restarts.items():
            add_to(self.restarts, restarts, sign * count)
        self.leaving += sign * other.leaving
        self.doubles += sign * other.doubles
        self.attempts += sign * other.attempts
        self.digest ^= other.digest
        if sign > 0:
            self.reach(*other.progress)

    def reach(self, epoch: int, step: int | None) -> None:
        """Record reported progress; keep the highest of the newest epoch."""
        if step is not None:
            self.progress = max(self.progress, (epoch, step))


@attrs.define(eq=False)
class JobCounts(Counts):
    """Pods of one Job; those of a Job with spares are kept, as they have seats or not."""

    completions: dict[str, int] = attrs.field(factory=dict)
    """Number of succeeded pods, by what they complete."""
    members: dict[str, int] = attrs.field(factory=dict)
    """Number of pods that have not ended, by completion index."""
    placed: dict[str, CountedFields] = attrs.field(factory=dict)

    def doubled(self, pod: CountedFields, number: int) -> int:
        """Return the change of ``doubles`` by a pod that was just counted ``number`` times."""
        index = pod.completion_index
        others = 0 if index is None else self.members.get(index, 0) - (1 if number > 0 else 0)
        return number if others else 0

    def count(self, pod: CountedPod, number: int) -> None:
        """Count one more pod, or one less; how one with a place counts depends on its Job."""
        if isinstance(pod, Completed):
            add_to(self.completions, pod.completion, number)
            return
        if pod.completion_index is not None:
            add_to(self.members, pod.completion_index, number)
            self.doubles += self.doubled(pod, number)
        if pod.place is None:
            super().count(pod, number)
        elif number > 0:
            self.placed[pod.uid] = pod
        else:
            self.placed.pop(pod.uid, None)

    def seated(self, job: CountedJob) -> SeatedJob:
        """Return a Job with spares, whose pods these are; O(pods)."""
        found = (seat_pod(pod) for pod in self.placed.values())
        return SeatedJob(
            job.name,
            job.seats,
            [pod for pod in found if pod.epoch > 0],
            lambda index: str(index) in self.completions or is_counted(job.status, str(index)),
            job.replicated_job,
            job.number,
            job.working,
            begun=bool(self.completions or counted(job.status)),
            least=job.least,
            least_jobs=job.least_jobs,
        )

    @property
    def empty(self) -> bool:
        """Return True if nothing is counted."""
        own = self.completions, self.members, self.placed
        return not any((self.epochs, self.restarts, *own))


def read_pod(pod: ChildPod) -> tuple[str, CountedPod] | None:
    """Return the counted fields of a pod; ``None`` if it failed or has nothing to count.

    Succeeded pods are counted until their Job counts them.
    """
    meta, status = pod.metadata, pod.status
    owner, phase = meta.controller_uid, status.phase
    if phase == "Failed" or not owner:
        return None
    if phase == "Succeeded":
        completion = completion_of(pod)
        return (owner, Completed(completion)) if completion else None
    annotations = meta.annotations
    text = annotations.report
    restarts = max([one.times for one in status.restarts]) if status.restarts else 0
    if text is None and not restarts and annotations.completion_index is None:
        return None
    leaving = meta.deletion_timestamp is not None
    return owner, CountedFields(
        text,
        annotations.progress,
        annotations.is_attempt,
        restarts,
        leaving,
        meta.name,
        meta.uid,
        place_of(pod),
        annotations.completion_index,
    )


class Move(NamedTuple):
    """Move of a pod from one epoch to another, and the progress that it reports there."""

    left: int
    joined: int
    progress: str | None


def move_of(before: CountedPod, after: CountedPod) -> Move | None:
    """Return the epochs between which a pod moves, and its progress; ``None`` for other changes.

    In a restart thousands of pods move: it is cheaper than to count each of them twice.
    """
    if isinstance(before, Completed) or isinstance(after, Completed) or after.place is not None:
        return None
    if before[2:] != after[2:]:  # all but the report and the progress with it
        return None
    left = parse_report(before.report, before.is_attempt)
    joined = parse_report(after.report, after.is_attempt)
    return Move(left, joined, after.progress) if left > 0 and joined > 0 else None


def place_of(pod: ChildPod) -> Place | None:
    """Return the place of a pod that says it belongs to a Job with spares."""
    annotations = pod.metadata.annotations
    if not annotations.spares:
        return None
    index = parse_count(annotations.completion_index)
    where = (pod.status.pod_ip, pod.spec.node_name)
    return None if index is None else Place(index, annotations.agent_state, *where)


def seat_pod(pod: CountedFields) -> SeatPod:
    """Return a counted pod as a candidate for a seat."""
    index, state, address, node = pod.place or Place(0, "", "", "")
    epoch = parse_report(pod.report, pod.is_attempt)
    return SeatPod(pod.name, pod.uid, index, epoch, state, pod.leaving, address, node)


def read_job(job: Job) -> Member[CountedJob] | None:
    """Return the counted fields of a Job with its attempt; ``None`` for one of no JobSet."""
    key = attempt_of(job)
    if key is None:
        return None
    meta, seats, spares = job.metadata, seats_of_job(job), spares_of_job(job)
    name, index = replicated_job_of(job), parse_count(meta.labels.get(keys.JOB_INDEX)) or 0
    place = (meta.name, meta.uid, seats, spares, index, working_with(job))
    fewest = fewest_of_job(job), fewest_with(job)
    return Member(key, CountedJob(job.status, _lost(job), name, *place, *fewest))


def failed_since(old: ChildPod, new: ChildPod) -> list[ContainerRestarts]:
    """Return containers that were restarted for a failure; of several failures, the latest."""
    before = {one.name: one.times for one in old.status.restarts}
    return [
        one for one in new.status.restarts if one.failed and one.times > before.get(one.name, 0)
    ]


def begins_recreation(old: Job, new: Job | None) -> bool:
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
