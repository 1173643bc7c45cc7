"""Groups that continue with fewer pods, and restart to their full size.

A group becomes smaller in the write that lifts its barrier, and in no other
(``spares.assign_job`` chooses the seats that are left). It grows by a restart that does not count:
as soon as a ready pod waits for each seat that it does without, it has had its size for long
enough, and the standby processes of its own pods are prepared. The time is doubled with each growth
in quick succession, whether the pods stayed or not, so that a pod that comes and goes does not keep
the others from working.
"""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.annotations import read
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, JobSize
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of, sizes_of
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.barrier_state import is_waiting
from jobsetpy.reconcilers.rules.plan import EmitEvent

AGAIN_S: Final = 10.0
"""Minimum delay in seconds of the second growth in quick succession."""

LONGEST_S: Final = 3600.0
"""Maximum delay in seconds, unless the annotation has a longer one."""

STANDBYS_S: Final = 120.0
"""Maximum delay in seconds, in addition, for standby processes of running pods. One may never be
prepared: its container's memory is too small, or its agent is of an earlier version."""


def delay_s(jobset: JobSet, growths: int) -> float:
    """Return the minimum time in seconds for which a group keeps a smaller size."""
    first_s: float = read(keys.GROW_AFTER_ANNOTATION, jobset.metadata.annotations, default=60.0)
    if not growths:
        return first_s
    doubled_s = max(first_s, AGAIN_S) * 2.0 ** min(growths, 20)
    return max(first_s, min(doubled_s, LONGEST_S))


def needs_decision(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if the group may grow, or a smaller Job has just completed; O(sizes)."""
    sizes = record_of(jobset).job_sizes
    return bool(sizes) and (_can_grow(jobset, pods) or done_sizes(jobset, pods) != sizes)


def _can_grow(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if a ready pod waits for each seat that a running group does without."""
    sizes, seats = sizes_of(jobset), pods.spares.seats
    # Once a pod has succeeded, the size stays: its work is a part of the whole.
    if not sizes or pods.succeeded or is_waiting(jobset.status, pods.epochs):
        return False
    return all(one.job in seats and seats[one.job].ready >= one.missing for one in sizes)


def growth_s(jobset: JobSet, pods: GroupCounts, now: datetime) -> float:
    """Return the seconds until the group restarts to its full size; infinite if it cannot.

    It waits for standby processes of running pods as well: without them all would import again. A
    pod's report then causes the next plan.
    """
    if not _can_grow(jobset, pods):
        return inf
    record = record_of(jobset)
    if record.resize_time is None:
        return 0.0
    delay, since = delay_s(jobset, record.growths), record.resize_time
    if pods.spares.unprepared.get(jobset.status.synced_epoch):
        delay += STANDBYS_S
        # They are started again with each restart of the smaller group.
        restarts = jobset.status.restart_history[-1:]
        since = max([since, *(one.began_at for one in restarts if one.began_at is not None)])
    # At most the whole delay, also if a clock was set back.
    return min(delay, max(0.0, delay - (now - since).total_seconds()))


def growth_cause(jobset: JobSet, pods: GroupCounts, now: datetime) -> Cause | None:
    """Return the restart to the full size if it is due."""
    if growth_s(jobset, pods, now) > 0:
        return None
    return Cause(jobset.status.synced_epoch, FailureKind.GROUP_GROWS, "", counted=False)


def on_growth(record: InPlaceRestartStatus, now: datetime) -> InPlaceRestartStatus:
    """Return the record to store with the ``deprecatedEpoch`` of a restart to the full size."""
    return evolve(record, resize_time=now.replace(microsecond=0), growths=record.growths + 1)


def on_sync(
    jobset: JobSet, record: InPlaceRestartStatus, sizes: tuple[JobSize, ...], now: datetime
) -> InPlaceRestartStatus:
    """Return the record to store with ``syncedEpoch`` and the sizes at that epoch."""
    known = record_of(jobset)
    record = evolve(record, job_sizes=sizes)
    if _missing(sizes) <= _missing(known.job_sizes):
        return record
    growths, changed = known.growths, known.resize_time
    if growths and changed is not None:
        # A long time without a change ends the series.
        calm_s = 2 * delay_s(jobset, growths)
        growths = 0 if (now - changed).total_seconds() > calm_s else growths
    return evolve(record, resize_time=now.replace(microsecond=0), growths=growths)


def done_sizes(jobset: JobSet, pods: GroupCounts) -> tuple[JobSize, ...]:
    """Return the stored sizes, with ``done`` for Jobs whose seats have all succeeded.

    A Job is complete when each of its indexes has succeeded. Of one that is done, agents of pods
    without a seat end with 0.
    """
    sizes = record_of(jobset).job_sizes
    if not sizes or not pods.succeeded:
        return sizes
    done = pods.spares.done()
    return tuple(evolve(one, done=True) if one.job in done else one for one in sizes)


def events(before: InPlaceRestartStatus, after: InPlaceRestartStatus) -> tuple[EmitEvent, ...]:
    """Return the event about another size of the group."""
    missing = _missing(after.job_sizes)
    if missing == _missing(before.job_sizes):
        return ()
    if not missing:
        text = f"the group has its full size again: {after.pods} pods"
        return (EmitEvent(cond.NORMAL, keys.GROUP_RESIZED_REASON, text),)
    text = f"the group continues with {after.pods} of {after.pods + missing} pods: " + ", ".join(
        f"{one.seats} of job {one.job!r}" for one in after.job_sizes[:5]
    )
    return (EmitEvent(cond.WARNING, keys.GROUP_RESIZED_REASON, text),)


def _missing(sizes: tuple[JobSize, ...]) -> int:
    return sum(one.missing for one in sizes)
