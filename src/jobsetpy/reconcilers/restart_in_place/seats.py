"""Assignment of seats: which pod does the work of which completion index.

A Job with spares has more pods than seats. A pod that has a seat is its *holder*, a pod without one
is *parked*. Seats are assigned when a barrier lifts, and only then:

* A holder that has come to the new epoch keeps its seat.
* A seat whose holder is lost goes to a parked pod of the same Job that has come to the new epoch.
* A pod that returns later is parked.

The assignment is a list of exceptions (``status.inPlaceRestart.takenSeats``): a seat without an
entry is held by the pod with its completion index. Entries name pods by UID, because a replacement
has the same index and nearly the same name. All agents read the same list in the same version of
the status that lifts their barrier, so each seat has exactly one holder in each epoch.

A holder that is missing although parked pods could take over is waited for: until its last call is
over, see :class:`Calls`. Nothing here depends on earlier calls: a manager that takes over decides
the same, from the stored list and the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from jobsetpy.api.jobset import TakenSeat

READY: Final = "ready"
"""Agent's state: it has no seat, and its standby process is prepared or there is none."""
PARKED: Final = "parked"
"""Agent's state: it has no seat, and its standby process is not prepared yet."""
SAVING: Final = "saving="
"""Beginning of the agent's state while its worker uses its grace period, with its seconds."""


@attrs.frozen
class Calls:
    """Times in seconds for which a missing holder is waited for although its seat could be filled.

    Args:
        last_s: a pod that exists and has not come to the epoch: from the first sign of the restart.
        leaving_s: a pod that is being deleted; its worker gets a moment to report that it saves.
        start_s: pods that start for the first time, and pull images: from the first pod's arrival.
        saving_s: in addition to the grace period that a saving worker has.
    """

    last_s: float = 1.0
    leaving_s: float = 0.5
    start_s: float = 60.0
    saving_s: float = 5.0


