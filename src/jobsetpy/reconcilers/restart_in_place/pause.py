"""Pauses between restarts in quick succession (``reconcilers.rules.backoff``)."""

from __future__ import annotations

import attrs

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, RestartPacing
from jobsetpy.reconcilers.restart_in_place.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.observed import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.backoff import Pace, restarts_in_place
from jobsetpy.reconcilers.rules.times import Now


def pace_of(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> Pace:
    """Return the JobSet's pace, with this manager's own measurements."""
    pace = Pace.of(jobset, now.wall, observed.backoff).paused(jobset.status, memory.pause, now)
    ran_s = now.monotonic - memory.ran_from if memory.ran_from else None
    return attrs.evolve(pace, ran_s=ran_s)


def pacing_of(jobset: JobSet, charged: EpochCharge, pace: Pace) -> RestartPacing | None:
    """Return the delay of the restart that opens an epoch, whether stored yet or not."""
    status = jobset.status
    if charged.renewed or status.synced_epoch == 0:
        # Nothing has failed in place. If Jobs were recreated, that was delayed already.
        known = status.restart_pacing
        return None if known is None else evolve(known, not_before=None)
    return status.restart_pacing if restarts_in_place(status) else pace.begin(status)


def remembered(
    jobset: JobSet, pacing: RestartPacing | None, record: InPlaceRestartStatus, pace: Pace
) -> RestartPacing | None:
    """Return the pacing to store, with the times of restarts that count."""
    policy, status = jobset.spec.failure_policy, jobset.status
    allowed = 0 if policy is None else policy.max_restarts
    counted = restart_budget.recreations(status) + record.restarts
    return pace.remember(status, pacing, counted, allowed)
