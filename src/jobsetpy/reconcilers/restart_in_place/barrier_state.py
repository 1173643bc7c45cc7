"""What follows from the epochs of pods alone: is the barrier closed, and what does it wait for?

Apart from the rest of the rule (``decision``), because what shows a JobSet asks only this, and must
not load all of the domain's classes for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from jobsetpy.api import keys

INVALID: Final = -1
"""What ``parse_epoch`` makes of a text that is no epoch."""


class Opened(Protocol):
    """What is read of a JobSet's status: the two numbers of KEP-467."""

    @property
    def synced_epoch(self) -> int:
        """At which workers may run."""

    @property
    def deprecated_epoch(self) -> int:
        """Up to which pods have to restart."""


def parse_epoch(text: str | None) -> int:
    """An epoch annotation as a number.

    Returns:
        The epoch, 1 to ``keys.MAX_EPOCH``; 0 without an annotation, which means that the agent has
        not started yet; ``INVALID`` for anything else.
    """
    if text is None:
        return 0
    # Ten digits hold every int32; int() of a long text would be slow, and takes "1_0" and " 1".
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return INVALID
    epoch = int(text)
    return epoch if 1 <= epoch <= keys.MAX_EPOCH else INVALID


def is_waiting(status: Opened, epochs: Mapping[int, int]) -> bool:
    """Whether the barrier is closed: no worker may run before more pods have come.

    Args:
        status: of the JobSet.
        epochs: how many live pods are at each epoch; no zero counts.
    """
    return (
        status.deprecated_epoch >= status.synced_epoch
        or not epochs
        or max(epochs) > status.synced_epoch
    )


def next_epoch(status: Opened, epochs: Mapping[int, int]) -> int:
    """The epoch that a closed barrier waits for all pods to come to."""
    lowest = max(status.synced_epoch, status.deprecated_epoch) + 1
    return max(lowest, *epochs) if epochs else lowest