CALLS: Final = Calls()
WITHOUT_SPARES: Final = Calls(start_s=5.0)
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
    """

    name: str
    uid: str
    index: int
    epoch: int
    state: str = ""
    leaving: bool = False
    address: str = ""


@attrs.frozen
class SeatedJob:
    """Job of a JobSet with spares; it may have none itself.

    Args:
        name: name of the Job.
        seats: number of seats.
        pods: its live pods with an epoch.
        completed: returns True if a completion index has succeeded.
    """

    name: str
    seats: int
    pods: Sequence[SeatPod] = ()
    completed: Callable[[int], bool] = lambda _index: False


@attrs.frozen
class Swap:
    """Seat that a pod takes over; ``lost`` is the name of its last holder if that is known."""

    job: str
    seat: int
    pod: SeatPod
    lost: str = ""


@attrs.frozen
class Seating:
    """Assignment of all seats at an epoch, or the reason why there is none yet.

    Args:
        taken: the new exceptions, by Job and seat.
        swaps: seats that change their holder.
        filled: number of seats that pods can fill.
        unfilled: number of seats that no pod can fill.
        wait_s: seconds until the last call for missing holders is over, if all can be filled.
    """

    taken: tuple[TakenSeat, ...] = ()
    swaps: tuple[Swap, ...] = ()
    filled: int = 0
    unfilled: int = 0
    wait_s: float = 0.0

    @property
    def complete(self) -> bool:
        """Return True if the barrier may lift with this assignment."""
        return not self.unfilled and self.wait_s <= 0


def taken_by_job(taken: Iterable[TakenSeat]) -> dict[str, dict[int, str]]:
    """Return the UIDs of holders by Job and seat."""
    found: dict[str, dict[int, str]] = {}
    for one in taken:
        found.setdefault(one.job, {})[one.seat] = one.pod_uid
    return found


def assign_seats(
    jobs: Iterable[SeatedJob],
    taken: Iterable[TakenSeat],
    epoch: int,
    *,
    waited_s: float,
    starting: bool,
    calls: Calls = CALLS,
) -> Seating:
    """Assign all seats at an epoch; O(pods).

    Args:
        jobs: the Jobs with spares.
        taken: the assignment so far.
        epoch: epoch that pods have to reach.
        waited_s: seconds since the first sign of the restart, or of the first pod's arrival.
        starting: True if the pods are new, and no seat has been lost.
        calls: times for which missing holders are waited for.
    """
    known: dict[str, list[TakenSeat]] = {}
    for one in taken:
        known.setdefault(one.job, []).append(one)
    parts = [
        _assign(job, known.get(job.name, ()), epoch, waited_s, starting, calls)
        for job in sorted(jobs, key=lambda job: job.name)
    ]
    return Seating(
        taken=tuple(one for part in parts for one in part.taken),
        swaps=tuple(one for part in parts for one in part.swaps),
        filled=sum(part.filled for part in parts),
        unfilled=sum(part.unfilled for part in parts),
        wait_s=max((part.wait_s for part in parts), default=0.0),
    )


def _assign(
    job: SeatedJob,
    taken: Iterable[TakenSeat],
    epoch: int,
    waited_s: float,
    starting: bool,
    calls: Calls,
) -> Seating:
    by_uid = {pod.uid: pod for pod in job.pods}
    # Of two pods of an index one is being deleted; the other one replaces it.
    by_index = {pod.index: pod for pod in sorted(job.pods, key=lambda pod: not pod.leaving)}
    entries = {one.seat: one for one in taken if one.seat < job.seats}
    if starting:
        # No worker has run: a pod that was lost is no reason to prefer others to those with the
        # seats' own indexes.
        entries = {
            seat: one
            for seat, one in entries.items()
            if one.pod_uid in by_uid or job.completed(one.pod_index)
        }
    holders: dict[int, SeatPod] = {}
    lost: dict[int, SeatPod | None] = {}
    kept: dict[int, TakenSeat] = {}
    for seat in range(job.seats):
        entry = entries.get(seat)
        pod = by_index.get(seat) if entry is None else by_uid.get(entry.pod_uid)
        if job.completed(seat if entry is None else entry.pod_index):
            if entry is not None:
                kept[seat] = entry
        elif pod is not None and pod.epoch == epoch and not pod.leaving:
            holders[seat] = pod
        else:
            lost[seat] = pod
    free = [pod for pod in job.pods if pod.epoch == epoch and not pod.leaving]
    seated = {pod.uid for pod in holders.values()}
    free = [pod for pod in free if pod.uid not in seated]
    swaps, wait_s = [], 0.0
    for seat, pod in lost.items():
        if not free:
            break
        chosen = _best(free, seat)
        free.remove(chosen)
        holders[seat] = chosen
        name = pod.name if pod is not None else entries[seat].pod if seat in entries else ""
        swaps.append(Swap(job.name, seat, chosen, name))
        wait_s = max(wait_s, _call_s(pod, calls, starting=starting) - waited_s)
    for seat, pod in holders.items():
        if pod.index != seat:
            kept[seat] = _entry(job.name, seat, pod)
    return Seating(
        taken=tuple(kept[seat] for seat in sorted(kept)),
        swaps=tuple(swaps),
        filled=len(holders),
        unfilled=len(lost) - len(swaps),
        wait_s=max(0.0, wait_s),
    )


def _entry(job: str, seat: int, pod: SeatPod) -> TakenSeat:
    return TakenSeat(
        job=job,
        seat=seat,
        pod=pod.name,
        pod_uid=pod.uid,
        pod_index=pod.index,
        address=pod.address,
    )


def _best(free: Sequence[SeatPod], seat: int) -> SeatPod:
    """Return the pod to take a seat: prepared ones first, then that with the seat's own index."""
    return min(free, key=lambda one: (one.state != READY, one.index != seat, one.index))


def _call_s(pod: SeatPod | None, calls: Calls, *, starting: bool) -> float:
    """Return how long a holder is waited for, in seconds; 0 for a pod that is gone."""
    if starting:
        return calls.start_s
    if pod is None:
        return 0.0
    if pod.state.startswith(SAVING):
        seconds = pod.state.removeprefix(SAVING)
        return float(seconds) + calls.saving_s if seconds.isdecimal() else calls.last_s
    return calls.leaving_s if pod.leaving else calls.last_s
