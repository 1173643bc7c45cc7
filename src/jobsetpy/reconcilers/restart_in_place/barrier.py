"""Rule of the barrier: which epoch is synced, which are deprecated (KEP-467).

Every pod of the restart group carries the epoch it has reached. When all are at one epoch, that
epoch is *synced* and its workers may run. Otherwise all epochs before the newest are *deprecated*,
and pods at one of those restart. The synced epoch itself is deprecated as soon as a failure is
detected, before the failed pod has reached the next one: an agent that starts joins one above both
numbers.

Epochs start at 1. Both numbers only increase.
"""

from __future__ import annotations

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.barrier_state import is_waiting
from jobsetpy.reconcilers.restart_in_place.budget import renewed
from jobsetpy.reconcilers.restart_in_place.cause import Cause
from jobsetpy.reconcilers.restart_in_place.group import group_size, record_of
from jobsetpy.reconcilers.restart_in_place.observed import Histogram


def next_move(
    jobset: JobSet, pods: Histogram, cause: Cause | None, expected: int
) -> tuple[int | None, int | None]:
    """Return the new synced and deprecated epochs; at most one of them is set."""
    status = jobset.status
    over = status.deprecated_epoch
    if pods.epochs:
        newest = max(pods.epochs)
        if len(pods.epochs) == 1 and pods.epochs[newest] == expected - pods.succeeded:
            # A pod that is being deleted may still arrive; but its worker would end immediately,
            # and its replacement would cause another restart. Of two pods of one index, which the
            # Job controller and the manager may create at the same time, one is about to be
            # deleted, and another index may have none.
            if newest > status.synced_epoch and not pods.leaving and not pods.doubles:
                return newest, None
        else:
            over = max(over, newest - 1)
    if cause is not None and cause.epoch == status.synced_epoch:
        over = max(over, cause.epoch)
    return None, over if over > status.deprecated_epoch else None


def is_starting(jobset: JobSet, expected: int) -> bool:
    """Return True if the pods of a group are new, without a failure of one of them."""
    return not jobset.status.synced_epoch or renewed(jobset, expected) in {"recreated", "resumed"}


def is_gathering(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if no worker runs: the group gathers, initially or after a restart has begun."""
    return not pods.epochs or jobset.status.deprecated_epoch >= jobset.status.synced_epoch


def has_missing_pods(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if workers run without their whole group, though it was not resized."""
    if is_waiting(jobset.status, pods.epochs):
        return False
    expected = group_size(jobset, pods)
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    return present < expected - pods.succeeded and not renewed(jobset, expected)


def has_shrunk(jobset: JobSet, pods: Histogram, expected: int) -> bool:
    """Return True if the group runs with fewer pods than recorded, which no new epoch will show."""
    known = record_of(jobset).pods
    return (
        known not in {0, expected}
        and len(pods.epochs) == 1
        and pods.epochs.get(jobset.status.synced_epoch) == expected - pods.succeeded
    )
