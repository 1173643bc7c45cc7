"""Memory and result of a plan, and the record of one restart in place.

The record lasts from the first sign of a restart until workers run again. The history in the
status, metrics, conditions and events of a restart derive from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import InvalidEpoch
from jobsetpy.reconcilers.rules.backoff import Pace, RestartBackoff
from jobsetpy.reconcilers.rules.plan import Plan
from jobsetpy.reconcilers.rules.times import Now, PinnedTime

Phase = Literal["detect", "deprecate", "gather", "wait", "lift"]
"""Phases of a restart: until ``deprecatedEpoch`` is written; until no pod is at an older epoch;
until all are at the new one; until the back-off is over, if there is one; until ``syncedEpoch`` is
written."""

Use = Literal["starting", "repeating", "training", "restarting"]
"""Parts of a group's time: until a run's first step, in steps that an earlier run had done, in new
ones, and from the first sign of its end until the next run."""


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
        first: name and node of the first pod at that epoch, "" if unknown.
        last: the same for the last pod.
        times: when it began, and reached its phases.
        seats_taken: number of seats that spares take over with it.
    """

    epoch: int
    charge: EpochCharge
    times: Times
    cause: Cause | None = None
    first: tuple[str, str] = ("", "")
    last: tuple[str, str] = ("", "")
    seats_taken: int = 0

    @property
    def over(self) -> bool:
        """True if its barrier was lifted."""
        return self.times.lifted is not None

    def at(self, **times: Any) -> Restart:
        """Return the restart with more times."""
        return attrs.evolve(self, times=attrs.evolve(self.times, **times))


@attrs.frozen(kw_only=True)
class Run:
    """Report of the pods on the run that a restart has ended.

    Args:
        lost_steps: number of steps that it has repeated.
        first_step_s: seconds from the failure before it to its first step.
        spent: use of its seconds, and of those of the restart after it.
    """

    lost_steps: int | None = None
    first_step_s: float | None = None
    spent: Mapping[Use, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class EpochState:
    """State remembered for a JobSet; a new manager works without it.

    Its loss costs at most an early detection, a measurement and the time for which a barrier has
    been closed. All times are on the monotonic clock.

    Args:
        uid: UID of the JobSet.
        left: True if it was suspended at the last plan: observations since then are not failures.
        reported: invalid annotations that an event has reported.
        invalid: ``Observations.invalid`` at that time.
        cause: the latest failure that was detected early.
        restart: the restart in progress, or the last one.
        pause: end of the stored back-off.
        waiting_since: time at which the barrier was first observed as closed.
        lacking_since: time since which workers run without their whole group.
        look_at: time of the next check for pods that block the barrier, or are missing.
        stall_reported: the epoch whose stalled barrier an event has reported.
        missing: number of pods that the barrier waited for at the last check.
        stalled: True if the barrier is stalled, and its pods were checked.
        ran_from: time at which the current or last run started; 0 if unknown.
        ran_until: time of the first sign of the end of that run; 0 while it continues.
        ready_spares: number of ready spares.
        exhausted: number of Jobs without a ready spare.
        silent: UIDs of silent pods.
        unheard_reported: messages of events about heartbeats that are missing, without a restart.
    """

    uid: str = ""
    left: bool = False
    reported: frozenset[InvalidEpoch] = frozenset()
    invalid: int = 0
    cause: Cause | None = None
    restart: Restart | None = None
    pause: PinnedTime | None = None
    waiting_since: float | None = None
    lacking_since: float | None = None
    look_at: float = 0.0
    stall_reported: int = 0
    missing: int = 0
    stalled: bool = False
    ran_from: float = 0.0
    ran_until: float = 0.0
    ready_spares: int = 0
    exhausted: int = 0
    silent: frozenset[str] = frozenset()
    unheard_reported: frozenset[str] = frozenset()

    def pace(self, jobset: JobSet, backoff: RestartBackoff, now: Now) -> Pace:
        """Return the JobSet's pace, with this manager's own measurements."""
        pace = Pace.of(jobset, now.wall, backoff).paused(jobset.status, self.pause, now)
        return attrs.evolve(pace, ran_s=now.monotonic - self.ran_from if self.ran_from else None)

    def held(self, at: float | None) -> EpochState:
        """Return the state while all pods wait for the back-off since a time, or do not."""
        restart = self.restart
        if restart is None or restart.over or (at is not None and restart.times.held is not None):
            return self
        return attrs.evolve(self, restart=restart.at(held=at))

    def at_rest(self) -> EpochState:
        """Return the state while no pod is waited for."""
        return attrs.evolve(
            self,
            restart=self.restart if self.restart is not None and self.restart.over else None,
            waiting_since=None,
            stall_reported=0,
            missing=0,
            stalled=False,
        )


@attrs.frozen(kw_only=True)
class EpochPlan(Plan[EpochState]):
    """Plan of one reconcile.

    Args:
        judged: True if the plan has processed all observations.
        begun: restart that begins with the stored status.
        ended: restart, or first start, that ends with it.
        run: the run before, if the status ends a restart.
    """

    judged: bool = False
    begun: Restart | None = None
    ended: Restart | None = None
    run: Run = attrs.field(factory=Run)

    def stored(self, now: float) -> EpochPlan:
        """Return the plan after its status was stored, at a monotonic time."""
        if self.ended is None or self.memory is None:
            return self
        return attrs.evolve(
            self, memory=attrs.evolve(self.memory, restart=self.ended.at(stored=now))
        )
