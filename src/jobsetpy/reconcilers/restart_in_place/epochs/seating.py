"""Use of spares by the decision (``spares.assign_jobs`` assigns their seats)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.annotations import read
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import (
    dispensable_pods,
    live_pods,
    record_of,
    succeeded_pods,
    whole_group,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import (
    HOLDER_WAITS,
    WITHOUT_SPARES,
    Seating,
    SeatingRequest,
)
from jobsetpy.reconcilers.restart_in_place.spares.assign_jobs import assign_seats
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.barrier_state import is_waiting, next_epoch
from jobsetpy.reconcilers.rules.in_place_record import is_starting
from jobsetpy.reconcilers.rules.plan import EmitEvent
from jobsetpy.reconcilers.rules.spares import starts_without_spares
from jobsetpy.reconcilers.rules.times import Now

MAX_SWAP_EVENTS: Final = 10
"""Maximum number of seats taken over in one restart that are reported by events."""


def plan_seats(
    jobset: JobSet,
    pods: GroupCounts,
    waited_s: float,
    silent: Collection[str] = (),
) -> Seating | None:
    """Return the seats at the next epoch, as far as pods can fill them; ``None`` without spares."""
    if not may_be_filled(jobset, pods):
        return None
    request = SeatingRequest(
        next_epoch(jobset.status, pods.epochs),
        waited_s,
        is_starting(jobset),
        WITHOUT_SPARES if starts_without_spares(jobset) else HOLDER_WAITS,
        silent,
        fewer_after_s=read(keys.MIN_PODS_AFTER_ANNOTATION, jobset.metadata.annotations, default=30),
    )
    record = record_of(jobset)
    jobs = pods.spares.jobs(fixed=pods.succeeded > 0)
    seating = assign_seats(jobs, record.taken_seats, request, record.taken_jobs)
    # Not a part of them: a Job that has not been created yet has seats, too.
    there = seating.filled + seating.missing + succeeded_pods(pods)
    return seating if there == whole_group(jobset, pods) else None


def may_be_filled(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if enough pods, parked ones included, are at the epoch of a closed barrier.

    A necessary condition, in O(1): each Job fills its seats with its own pods, or gives all up.
    """
    if not pods.spares.seats or not is_waiting(jobset.status, pods.epochs):
        return False
    epoch = next_epoch(jobset.status, pods.epochs)
    there = pods.epochs.get(epoch, 0) + pods.spares.parked.get(epoch, 0)
    least = live_pods(jobset, pods)
    # Once a pod has succeeded, no Job continues with fewer seats: its work is a part of the whole.
    if not pods.succeeded:
        least = whole_group(jobset, pods) - dispensable_pods(jobset)
    return there >= least > 0


def spares_changed(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if the number of ready spares differs from the status."""
    spares = pods.spares
    return bool(spares.seats) and record_of(jobset).ready_spares != spares.ready


def swap_events(seating: Seating | None) -> tuple[EmitEvent, ...]:
    """Return an event for each of the first seats and Jobs that are taken over."""
    changes = () if seating is None else seating.changes()
    return tuple(
        EmitEvent(cond.NORMAL, keys.SEAT_TAKEN_REASON, change)
        for change in islice(changes, MAX_SWAP_EVENTS)
    )


def seconds_waited(observed: ObservedEpochs, waiting_since: float | None, now: Now) -> float:
    """Return the time since the last call for missing pods began, in seconds.

    That is the first sign of a restart; when the pods are new, the arrival of the first of them.
    """
    jobset, seen = observed.jobset, observed.notes.newest_epoch_seen
    known = [seen.at] if seen.epoch > jobset.status.synced_epoch else []
    starting = is_starting(jobset)
    # The barrier of new pods closes before the first of them exists: images are pulled then.
    if waiting_since is not None and not starting:
        known.append(waiting_since)
    return now.monotonic - min(known, default=now.monotonic)
