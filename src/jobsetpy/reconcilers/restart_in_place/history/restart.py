"""Records of one restart in place, and of the run that it ends.

The record lasts from the first sign of a restart until workers run again. The history in the
status, metrics, conditions and events of a restart derive from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Arrival

Phase = Literal["detect", "deprecate", "gather", "wait", "lift"]
"""Phases of a restart: until ``deprecatedEpoch`` is written; until no pod is at an older epoch;
until all are at the new one; until the back-off is over, if there is one; until ``syncedEpoch`` is
written."""


@attrs.frozen(kw_only=True)
class Times:
    """Times of a restart in seconds on the monotonic clock; ``None`` if not observed, or not yet.

    Args:
        began: first sign of it.
        decided: decision to deprecate the epochs before.
        left: no pod was at one of these epochs.
        held: all pods had come, and had to wait for the back-off.
        lifted: decision to lift the barrier.
        stored: that decision was written.
    """

    began: float
    decided: float | None = None
    left: float | None = None
    held: float | None = None
    lifted: float | None = None
    stored: float | None = None

    @property
    def phases(self) -> Mapping[Phase, float]:
        """Durations of the phases between the two writes, as far as observed."""
        found: dict[Phase, float] = {}
        if self.lifted is None:
            return found
        if self.decided is not None and self.left is not None:
            come = self.lifted if self.held is None else self.held
            found = {"deprecate": self.left - self.decided, "gather": come - self.left}
        if self.held is not None:
            found["wait"] = self.lifted - self.held
        return found


@attrs.frozen(kw_only=True)
class Restart:
    """One restart in place; also the first start of a group, and that of new pods.

    Args:
        epoch: epoch that it opens.
        charge: how that epoch is charged to ``maxRestarts``.
        cause: its cause, ``None`` if the first sign of it was a pod at the new epoch.
        first: the first pod at that epoch.
        last: the same for the last pod.
        times: when it began, and reached its phases.
        seats_taken: number of seats that spares take over with it.
    """

    epoch: int
    charge: EpochCharge
    times: Times
    cause: Cause | None = None
    first: Arrival = attrs.field(factory=Arrival)
    last: Arrival = attrs.field(factory=Arrival)
    seats_taken: int = 0

    @property
    def over(self) -> bool:
        """True if its barrier was lifted."""
        return self.times.lifted is not None

    def at(self, **times: Any) -> Restart:
        """Return the restart with more times."""
        return attrs.evolve(self, times=attrs.evolve(self.times, **times))
