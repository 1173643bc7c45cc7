"""Restart budget: the number of restarts that ``maxRestarts`` bounds.

``maxRestarts`` bounds the sum of all restarts of a JobSet: those of all Jobs, those of single Jobs
and ReplicatedJobs, and those in place. Both reconcilers that restart something use this module, so
that each counts the other's restarts.
"""

from __future__ import annotations

from typing import Any, Protocol


class Restarted(Protocol):
    """Fields of a status with all restarts: of a JobSet's status, or of a slice of it."""

    @property
    def restarts_count_towards_max(self) -> int:
        """Number of restarts of all Jobs that count."""

    @property
    def replicated_jobs_status(self) -> Any:
        """Restarts of single Jobs, by ReplicatedJob."""

    @property
    def synced_epoch(self) -> int:
        """Epoch at which workers may run."""

    @property
    def deprecated_epoch(self) -> int:
        """Epoch up to which pods have to restart."""

    @property
    def in_place_restart(self) -> Any:
        """Record of the epochs that do not count as restarts, if there is one."""


def spent(status: Restarted) -> int:
    """Return the number of stored restarts of all kinds that count.

    A restart in place in progress is not included: if Jobs are recreated meanwhile, the two are one
    restart, and that of the Jobs counts. The Job controller deletes the pods of a failing Job
    before it reports the failure, which looks like the beginning of such a restart.
    """
    opened = max(status.synced_epoch, status.deprecated_epoch)
    return recreations(status) + in_place(opened, status.in_place_restart)


def recreations(status: Restarted) -> int:
    """Return the number of restarts of Jobs that count, of all Jobs or of single ones."""
    return status.restarts_count_towards_max + sum(
        sum(item.job_restarts_count_towards_max) for item in status.replicated_jobs_status
    )


def in_place(newest: int, record: Any) -> int:
    """Return the number of restarts in place that count: one per epoch after the first.

    Args:
        newest: the newest epoch that was opened; 0 or 1 before there was any restart.
        record: record with the number of epochs that were not opened by a failure, which do not
            count, and the last of them; ``None`` if there is none.
    """
    if record is None:
        return max(0, newest - 1)
    # The last one is noted when it begins: until pods report it, it is above the newest epoch.
    uncounted: int = max(0, record.uncounted_epochs - (record.last_uncounted_epoch > newest))
    return max(0, newest - 1 - uncounted)
