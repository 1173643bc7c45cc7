"""Compatibility with agents of the Go project: the same protocol with other names.

Such an agent reports an *attempt* on its pod, and reads from the JobSet's status which attempt's
workers run (``currentInPlaceRestartAttempt``) and which attempts are over (up to
``previousInPlaceRestartAttempt``). Attempts count from 0: attempt a is epoch a + 1, and no attempt
at all is epoch 0. It joins at the attempt after the current one, regardless of which are over; so
that it does not end repeatedly, the current attempt is the newest that may be over.

A JobSet has such agents if its pods report attempts, or its status has attempts, written by the Go
project's controller or by this one. Each write of epochs then writes attempts too, in the same
patch, and either controller can continue where the other has stopped.
"""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, JobSetStatus
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods, is_live
from jobsetpy.reconcilers.restart_in_place.epochs.record import on_take_over
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts


def reports_attempts(status: JobSetStatus, pods: GroupCounts) -> bool:
    """Return True if a JobSet has agents of the Go project."""
    return (
        pods.attempts > 0
        or status.current_in_place_restart_attempt is not None
        or status.previous_in_place_restart_attempt is not None
    )


def with_attempts(status: JobSetStatus) -> JobSetStatus:
    """Return the status with the attempts that correspond to its epochs."""
    synced = status.synced_epoch
    over = min(status.deprecated_epoch, synced)
    return evolve(
        status,
        current_in_place_restart_attempt=synced - 1 if synced else None,
        previous_in_place_restart_attempt=over - 1 if over else None,
    )


def adopt_go_controller_state(jobset: JobSet, pods: GroupCounts) -> JobSetStatus | None:
    """Return the status with epochs and attempts set to the newer ones if they differ.

    They differ after the Go project's controller has managed the JobSet. O(1).

    Returns:
        ``None`` if they agree.
    """
    status = jobset.status
    if not reports_attempts(status, pods) or not is_live(jobset):
        return None
    synced = max(status.synced_epoch, _epoch(status.current_in_place_restart_attempt))
    over = max(status.deprecated_epoch, _epoch(status.previous_in_place_restart_attempt))
    new = with_attempts(evolve(status, synced_epoch=synced, deprecated_epoch=over))
    if new == status:
        return None
    if synced > status.synced_epoch:
        newest, restarts = max(synced, over + 1, *pods.epochs), max(pods.restarts, default=0)
        record = on_take_over(jobset, synced, newest, expected_pods(jobset), restarts)
        new = evolve(new, in_place_restart=record)
    return new


def managed_by_go_controller(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if the JobSet makes its agents run their workers without a barrier.

    Only agents of the Go project do; if others have reported, the annotation has no effect.
    """
    return keys.DISABLE_IN_PLACE_ANNOTATION in jobset.metadata.annotations and (
        not pods.epochs or reports_attempts(jobset.status, pods)
    )


def _epoch(attempt: int | None) -> int:
    return 0 if attempt is None else attempt + 1
