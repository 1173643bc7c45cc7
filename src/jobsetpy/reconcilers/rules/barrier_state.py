"""State of the barrier, derived from the epochs of pods alone.

It is separate from the rest of the rule (``restart_in_place.epochs.barrier``) because commands that
show a JobSet need only this and should not load all of the feature's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Opened(Protocol):
    """The two numbers of KEP-467 in a JobSet's status."""

    @property
    def synced_epoch(self) -> int:
        """Epoch at which workers may run."""

    @property
    def deprecated_epoch(self) -> int:
        """Epoch up to which pods have to restart."""


def is_waiting(status: Opened, epochs: Mapping[int, int]) -> bool:
    """Return True if the barrier is closed: no worker may run before more pods have arrived.

    Args:
        status: status of the JobSet.
        epochs: number of live pods at each epoch, without zeros.
    """
    return (
        status.deprecated_epoch >= status.synced_epoch
        or not epochs
        or max(epochs) > status.synced_epoch
    )


def next_epoch(status: Opened, epochs: Mapping[int, int]) -> int:
    """Return the epoch that all pods have to reach before a closed barrier lifts."""
    lowest = max(status.synced_epoch, status.deprecated_epoch) + 1
    return max(lowest, *epochs) if epochs else lowest


def holds_seat(uid: str, index: int, seats: int, taken: Mapping[int, str]) -> bool:
    """Return True if a pod has a seat.

    Args:
        uid: UID of the pod.
        index: its completion index.
        seats: number of seats of its Job.
        taken: UIDs of the holders of seats with an entry, by seat.
    """
    return uid in taken.values() or (index < seats and index not in taken)


def holds_job(name: str, index: int, working: int, taken: Mapping[str, str]) -> bool:
    """Return True if the pods of a Job have the seats of a Job: its own, or those of another one.

    Args:
        name: name of the Job.
        index: its index in its ReplicatedJob.
        working: number of Jobs of the ReplicatedJob that have seats; 0 if all have their own.
        taken: names of the holders of Jobs with an entry, by name of the Job.
    """
    return not working or name in taken.values() or (index < working and name not in taken)
