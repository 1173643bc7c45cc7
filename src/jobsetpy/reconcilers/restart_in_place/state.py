"""Memory and result of a plan."""

from __future__ import annotations

import attrs

from jobsetpy.reconcilers.restart_in_place.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed import InvalidEpoch
from jobsetpy.reconcilers.restart_in_place.restart import Restart, Run
from jobsetpy.reconcilers.rules.plan import Plan
from jobsetpy.reconcilers.rules.times import PinnedTime


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
