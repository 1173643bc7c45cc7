"""Seats of one Job with spares: its pods, their holders, and the pods that take over.

The rules are explained in :mod:`reconcilers.restart_in_place.spares.assign_jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Final
from zlib import crc32

import attrs

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import READY, SAVING
from jobsetpy.api.jobset import JobSize, TakenJob, TakenSeat


@attrs.frozen
class HolderWaits:
    """Times in seconds for which a missing holder is waited for although its seat could be filled.

    Args:
        last_s: a pod that exists and has not come to the epoch: from the first sign of the restart.
        leaving_s: a pod that is being deleted; its worker gets a moment to report that it saves.
        start_s: pods that start for the first time, and pull images: from the first pod's arrival.
        saving_s: in addition to the grace period that a saving worker has.
        growth_s: a pod that exists, while others that were missing have come.
    """

    last_s: float = 1.0
    leaving_s: float = 0.5
    start_s: float = 60.0
    saving_s: float = 5.0
    growth_s: float = 10.0


HOLDER_WAITS: Final = HolderWaits()
WITHOUT_SPARES: Final = HolderWaits(start_s=5.0)
"""For a JobSet that starts without spares: pods that are late are expected."""


@attrs.frozen
class SeatPod:
    """Live pod of a JobSet with spares that has reported an epoch.

    Args:
        name: name of the pod.
        uid: its UID.
        index: its completion index.
        epoch: epoch that it has reported.
        state: its agent's state, or "".
        leaving: True if it is being deleted.
        address: its IP address, "" if unknown.
        node: its node, "" if unknown.
    """

    name: str
    uid: str
    index: int
    epoch: int
    state: str = ""
    leaving: bool = False
    address: str = ""
    node: str = ""

    @property
    def is_unfit(self) -> bool:
        """Return True if the pod is about to end because its health command has failed."""
        return self.state.startswith(keys.UNFIT_STATE)


@attrs.frozen
class SeatedJob:
    """Job of a JobSet with spares; it may have none itself.

    Args:
        name: name of the Job.
        seats: number of seats.
        pods: its live pods with an epoch.
        completed: returns True if a completion index has succeeded.
        replicated_job: name of its ReplicatedJob.
        index: its index in that.
        working: number of Jobs of the ReplicatedJob that have seats; 0 if each has its own.
        begun: True if a completion index has succeeded.
        least: fewest seats with which it continues when pods are missing; 0 if it needs all.
        least_jobs: fewest Jobs of its ReplicatedJob that continue, with all their seats each; 0 if
            all are needed.
        missing: number of seats that it does without in the present epoch.
        fixed: True if that number must stay as it is.
    """

    name: str
    seats: int
    pods: Sequence[SeatPod] = ()
    completed: Callable[[int], bool] = lambda _index: False
    replicated_job: str = ""
    index: int = 0
    working: int = 0
    begun: bool = False
    least: int = 0
    least_jobs: int = 0
    missing: int = 0
    fixed: bool = False


@attrs.frozen
class Swap:
    """Seat that a pod takes over.

    Args:
        job: name of the Job.
        seat: number of the seat.
        pod: the pod that takes it.
        lost: name of its last holder, if that is known.
    """

    job: str
    seat: int
    pod: SeatPod
    lost: str = ""

    def __str__(self) -> str:
        old = f" of pod {self.lost!r}" if self.lost else ""
        return f"pod {self.pod.name!r} takes seat {self.seat} of job {self.job!r}{old}"


@attrs.frozen
class JobSwap:
    """Job whose seats are all taken over by another one; ``lost`` has held them before."""

    job: str
    holder: str
    lost: str
    seats: int

    def __str__(self) -> str:
        if self.holder == self.job:
            return f"job {self.job!r} takes all its seats back from job {self.lost!r}"
        held = "" if self.lost == self.job else f", which job {self.lost!r} has held"
        return f"job {self.holder!r} takes all seats of job {self.job!r}{held}"


@attrs.frozen
class Seating:
    """Assignment of all seats at an epoch, or the reason why there is none yet.

    Args:
        taken: the new exceptions, by Job and seat.
        swaps: seats that change their holder.
        filled: number of seats that pods can fill.
        unfilled: number of seats that no pod can fill.
        wait_s: seconds until the last call for missing holders is over, if all can be filled.
        ready: number of ready spares that get a seat.
        digest: digest of the UIDs of all holders, in any order.
        taken_jobs: the new exceptions, by Job.
        job_swaps: Jobs whose seats all change their holder.
        sizes: Jobs that have fewer seats than their templates state.
    """

    taken: tuple[TakenSeat, ...] = ()
    swaps: tuple[Swap, ...] = ()
    filled: int = 0
    unfilled: int = 0
    wait_s: float = 0.0
    ready: int = 0
    digest: int = 0
    taken_jobs: tuple[TakenJob, ...] = ()
    job_swaps: tuple[JobSwap, ...] = ()
    sizes: tuple[JobSize, ...] = ()

    @property
    def complete(self) -> bool:
        """Return True if the barrier may lift with this assignment."""
        return not self.unfilled and self.wait_s <= 0

    @property
    def missing(self) -> int:
        """Number of seats that Jobs do without."""
        return sum(one.missing for one in self.sizes)

    @property
    def seats_taken(self) -> int:
        """Number of seats that change their holder."""
        return len(self.swaps) + sum(each.seats for each in self.job_swaps)

    def changes(self) -> Iterator[str]:
        """Yield a sentence for each change of a holder."""
        yield from map(str, (*self.job_swaps, *self.swaps))


@attrs.frozen
class SeatingRequest:
    """Assignment that is to be made.

    Args:
        epoch: epoch that pods have to reach.
        waited_s: seconds since the first sign of the restart, or of the first pod's arrival.
        starting: True if the pods are new, and no seat has been lost.
        waits: times for which missing holders are waited for.
        silent: UIDs of pods whose heartbeats agents on other nodes do not receive.
        doubtful: names of nodes with a pod that has not come for an unknown reason. They may be
            dead, with spares that still look ready.
        fewer_after_s: seconds for which missing pods are waited for before a Job continues with
            fewer seats than in the present epoch.
    """

    epoch: int
    waited_s: float
    starting: bool
    waits: HolderWaits = HOLDER_WAITS
    silent: Collection[str] = ()
    doubtful: Collection[str] = ()
    fewer_after_s: float = 0.0

    def has(self, pod: SeatPod | None) -> bool:
        """Return True if a pod can have a seat."""
        if pod is None or pod.leaving or pod.is_unfit or pod.uid in self.silent:
            return False
        return pod.epoch == self.epoch

    def is_doubtful(self, pod: SeatPod) -> bool:
        """Return True if a pod has not come for an unknown reason."""
        return pod.uid in self.silent or not (self.has(pod) or pod.leaving or pod.is_unfit)


def uid_digest(uid: str) -> int:
    """Return the digest of a pod's UID; that of several pods is the exclusive or of theirs."""
    return crc32(uid.encode()) & keys.INT32_MAX


