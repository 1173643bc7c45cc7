"""Record of restarts in place in the status (``inPlaceRestart``), written with the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of, requested
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Crash
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.in_place_record import Renewal, job_restarts, resumed_at

NO_CRASH: Final[Mapping[str, Any]] = {
    "crashes": 0,
    "crashing_pod": "",
    "crashing_container": "",
}


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
    recreated += job_restarts(jobset) - record.job_restarts_at_sync
    uncounted = min(record.uncounted_epochs + max(0, recreated), newest - 1)
    charged = EpochCharge(synced, Renewal.NONE, 0)
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


def on_crash(jobset: JobSet, crash: Crash) -> InPlaceRestartStatus:
    """Return the record to store when a container has crashed before the barrier lifted."""
    return evolve(
        record_of(jobset),
        crashes=crash.times,
        crashing_pod=crash.pod,
        crashing_container=crash.container,
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
        job_restarts_at_sync=job_restarts(jobset),
        resume_time=resumed_at(jobset),
        **NO_CRASH,
    )


def _charge(jobset: JobSet, charged: EpochCharge) -> InPlaceRestartStatus:
    record = record_of(jobset)
    uncounted = charged.renewal and not charged.kept
    if uncounted and record.last_uncounted_epoch != charged.epoch:
        record = evolve(
            record,
            uncounted_epochs=record.uncounted_epochs + 1,
            last_uncounted_epoch=charged.epoch,
        )
    return evolve(record, restarts=restart_budget.in_place(charged.epoch, record))
