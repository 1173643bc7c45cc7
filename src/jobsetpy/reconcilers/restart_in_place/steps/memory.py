"""Memory and result of a plan."""

from __future__ import annotations

import attrs

from jobsetpy.reconcilers.restart_in_place.detection.silence import Heard
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.history.measure import Measured, RunSoFar
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import SparesShown
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from jobsetpy.reconcilers.rules.plan import Plan
from jobsetpy.reconcilers.rules.times import PinnedTime


@attrs.frozen(kw_only=True)
class EpochState:
    """State remembered for a JobSet; a new manager works without it.

    Its loss costs at most an early detection, a measurement and the time for which a barrier has
    been closed. Each part is made by the module that defines it; the plan makes the rest.

    Args:
        uid: UID of the JobSet.
        left: True if it was suspended at the last plan: observations since then are not failures.
        cause: the latest failure that was detected early.
        pause: end of the stored back-off.
        waiting: pods that are waited for.
        run: what is measured of the restart and the run in progress.
        heard: silent pods, and what was reported of missing heartbeats.
        spares: ready spares.
    """

    uid: str = ""
    left: bool = False
    cause: Cause | None = None
    pause: PinnedTime | None = None
    waiting: Waiting = attrs.field(factory=Waiting)
    run: RunSoFar = attrs.field(factory=RunSoFar)
    heard: Heard = attrs.field(factory=Heard)
    spares: SparesShown = attrs.field(factory=SparesShown)


@attrs.frozen(kw_only=True)
class EpochPlan(Plan[EpochState]):
    """Plan of one reconcile.

    Args:
        judged: True if the plan has processed all observations.
        measured: measures of the restart that begins or ends with the stored status.
    """

    judged: bool = False
    measured: Measured = attrs.field(factory=Measured)

    def stored(self, now: float) -> EpochPlan:
        """Return the plan after its status was stored, at a monotonic time."""
        ended, memory = self.measured.ended, self.memory
        if ended is None or memory is None:
            return self
        return attrs.evolve(self, memory=attrs.evolve(memory, run=memory.run.stored(ended, now)))