def assign_job(job: SeatedJob, taken: Sequence[TakenSeat], request: SeatingRequest) -> Seating:
    """Assign the seats of one Job to its pods, fewer seats if it may do without some; O(pods)."""
    if job.fixed:
        return _with_seats(job, job.seats - job.missing, taken, request)
    whole = _with_seats(job, job.seats, taken, request)
    if not whole.unfilled or not 0 < job.least <= whole.filled:
        return whole
    # Each pod that can have a seat has one, so these are all, and fill the lowest seats.
    smaller = whole.filled < job.seats - job.missing
    return with_fewer(job, taken, whole.filled, request, smaller=smaller)


def with_fewer(
    job: SeatedJob,
    taken: Sequence[TakenSeat],
    seats: int,
    request: SeatingRequest,
    *,
    smaller: bool,
) -> Seating:
    """Assign a number of seats of a Job that cannot fill all; O(pods).

    Args:
        job: the Job.
        taken: the assignment so far.
        seats: number of its seats; 0 if its Jobs have all or none.
        request: the assignment that is to be made.
        smaller: True if it, or its ReplicatedJob, has fewer seats than in the present epoch.
    """
    fewer = _with_seats(job, seats, taken, request)
    lost = _present_holders(job, _entries(job, taken, request), request)[1]
    wait_s = max(holder_wait_s(pod, request) for pod in lost.values())
    size = job.seats - job.missing
    # Pods that were missing before have been waited for then.
    if request.starting or smaller:
        wait_s = max(wait_s, request.fewer_after_s)
    elif any(pod is not None and seat < size for seat, pod in lost.items()):
        # Without this one the group would restart for nothing, and be as small as before.
        wait_s = max(wait_s, request.fewer_after_s, request.waits.growth_s)
    return attrs.evolve(fewer, wait_s=max(0.0, wait_s - request.waited_s))


