"""Comparison of a JobSet with ``status.inPlaceRestart``, its record as of the latest synced epoch.

It shows if all pods, or those of some Jobs, were created again since then. The record is written
together with the epochs.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet

NO_RECORD: Final = InPlaceRestartStatus()


def is_starting(jobset: JobSet) -> bool:
    """Return True if the pods of a restart group are new, without a failure of one of them."""
    return not jobset.status.synced_epoch or bool(renewal(jobset))


def missing_share(jobset: JobSet) -> float:
    """Return the share of the seats that have no pod; it changes with synced epochs only."""
    record = jobset.status.in_place_restart or NO_RECORD
    missing = sum(one.missing for one in record.job_sizes)
    return missing / (record.pods + missing) if missing and not is_starting(jobset) else 0.0


class Renewal(Enum):
    """Reason for new pods, or a new epoch, that is no failure and does not count as a restart."""

    NONE = "none"
    RECREATED = "recreated"
    """All Jobs or single ones were recreated: that is counted, or not, by its own rule."""
    RESUMED = "resumed"
    RESIZED = "resized"
    UNCOUNTED = "uncounted"
    """A restart that is requested, or whose pod is asked to leave, or that is decided already."""

    def __bool__(self) -> bool:
        """Return True if there is a reason."""
        return self is not Renewal.NONE


def renewal(jobset: JobSet) -> Renewal:
    """Return the change since the latest synced epoch that replaces pods without a failure."""
    record = jobset.status.in_place_restart or NO_RECORD
    before = record.all_jobs_restarts_at_sync, record.job_restarts_at_sync
    if (jobset.status.restarts, job_restarts(jobset)) != before:
        return Renewal.RECREATED
    return Renewal.RESUMED if resumed_at(jobset) != record.resume_time else Renewal.NONE


def job_restarts(jobset: JobSet) -> int:
    """Return the number of restarts of single Jobs."""
    return sum(sum(item.job_restarts) for item in jobset.status.replicated_jobs_status)


def resumed_at(jobset: JobSet) -> datetime | None:
    """Return the time of the last resume; one that no record has while it is in progress."""
    for condition in jobset.status.conditions:
        if condition.type == keys.SUSPENDED_CONDITION:
            return condition.last_transition_time
    return None
