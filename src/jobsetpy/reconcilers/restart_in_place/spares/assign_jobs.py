"""Assignment of seats: which pod does the work of which completion index of which Job.

A Job with spares has more pods than seats. A pod that has a seat is its *holder*, a pod without one
is *parked*. Seats are assigned when a barrier lifts, and only then:

* A holder that has come to the new epoch keeps its seat.
* A seat whose holder is lost goes to a parked pod of the same Job that has come to the new epoch;
  preferably not to one on a node with a pod that is missing for an unknown reason: if the node is
  dead, its spares still look ready.
* A pod that returns later is parked.
* A pod whose machine is unfit gets no seat, and its seat goes to another pod immediately.
* A Job with a minimum that cannot fill all seats has, after a time, only as many as it can fill:
  the lowest ones. When the missing pods are there at a later lift, it has them all again. Pods
  keep their seats both times, except for those whose seats no longer exist.
* Of a ReplicatedJob with a minimum of Jobs, those that cannot fill all seats have none for the
  same time, and the pods that they have are parked: a Job is never seated in part.

A ReplicatedJob may have more Jobs than Jobs with seats, too: all pods of the others are parked.
A Job that cannot fill its seats gives all of them up to one of those, and is parked from then on.
It keeps them once one of its pods has succeeded: that work would be lost with its count.

The assignment is a list of exceptions. A seat without an entry in
``status.inPlaceRestart.takenSeats`` is held by the pod with its completion index; entries name pods
by UID, because a replacement has the same index and nearly the same name. The seats of a Job
without an entry in ``takenJobs`` are held by its own pods. All agents read the same lists in the
same version of the status that lifts their barrier, so each seat has exactly one holder in each
epoch. All agents receive them, so they are kept short: see :data:`MAX_ENTRIES`.

A holder that is missing although parked pods could take over is waited for: until its last call is
over, see :class:`assign_job.HolderWaits`. Nothing here depends on earlier plans: a manager that
takes over decides the same, from the stored lists and the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import xor
from typing import Final

import attrs

from jobsetpy.api.jobset import TakenJob, TakenSeat
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import (
    JobSwap,
    SeatedJob,
    Seating,
    SeatingRequest,
    assign_job,
    holder_wait_s,
    with_fewer,
)
from jobsetpy.reconcilers.rules.barrier_state import holds_job

MAX_ENTRIES: Final = 64
"""Number of entries above which pods and Jobs get back the seats of their own indexes.

