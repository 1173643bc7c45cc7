"""What restarts cost: which epochs count towards ``maxRestarts``, and when the budget is spent.

``maxRestarts`` bounds all restarts of a JobSet together: the group's restarts in place, those of
all Jobs (``status.restartsCountTowardsMax``) and those of single Jobs. The first kind is one for
each epoch after the first, except for epochs that were opened otherwise than by a failure. Pods
that come anew join at ``syncedEpoch + 1`` like those that restart, so the epoch also grows when

* all Jobs or single ones were recreated: counted already, or not to be counted, by their own rule;
* the JobSet was resumed;
* it was resized.

A restart that was charged for a failure stays charged when a suspension or a resize cuts it short:
otherwise a queue that suspends and resumes would make failures free. Only a recreation of Jobs
takes its place, as the two are one restart then.

Whether one of these has happened since the latest synced epoch is told by comparing the JobSet with
what ``status.inPlaceRestart`` holds of it as of then. Both are written together with the epochs, so
each epoch is charged once, whatever crashes in between.
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
"""Of a value that asks for a restart, so many letters are stored as they are."""

NO_RECORD: Final = InPlaceRestartStatus()

NO_CRASH: Final[Mapping[str, Any]] = {
    "crashes": 0,
    "crashing_pod": "",
    "crashing_container": "",
    "crash_times": (),
}


def record_of(jobset: JobSet) -> InPlaceRestartStatus:
    """What is stored; a blank record if nothing is yet."""
    return jobset.status.in_place_restart or NO_RECORD


@attrs.frozen
class EpochCharge:
    """What a new epoch of a JobSet stands for.

    Args:
        epoch: the newest.
        renewed: why it does not count: "recreated", "resumed", "resized" or "remade" (as soon as
            its cause is none that counts); "" if it is a restart, or no new epoch at all.
        kept: whether it counts all the same: it was charged for a failure before.
        spent: how many restarts of all kinds count by now, this one included.
    """

    epoch: int
    renewed: str
    spent: int
    kept: bool = False

    @property
    def counts(self) -> bool:
        """Whether the epoch stands for a restart that counts."""
        return self.epoch > 1 and (not self.renewed or self.kept)


def account(jobset: JobSet, newest: int, expected: int, *, remade: bool = False) -> EpochCharge:
    """Charge the newest epoch.

    Args:
        jobset: with the record of the latest synced epoch.
        newest: highest epoch of a pod, or the one that is about to be opened.
        expected: how many pods the group has to have now.
        remade: whether it is opened by something that does not count: a Job is made anew on
            request, the group restarts on request, a pod is asked to leave.
    """
    status = jobset.status
    record = record_of(jobset)
    opened = newest > status.synced_epoch > 0
    cause = ""
    if opened:
        cause = "remade" if remade else renewed(jobset, expected)
        if not cause and record.last_uncounted_epoch == newest:
            cause = "remade"  # decided earlier; what decided it may be over
    uncounted = record.uncounted_epochs
    # An epoch above the synced one that is among the restarts so far.
    charged = record.restarts > restart_budget.in_place(status.synced_epoch, uncounted)
    kept = charged and cause in {"resumed", "resized"}
    if cause and not kept and record.last_uncounted_epoch != newest:
        uncounted += 1
    spent = restart_budget.in_place(newest, uncounted) + restart_budget.recreations(status)
    return EpochCharge(newest, cause, spent, kept)


def renewed(jobset: JobSet, expected: int) -> str:
    """What has happened since the latest synced epoch, by which pods come anew that did not fail.

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
    """The record to store with a synced epoch that another controller has decided.

    Each recreation of Jobs that it decided has opened an epoch too, and is counted by its own rule.

    Args:
        jobset: with the record so far.
        synced: the epoch.
        newest: highest epoch so far.
        expected: how many pods the group has to have.
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
    """The record to store with ``deprecatedEpoch``.

    Args:
        jobset: with the record so far.
        charged: the epoch that is opened.
        container_restarts: highest restart count of a container now.
    """
    return evolve(_charge(jobset, charged), container_restarts=container_restarts, **NO_CRASH)


def on_crash(
    jobset: JobSet, crashes: int, pod: str, container: str, at: tuple[datetime, ...] = ()
) -> InPlaceRestartStatus:
    """The record to store when a container has crashed before the barrier lifted.

    Args:
        jobset: with the record so far.
        crashes: how often.
        pod: its pod.
        container: its name.
        at: when, if they count within a window.
    """
    return evolve(
        record_of(jobset),
        crashes=crashes,
        crashing_pod=pod,
        crashing_container=container,
        crash_times=at,
    )


def on_sync(jobset: JobSet, charged: EpochCharge, expected: int) -> InPlaceRestartStatus:
    """The record to store with ``syncedEpoch``: the group as it is now.

    Args:
        jobset: with the record so far.
        charged: the epoch that is synced.
        expected: how many pods the group has to have.
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
    """The restart in place that a user asks for; "" for none.

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
    """When the JobSet was last resumed; a moment that no record has, if that is not done yet."""
    for condition in jobset.status.conditions:
        if condition.type == keys.SUSPENDED_CONDITION:
            return condition.last_transition_time
    return None
