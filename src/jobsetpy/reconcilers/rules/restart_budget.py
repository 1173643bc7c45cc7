"""The one account of what was restarted, against which ``maxRestarts`` is held.

``maxRestarts`` bounds all restarts of a JobSet together: those of all Jobs, those of single Jobs
and ReplicatedJobs, and those in place. Both reconcilers that restart something ask here, so that
none spends what the other has spent already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class _InPlace(Protocol):
    @property
    def uncounted_epochs(self) -> int: ...


class _OfReplicatedJob(Protocol):
    @property
    def job_restarts_count_towards_max(self) -> Sequence[int]: ...


class Recreated(Protocol):
    """What is read of a status: how often Jobs were made anew."""

    @property
    def restarts_count_towards_max(self) -> int:
        """All Jobs."""

    @property
    def replicated_jobs_status(self) -> Sequence[_OfReplicatedJob]:
        """Single Jobs, by ReplicatedJob."""


class Restarted(Recreated, Protocol):
    """What is read of a status, with restarts in place."""

    @property
    def synced_epoch(self) -> int:
        """At which workers may run."""

    @property
    def deprecated_epoch(self) -> int:
        """Up to which pods have to restart."""

    @property
    def in_place_restart(self) -> _InPlace | None:
        """Which epochs stand for no restart that counts."""


def spent(status: Restarted) -> int:
    """How many restarts of all kinds count by now, by what is stored.

    A restart in place that has begun and is not over yet is not among them: when Jobs are recreated
    meanwhile, the two are one restart, and that of the Jobs counts. The Job controller deletes the
    pods of a Job that fails before it says so, which looks like the begin of such a restart.
    """
    opened = max(status.synced_epoch, status.deprecated_epoch)
    record = status.in_place_restart
    uncounted = 0 if record is None else record.uncounted_epochs
    return recreations(status) + in_place(opened, uncounted)


def recreations(status: Recreated) -> int:
    """How many restarts of Jobs count, of all of them or of single ones."""
    return status.restarts_count_towards_max + sum(
        sum(item.job_restarts_count_towards_max) for item in status.replicated_jobs_status
    )


def in_place(newest: int, uncounted: int) -> int:
    """How many restarts in place count: one for each epoch after the first, with exceptions.

    Args:
        newest: the newest epoch that was opened; 0 or 1 before there was any restart.
        uncounted: how many epochs were opened otherwise than by a failure.
    """
    return max(0, newest - 1 - uncounted)
