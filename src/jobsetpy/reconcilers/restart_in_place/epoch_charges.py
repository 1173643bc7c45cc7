"""Charges to the restart budget: epochs that count towards ``maxRestarts``.

``maxRestarts`` bounds the sum of all restarts of a JobSet: the group's restarts in place, those of
all Jobs (``status.restartsCountTowardsMax``) and those of single Jobs. The first kind is one for
each epoch after the first, except for epochs that were not opened by a failure. New pods join at
``syncedEpoch + 1`` like those that restart, so the epoch also increases when

* all Jobs or single ones were recreated: counted, or not, by their own rule;
* the JobSet was resumed;
* it was resized.

A restart that was charged for a failure stays charged when a suspension or a resize cuts it short:
otherwise a queue that suspends and resumes would make failures free. Only a recreation of Jobs
replaces it, as the two are then one restart.

A comparison of the JobSet with ``status.inPlaceRestart``, its record as of the latest synced epoch,
shows if one of these has happened since. Both are written together with the epochs, so each epoch
is charged once, even if the manager crashes in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.reconcilers.rules import restart_budget

LONGEST_REQUEST: Final = 63
"""Maximum length of a restart request's value that is stored unchanged."""

NO_RECORD: Final = InPlaceRestartStatus()

NO_CRASH: Final[Mapping[str, Any]] = {
    "crashes": 0,
    "crashing_pod": "",
    "crashing_container": "",
    "crash_times": (),
}


def record_of(jobset: JobSet) -> InPlaceRestartStatus:
    """Return the stored record; an empty one if there is none."""
    return jobset.status.in_place_restart or NO_RECORD


@attrs.frozen
class EpochCharge:
    """Charge for a new epoch of a JobSet.

    Args:
        epoch: the newest epoch.
        renewed: reason for not counting it: "recreated", "resumed", "resized" or "remade" (another
            cause that does not count); "" if it is a restart, or no new epoch.
        kept: True if it still counts because it was charged for a failure before.
        spent: number of restarts of all kinds that count so far, including this one.
    """

    epoch: int
    renewed: str
    spent: int
    kept: bool = False

    @property
    def counts(self) -> bool:
        """Return True if the epoch is a restart that counts."""
        return self.epoch > 1 and (not self.renewed or self.kept)


def account(jobset: JobSet, newest: int, expected: int, *, remade: bool = False) -> EpochCharge:
    """Charge the newest epoch.

    Args:
        jobset: JobSet with the record of the latest synced epoch.
        newest: highest epoch of a pod, or the one that is about to be opened.
        expected: number of pods that the group needs now.
        remade: True if its cause does not count: a Job is recreated on request, the group restarts
            on request, a pod is evicted or deleted.
    """
    status = jobset.status
    record = record_of(jobset)
    opened = newest > status.synced_epoch > 0
    cause = ""
    if opened:
        cause = "remade" if remade else renewed(jobset, expected)
        if not cause and record.last_uncounted_epoch == newest:
            cause = "remade"  # decided earlier; its cause may no longer be visible
    uncounted = record.uncounted_epochs
    # An epoch above the synced one that is among the restarts so far.
    charged = record.restarts > restart_budget.in_place(status.synced_epoch, uncounted)
    kept = charged and cause in {"resumed", "resized"}
    if cause and not kept and record.last_uncounted_epoch != newest:
        uncounted += 1
    spent = restart_budget.in_place(newest, uncounted) + restart_budget.recreations(status)
    return EpochCharge(newest, cause, spent, kept)


def renewed(jobset: JobSet, expected: int) -> str:
    """Return the change since the latest synced epoch that creates new pods without a failure.

    Returns:
        "recreated", "resumed" or "resized"; "" if none of these has.
    """
    status = jobset.status
    record = record_of(jobset)
    if (status.restarts, _job_restarts(jobset)) != (
        record.all_jobs_restarts_at_sync,
        record.job_restarts_at_sync,
    ):
        return "recreated"
    if _resumed_at(jobset) != record.resume_time:
        return "resumed"
    if record.pods and record.pods != expected:
        return "resized"
    return ""


