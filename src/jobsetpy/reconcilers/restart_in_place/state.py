"""Memory and result of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from jobsetpy.reconcilers.restart_in_place.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed import InvalidEpoch
from jobsetpy.reconcilers.rules.plan import Plan
from jobsetpy.reconcilers.rules.times import PinnedTime

Phase = Literal["detect", "deprecate", "gather", "wait", "lift"]
"""Phases of a restart: until ``deprecatedEpoch`` is written; until no pod is at an older epoch;
until all are at the new one; until the back-off is over, if there is one; until ``syncedEpoch`` is
written."""

Use = Literal["starting", "repeating", "training", "restarting"]
"""Parts of a group's time: until a run's first step, in steps that an earlier run had done, in new
ones, and from the first sign of its end until the next run."""


@attrs.frozen(kw_only=True)
class EpochState:
    """State remembered for a JobSet; a new manager works without it.

    Its loss costs at most an early detection, a measurement and the time for which a barrier has
    been closed. All times are on the monotonic clock.

    Args:
        uid: UID of the JobSet.
        left: True if it was suspended at the last plan: observations since then are not failures.
        told: invalid annotations that an event has reported.
        invalid: ``Observations.invalid`` at that time.
        cause: the latest failure that was detected early.
        began: time of the first sign of the measured restart.
        deprecated: its old epoch, 0 if no restart is measured.
        deprecated_at: time at which that was deprecated.
        held_since: time at which all pods were ready and the back-off began; 0 if it has not.
        pause: end of the stored back-off.
        waiting_since: time at which the barrier was first observed as closed.
        lacking_since: time since which workers run without their whole group.
        look_at: time of the next check for pods that block the barrier, or are missing.
        stall_told: the epoch whose stalled barrier an event has reported.
        missing: number of pods that the barrier waited for at the last check.
        stalled: True if the barrier is stalled, and its pods were checked.
        lifted: the epoch that was synced last, and the duration of that write in seconds.
        ran_from: time at which the current or last run started; 0 if unknown.
        ran_until: time of the first sign of the end of that run; 0 while it continues.
        ready_spares: number of ready spares.
        exhausted: number of Jobs without a ready spare.
    """

    uid: str = ""
    left: bool = False
    told: frozenset[InvalidEpoch] = frozenset()
    invalid: int = 0
    cause: Cause | None = None
    began: float = 0.0
    deprecated: int = 0
    deprecated_at: float = 0.0
    held_since: float = 0.0
    pause: PinnedTime | None = None
    waiting_since: float | None = None
    lacking_since: float | None = None
    look_at: float = 0.0
    stall_told: int = 0
    missing: int = 0
    stalled: bool = False
    lifted: tuple[int, float] = (0, 0.0)
    ran_from: float = 0.0
    ran_until: float = 0.0
    ready_spares: int = 0
    exhausted: int = 0


@attrs.frozen(kw_only=True)
class RestartMetrics:
    """Metrics to update once the status is stored.

    Args:
        began: True if a restart began.
        cause: its cause; ``None`` if it was detected by a pod at a new epoch.
        phases: durations of completed phases of a restart, in seconds.
        since: monotonic start times of the phases that the write ends.
        restart_since: start time of the restart that the write ends, or ``None``.
        lost_steps: number of steps that the last run has repeated.
        first_step_s: seconds from the failure before that run to its first step.
        spent: use of the seconds of that run and of the restart after it.
        seats_taken: number of seats that spares have taken over.
    """

    began: bool = False
    cause: Cause | None = None
    phases: Mapping[Phase, float] = attrs.field(factory=dict)
    since: Mapping[Phase, float] = attrs.field(factory=dict)
    restart_since: float | None = None
    lost_steps: int | None = None
    first_step_s: float | None = None
    spent: Mapping[Use, float] = attrs.field(factory=dict)
    seats_taken: int = 0


@attrs.frozen(kw_only=True)
class EpochPlan(Plan[EpochState]):
    """Plan of one reconcile.

    Args:
        judged: True if the plan has processed all observations.
        measures: metrics to update once the status is stored.
    """

    judged: bool = False
    measures: RestartMetrics = RestartMetrics()

    def stored(self, now: float) -> EpochPlan:
        """Return the plan after its status was stored, at a monotonic time."""
        since = self.measures.since.get("lift")
        if since is None or self.memory is None or self.status is None:
            return self
        lifted = (self.status.status.synced_epoch, now - since)
        return attrs.evolve(self, memory=attrs.evolve(self.memory, lifted=lifted))
