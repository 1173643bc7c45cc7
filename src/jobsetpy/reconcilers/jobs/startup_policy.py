"""ReplicatedJobs that may start: ``startupPolicy`` and ``dependsOn``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSetSpec, ReplicatedJob, ReplicatedJobStatus
from jobsetpy.reconcilers.rules.conditions import NORMAL
from jobsetpy.reconcilers.rules.plan import EmitEvent

WAITING_FOR_DELETION: Final = EmitEvent(
    NORMAL,
    keys.WAITING_FOR_DELETION_REASON,
    "no job is created before all jobs of the earlier attempt are gone "
    f"(restart strategy {keys.BLOCKING_RECREATE})",
)
"""Event for a creation that waits for the Jobs of the earlier attempt to be deleted."""


def has_started(wanted: int, status: ReplicatedJobStatus | None) -> bool:
    """Return whether a number of Jobs of a ReplicatedJob are ready or finished."""
    if status is None:
        return wanted == 0
    return status.failed + status.ready + status.succeeded >= wanted


def dependencies_reached(
    replicated: ReplicatedJob,
    statuses: Mapping[str, ReplicatedJobStatus],
    wanted_jobs: Mapping[str, int],
) -> bool:
    """Return whether all dependencies of a ReplicatedJob are satisfied.

    Only the current counters count: a dependency may become unsatisfied again.

    Args:
        replicated: dependent ReplicatedJob.
        statuses: counters by name; a missing entry is a dependency that is not satisfied.
        wanted_jobs: number of Jobs by name, without spare ones.
    """
    for dependency in replicated.depends_on:
        status, wanted = statuses.get(dependency.name), wanted_jobs.get(dependency.name)
        if status is None or wanted is None or not has_started(wanted, status):
            return False
        if dependency.status == "Complete" and status.succeeded < wanted:
            return False
    return True


def waiting_notice(spec: JobSetSpec) -> EmitEvent:
    """Return the event about ReplicatedJobs that are not started yet.

    Its text names every dependency of the spec, including satisfied ones, so it stays the same
    during the whole start and is reported once.
    """
    waits = [
        f"{item.name!r} starts when {dependency.name!r} is {dependency.status}"
        for item in spec.replicated_jobs
        for dependency in item.depends_on
    ]
    message = f"replicated jobs wait for others: {'; '.join(waits)}"
    return EmitEvent(NORMAL, keys.WAITING_FOR_DEPENDENCIES_REASON, message)