def _with_seats(
    job: SeatedJob, seats: int, taken: Iterable[TakenSeat], request: SeatingRequest
) -> Seating:
    """Assign a number of seats of one Job."""
    missing = job.seats - seats
    job = attrs.evolve(job, seats=seats)
    entries = _entries(job, taken, request)
    holders, lost, done = _present_holders(job, entries, request)
    seated = {pod.uid for pod in holders.values()}
    free = [pod for pod in job.pods if request.has(pod) and pod.uid not in seated]
    swaps, wait_s = [], 0.0
    for seat, pod in lost.items():
        if not free:
            break
        holders[seat] = chosen = _take_best(free, seat, request)
        name = pod.name if pod is not None else entries[seat].pod if seat in entries else ""
        swaps.append(Swap(job.name, seat, chosen, name))
        wait_s = max(wait_s, holder_wait_s(pod, request) - request.waited_s)
    others = [_entry(job.name, seat, pod) for seat, pod in holders.items() if pod.index != seat]
    return Seating(
        taken=tuple(sorted([*done, *others], key=lambda one: one.seat)),
        swaps=tuple(swaps),
        filled=len(holders),
        unfilled=sum(seat not in holders for seat in lost),
        wait_s=max(0.0, wait_s),
        ready=sum(pod.state == READY for pod in holders.values()),
        digest=reduce(xor, (uid_digest(pod.uid) for pod in holders.values()), 0),
        sizes=(JobSize(job=job.name, seats=seats, missing=missing),) if missing else (),
    )


def _entries(
    job: SeatedJob, taken: Iterable[TakenSeat], request: SeatingRequest
) -> dict[int, TakenSeat]:
    """Return the entries of a Job by seat.

    If no worker has run, a pod that was lost is no reason to prefer others to those with the seats'
    own indexes, unless one of these has succeeded in another seat.
    """
    uids = {pod.uid for pod in job.pods}
    return {
        one.seat: one
        for one in taken
        if one.seat < job.seats
        and (
            not request.starting
            or one.pod_uid in uids
            or job.completed(one.pod_index)
            or job.completed(one.seat)
        )
    }


def _present_holders(
    job: SeatedJob, entries: Mapping[int, TakenSeat], request: SeatingRequest
) -> tuple[dict[int, SeatPod], dict[int, SeatPod | None], list[TakenSeat]]:
    """Return the holders that keep their seats, the other seats, and entries of completed ones.

    Of another seat the pod that should hold it is returned, ``None`` if it does not exist.
    """
    by_uid = {pod.uid: pod for pod in job.pods}
    # A pod that has taken another seat keeps that one when the seat of its index comes back.
    away = {one.pod_uid for one in entries.values()}
    # Of two pods of an index one is being deleted; the other one replaces it.
    by_index = {pod.index: pod for pod in sorted(job.pods, key=lambda pod: not pod.leaving)}
    holders: dict[int, SeatPod] = {}
    lost: dict[int, SeatPod | None] = {}
    done: list[TakenSeat] = []
    for seat in range(job.seats):
        entry = entries.get(seat)
        pod = by_index.get(seat) if entry is None else by_uid.get(entry.pod_uid)
        if job.completed(seat if entry is None else entry.pod_index):
            done += [] if entry is None else [entry]
        elif entry is None and pod is not None and pod.uid in away:
            lost[seat] = None
        elif pod is not None and request.has(pod):
            holders[seat] = pod
        else:
            lost[seat] = pod
    return holders, lost, done


def _entry(job: str, seat: int, pod: SeatPod) -> TakenSeat:
    return TakenSeat(
        job=job,
        seat=seat,
        pod=pod.name,
        pod_uid=pod.uid,
        pod_index=pod.index,
        address=pod.address,
    )


def _take_best(free: list[SeatPod], seat: int, request: SeatingRequest) -> SeatPod:
    """Remove and return the pod to take a seat.

    One on a node that is not doubtful, then a prepared one, then that with the seat's own index.
    """

    def rank(one: SeatPod) -> tuple[bool, bool, bool, int]:
        return one.node in request.doubtful, one.state != READY, one.index != seat, one.index

    chosen = min(free, key=rank)
    free.remove(chosen)
    return chosen


def holder_wait_s(pod: SeatPod | None, request: SeatingRequest) -> float:
    """Return how long a holder is waited for, in seconds; 0 for one that is gone or unfit."""
    waits = request.waits
    if pod is not None and pod.is_unfit:
        return 0.0
    if request.starting:
        return waits.start_s
    if pod is None:
        return 0.0
    if pod.uid in request.silent:
        return waits.last_s  # cut off, its own agent kills the worker by then (``self_fence``)
    if pod.state.startswith(SAVING):
        seconds = pod.state.removeprefix(SAVING)
        return float(seconds) + waits.saving_s if seconds.isdecimal() else waits.last_s
    return waits.leaving_s if pod.leaving else waits.last_s
