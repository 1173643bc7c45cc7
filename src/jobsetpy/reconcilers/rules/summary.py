"""Summary of a JobSet's state in one word."""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history, in_place_record
from jobsetpy.reconcilers.rules.spares import working_jobs

RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
WAITING: Final = "Waiting"
SUSPENDED: Final = "Suspended"

_RESTARTS: Final = (keys.RESTARTING_CONDITION, keys.RESTARTING_IN_PLACE_CONDITION)
_WAITS: Final = (
    keys.BARRIER_STALLED_CONDITION,
    keys.COSCHEDULING_IN_PROGRESS_CONDITION,
    keys.GROUP_IN_PROGRESS_CONDITION,
    keys.STARTUP_IN_PROGRESS_CONDITION,
)


def state(jobset: JobSet) -> str:
    """Return Completed, Failed, Suspended, Restarting, Waiting or Running."""
    status = jobset.status
    end = cond.finished(status.conditions)
    if end is not None:
        return end.type
    if jobset.spec.suspend is True:
        return SUSPENDED
    restarting = any(cond.is_true(status.conditions, kind) for kind in _RESTARTS)
    if restarting or history.is_open(status.restart_history):
        return RESTARTING
    if any(cond.is_true(status.conditions, kind) for kind in _WAITS):
        return WAITING
    if jobset.spec.restarts_in_place and status.deprecated_epoch >= status.synced_epoch:
        return WAITING
    record = status.in_place_restart
    if record is not None and record.job_sizes and not in_place_record.is_starting(jobset):
        return RUNNING  # with fewer pods: Jobs are not ready, perhaps for hours
    counters = {item.name: item for item in status.replicated_jobs_status}
    for name, wanted in working_jobs(jobset).items():
        known = counters.get(name)
        if known is None or known.ready + known.succeeded + known.failed < wanted:
            return WAITING
    return RUNNING