A swap displaces a survivor's successor, so that with one spare all seats could have entries after
some thousand swaps. Once pods take their own seats back, at most as many entries remain as seats
whose own pods are lost. Survivors move only then, since their files on a node's disk stay behind.
"""


def taken_by_job(taken: Iterable[TakenSeat]) -> dict[str, dict[int, str]]:
    """Return the UIDs of holders by Job and seat."""
    found: dict[str, dict[int, str]] = {}
    for one in taken:
        found.setdefault(one.job, {})[one.seat] = one.pod_uid
    return found


def taken_jobs_of(taken: Iterable[TakenJob]) -> dict[str, str]:
    """Return the names of holders by Job."""
    return {one.job: one.holder for one in taken}


def assign_seats(
    jobs: Iterable[SeatedJob],
    taken: Iterable[TakenSeat],
    request: SeatingRequest,
    taken_jobs: Iterable[TakenJob] = (),
) -> Seating:
    """Assign all seats at an epoch; O(pods).

    Args:
        jobs: the Jobs of a JobSet with spares.
        taken: the assignment so far, of seats.
        request: the assignment that is to be made; ``doubtful`` is found here.
        taken_jobs: the assignment so far, of Jobs.
    """
    jobs = sorted(jobs, key=lambda job: (job.replicated_job, job.index, job.name))
    if not request.starting:
        pods = (pod for job in jobs for pod in job.pods if pod.node)
        request = attrs.evolve(
            request, doubtful={pod.node for pod in pods if request.is_doubtful(pod)}
        )
    groups: dict[str, list[SeatedJob]] = {}
    for job in jobs:
        together = job.working or job.least_jobs
        groups.setdefault(f"{job.replicated_job}/" if together else job.name, []).append(job)
    entries: dict[str, list[TakenSeat]] = {}
    for one in taken:
        entries.setdefault(one.job, []).append(one)
    holders = taken_jobs_of(taken_jobs)
    seating = _assign(groups.values(), entries, holders, request)
    if len(seating.taken) <= MAX_ENTRIES and len(seating.taken_jobs) <= MAX_ENTRIES:
        return seating
    for job in (job for group in groups.values() for job in group):
        entries[job.name] = _without_displaced(job, entries.get(job.name, ()), request)
    for group in groups.values():
        holders = _without_displaced_jobs(group, holders, request)
    home = _assign(groups.values(), entries, holders, request)
    return attrs.evolve(home, wait_s=max(home.wait_s, seating.wait_s))


def _assign(
    groups: Iterable[Sequence[SeatedJob]],
    taken: Mapping[str, Sequence[TakenSeat]],
    holders: Mapping[str, str],
    request: SeatingRequest,
) -> Seating:
    return _sum(_Group(group, taken, holders, request).assign() for group in groups)


def _sum(parts: Iterable[Seating]) -> Seating:
    """Return the assignment of several groups of Jobs, or of several Jobs of one."""
    known = list(parts)
    return Seating(
        taken=tuple(one for part in known for one in part.taken),
        swaps=tuple(one for part in known for one in part.swaps),
        filled=sum(part.filled for part in known),
        unfilled=sum(part.unfilled for part in known),
        wait_s=max((part.wait_s for part in known), default=0.0),
        ready=sum(part.ready for part in known),
        digest=reduce(xor, (part.digest for part in known), 0),
        taken_jobs=tuple(one for part in known for one in part.taken_jobs),
        job_swaps=tuple(one for part in known for one in part.job_swaps),
        sizes=tuple(one for part in known for one in part.sizes),
    )


@attrs.define(slots=False)
class _Group:
    """Jobs that can take over from each other: those of a ReplicatedJob, or a single one.

    Args:
        jobs: the Jobs, at least one.
        taken: the assignment so far, by Job.
        holders: names of the holders of Jobs with an entry.
        request: the assignment that is to be made.
    """

    jobs: Sequence[SeatedJob]
    taken: Mapping[str, Sequence[TakenSeat]]
    holders: Mapping[str, str]
    request: SeatingRequest

    def assign(self) -> Seating:
        """Assign the seats of all Jobs."""
        if self.jobs[0].least_jobs:
            return _sum(self._all_or_none())
        return _sum(map(self._assign, _names(self.jobs)))

    def _all_or_none(self) -> list[Seating]:
        """Assign all seats of each Job, or none if it cannot fill them and others are enough."""
        jobs = [(job, self.taken.get(job.name, ())) for job in self.jobs]
        whole = [assign_job(job, taken, self.request) for job, taken in jobs]
        filled = sum(not each.unfilled for each in whole)
        if self.jobs[0].fixed or filled < self.jobs[0].least_jobs:
            return whole
        smaller = filled < sum(not job.missing for job in self.jobs)
        return [
            with_fewer(*each, 0, self.request, smaller=smaller) if seating.unfilled else seating
            for each, seating in zip(jobs, whole, strict=True)
        ]

    def _assign(self, name: str) -> Seating:
        """Assign the seats of one Job to the Job that holds them, or to a spare one."""
        old = self.holders.get(name, name)
        holder = self._by_name.get(old)
        if holder is None:
            seating = Seating(unfilled=self.jobs[0].seats)
        else:
            seating = assign_job(holder, self.taken.get(old, ()), self.request)
        new = old
        if seating.unfilled and not (holder is not None and holder.begun) and self._spare_jobs:
            new, found = min(self._spare_jobs.items(), key=lambda one: self._preference(name, *one))
            del self._spare_jobs[new]
            swap = JobSwap(name, new, old, found.filled)
            wait_s = max(0.0, self._job_wait_s(holder) - self.request.waited_s)
            seating = attrs.evolve(found, swaps=(), job_swaps=(swap,), wait_s=wait_s)
        entries = () if new == name else (TakenJob(job=name, holder=new),)
        return attrs.evolve(seating, taken_jobs=entries)

    @cached_property
    def _by_name(self) -> dict[str, SeatedJob]:
        return {job.name: job for job in self.jobs}

    @cached_property
    def _spare_jobs(self) -> dict[str, Seating]:
        """Parked Jobs that can fill all seats of a Job, and how."""
        known = {
            job.name: assign_job(job, (), self.request)
            for job in self.jobs
            if not holds_job(job.name, job.index, job.working, self.holders) and not job.begun
        }
        return {name: seating for name, seating in known.items() if not seating.unfilled}

    def _preference(self, name: str, spare: str, seating: Seating) -> tuple[bool, bool, bool, str]:
        """Return the order of spare Jobs: doubtful and unprepared ones last, own index first."""
        doubtful = any(pod.node in self.request.doubtful for pod in self._by_name[spare].pods)
        return doubtful, seating.ready < seating.filled, spare != name, spare

    def _job_wait_s(self, holder: SeatedJob | None) -> float:
        """Return how long a Job is waited for: its spares may come, its workers may save."""
        missing = () if holder is None else holder.pods
        times = (holder_wait_s(pod, self.request) for pod in missing if not self.request.has(pod))
        return max([holder_wait_s(None, self.request), *times])


def _names(jobs: Sequence[SeatedJob]) -> list[str]:
    """Return the names of a group's Jobs that have seats; such a Job may not exist."""
    first = jobs[0]
    stem = first.name.rpartition("-")[0]
    return [f"{stem}-{index}" for index in range(first.working)] or [first.name]


def _without_displaced(
    job: SeatedJob, taken: Iterable[TakenSeat], request: SeatingRequest
) -> list[TakenSeat]:
    """Return the entries of a Job without those of pods that can have the seats of their indexes.

    Once an index has succeeded its seats stay as they are, since the list says whose work that was.
    """
    if job.begun:
        return list(taken)
    own = {pod.index for pod in job.pods if request.has(pod) and pod.index < job.seats}
    return [one for one in taken if one.seat not in own and one.pod_index not in own]


def _without_displaced_jobs(
    jobs: Sequence[SeatedJob], holders: Mapping[str, str], request: SeatingRequest
) -> dict[str, str]:
    """Return the same for the entries of Jobs."""
    names = set(_names(jobs))
    begun = {job.name for job in jobs if job.begun}
    own = {
        job.name
        for job in jobs
        if job.name in names and not assign_job(job, (), request).unfilled
    }  # fmt: skip
    return {
        job: holder
        for job, holder in holders.items()
        if job not in names or {job, holder} & begun or not {job, holder} & own
    }