def on_take_over(
    jobset: JobSet, synced: int, newest: int, expected: int, container_restarts: int
) -> InPlaceRestartStatus:
    """Return the record to store with a synced epoch that another controller has decided.

    Each recreation of Jobs that it decided has opened an epoch too, and is counted by its own rule.

    Args:
        jobset: JobSet with the current record.
        synced: the synced epoch.
        newest: highest epoch so far.
        expected: number of pods that the group needs.
        container_restarts: highest restart count of a container now.
    """
    record, status = record_of(jobset), jobset.status
    recreated = status.restarts - record.all_jobs_restarts_at_sync
    recreated += _job_restarts(jobset) - record.job_restarts_at_sync
    uncounted = min(record.uncounted_epochs + max(0, recreated), newest - 1)
    charged = EpochCharge(synced, "", 0)
    record = evolve(record, uncounted_epochs=uncounted, container_restarts=container_restarts)
    return on_sync(
        evolve(jobset, status=evolve(status, in_place_restart=record)), charged, expected
    )


def on_deprecate(
    jobset: JobSet, charged: EpochCharge, container_restarts: int
) -> InPlaceRestartStatus:
    """Return the record to store with ``deprecatedEpoch``.

    Args:
        jobset: JobSet with the current record.
        charged: the epoch that is opened.
        container_restarts: highest restart count of a container now.
    """
    return evolve(_charge(jobset, charged), container_restarts=container_restarts, **NO_CRASH)


def on_crash(
    jobset: JobSet, crashes: int, pod: str, container: str, at: tuple[datetime, ...] = ()
) -> InPlaceRestartStatus:
    """Return the record to store when a container has crashed before the barrier lifted.

    Args:
        jobset: JobSet with the current record.
        crashes: number of crashes.
        pod: name of its pod.
        container: name of the container.
        at: times of the crashes, if they count within a window.
    """
    return evolve(
        record_of(jobset),
        crashes=crashes,
        crashing_pod=pod,
        crashing_container=container,
        crash_times=at,
    )


def on_sync(jobset: JobSet, charged: EpochCharge, expected: int) -> InPlaceRestartStatus:
    """Return the record to store with ``syncedEpoch``: the current state of the group.

    Args:
        jobset: JobSet with the current record.
        charged: the epoch that is synced.
        expected: number of pods that the group needs.
    """
    return evolve(
        _charge(jobset, charged),
        served_request=requested(jobset),
        pods=expected,
        all_jobs_restarts_at_sync=jobset.status.restarts,
        job_restarts_at_sync=_job_restarts(jobset),
        resume_time=_resumed_at(jobset),
        **NO_CRASH,
    )


def requested(jobset: JobSet) -> str:
    """Return the value of a user's request for a restart in place; "" for none.

    A long text is stored as its digest: the status is part of every write.
    """
    text = jobset.metadata.annotations.get(keys.RESTART_IN_PLACE_ANNOTATION, "")
    if len(text) <= LONGEST_REQUEST:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _charge(jobset: JobSet, charged: EpochCharge) -> InPlaceRestartStatus:
    record = record_of(jobset)
    uncounted = charged.renewed and not charged.kept
    if uncounted and record.last_uncounted_epoch != charged.epoch:
        record = evolve(
            record,
            uncounted_epochs=record.uncounted_epochs + 1,
            last_uncounted_epoch=charged.epoch,
        )
    return evolve(record, restarts=restart_budget.in_place(charged.epoch, record.uncounted_epochs))


def _job_restarts(jobset: JobSet) -> int:
    return sum(sum(item.job_restarts) for item in jobset.status.replicated_jobs_status)


def _resumed_at(jobset: JobSet) -> datetime | None:
    """Return the time of the last resume; one that no record has while it is in progress."""
    for condition in jobset.status.conditions:
        if condition.type == keys.SUSPENDED_CONDITION:
            return condition.last_transition_time
    return None
