"""Held binds of gangs: they are executed together, or refused together."""

from __future__ import annotations

from itertools import islice
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.gang import Observer, TrackedGang, TrackedPod
from jobsetpy.coscheduler.gang_scheduler.state import (
    Action,
    Bind,
    Cause,
    Limits,
    PodState,
    Refuse,
)
from jobsetpy.coscheduler.gang_scheduler.table import GangTable
from jobsetpy.reconcilers.coscheduling import plugin

_PORTION: Final = 500
"""Maximum number of pods of a gang released per pass."""

_REFUSED: Final = 100
"""Maximum number of held binds refused per pass; each is answered, and frees its capacity."""


class Holding:
    """Held binds, and the times for which they are held.

    Args:
        table: all gangs.
        limits: times and limits.
        observer: observer of decisions.
        out: actions to execute.
    """

    def __init__(
        self, table: GangTable, limits: Limits, observer: Observer, out: list[Action]
    ) -> None:
        self._table = table
        self._limits = limits
        self._observer = observer
        self._out = out
        self._tickets: dict[int, TrackedPod] = {}
        self._deadlines: dict[TrackedGang, float] = {}
        self._unfinished: dict[TrackedGang, None] = {}

    @property
    def is_unfinished(self) -> bool:
        """Return whether held binds are still to be executed or refused."""
        return bool(self._unfinished)

    def exceeds_limit(self, gang: TrackedGang) -> bool:
        """Return whether a gang needs more held binds than are possible: it never starts."""
        most = self._limits.held
        return 0 < most < gang.info().min_available - gang.running and not gang.complete

    # -- requests -----------------------------------------------------------------------------

    def hold(self, ticket: int, pod: TrackedPod, now: float) -> None:
        """Hold a bind; it is released when its gang is reviewed, if the gang is complete then."""
        gang, info = pod.gang, pod.gang.info()
        permitted = plugin.permit(info, running=gang.running, waiting=gang.waiting)
        pod.ticket = ticket
        self._tickets[ticket] = pod
        self._table.move(pod, PodState.WAITING)
        if not gang.held.begun:
            gang.held.begun = True
            self._observer.begun(gang)
        if not permitted and gang not in self._deadlines:
            limits = self._limits
            timeout_s = plugin.permit_timeout(
                info, shortest_s=limits.permit_s, per_pod_s=limits.permit_per_pod_s
            )
            self._deadlines[gang] = now + timeout_s

    def cancelled(self, ticket: int) -> None:
        """Handle the loss of a bind request's client."""
        pod = self._tickets.pop(ticket, None)
        if pod is not None and pod.state is PodState.WAITING:
            self._table.move(pod, PodState.PENDING)

    def refuse(self, pod: TrackedPod, reason: str) -> None:
        """Refuse the held bind of a pod."""
        self._tickets.pop(pod.ticket, None)
        self._out.append(Refuse(pod.ticket, pod.uid, reason))
        self._table.move(pod, PodState.PENDING)

    # -- gangs --------------------------------------------------------------------------------

    def pod_removed(self, gang: TrackedGang, now: float) -> None:
        """Handle the end of a pod: binds of a gang that shrinks are not held for more pods."""
        if gang.waiting and not gang.is_large and not gang.complete:
            why = f"{gang.key} has {gang.placeable} of {gang.info().min_available} pods"
            self.reject(gang, Cause.TOO_SMALL, why, now)

    def end_backoff(self, gang: TrackedGang, now: float) -> None:
        """End the back-off of a gang now."""
        gang.held.not_before = now

    def preempts(self, gang: TrackedGang) -> None:
        """Note that pods are deleted for a gang."""
        gang.held.preempted = True

    def reject(self, gang: TrackedGang, cause: Cause, reason: str, now: float) -> None:
        """Refuse held binds; retries are refused for a while, longer each time."""
        limits = self._limits
        waiting = list(gang.pods[PodState.WAITING])
        refused = plugin.unreserve(gang.info(), running=gang.running, waiting=waiting)
        self._observer.rejected(gang, cause, reason, len(refused))
        # Without held binds there is nothing to answer; the gang backs off nevertheless.
        if refused:
            gang.held.refusing = reason
            self._refuse_some(gang)
        # Unschedulable pods may fit now, and will be tried again.
        for pod in list(gang.pods[PodState.UNSCHEDULABLE].values()):
            self._table.move(pod, PodState.PENDING)
        pause_s = min(limits.first_backoff_s * 2**gang.held.failures, limits.longest_backoff_s)
        gang.held.not_before = now + pause_s
        gang.held.failures = min(gang.held.failures + 1, 30)
        if gang.held.preempted:
            self._end_preemption(gang, now)
        self._deadlines.pop(gang, None)
        self._table.touch(gang)

    def _end_preemption(self, gang: TrackedGang, now: float) -> None:
        """Have no more pods deleted for a while.

        A gang that never fits would otherwise delete others' pods at each attempt.
        """
        held, limits = gang.held, self._limits
        pause_s = limits.first_preemption_s * 2**held.preempted_in_vain
        held.preempts_from = now + min(pause_s, limits.longest_preemption_s)
        held.preempted, held.preempted_in_vain = False, min(held.preempted_in_vain + 1, 30)

    def review(self, gang: TrackedGang) -> None:
        """Release or refuse held binds of a gang that has changed, and set its timers."""
        self._review_held(gang)
        complete = gang.complete
        if complete:
            held = gang.held
            held.failures, held.not_before, held.begun = 0, 0.0, False
            held.preempted, held.preempted_in_vain, held.preempts_from = False, 0, 0.0
        # A pod that comes later starts another attempt, with the whole time.
        if not gang.waiting or complete:
            self._deadlines.pop(gang, None)

    def _review_held(self, gang: TrackedGang) -> None:
        """Release or refuse held binds."""
        # The last answer was given: whatever was done to the gang's binds is over.
        if not gang.waiting:
            gang.held.releasing, gang.held.refusing = False, ""
            self._unfinished.pop(gang, None)
        elif gang.held.releasing or gang.running + gang.waiting >= gang.info().min_available:
            self._release(gang)  # the minimum was lowered, or a bind was seen

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang without pods."""
        self._deadlines.pop(gang, None)
        self._unfinished.pop(gang, None)

    # -- time ---------------------------------------------------------------------------------

    def continue_batches(self) -> None:
        """Continue releases and refusals of gangs, up to a total number of pods per pass."""
        for gang in list(islice(self._unfinished, _REFUSED)):
            if gang.held.refusing:
                self._refuse_some(gang)
            else:
                self._release(gang)
            # The process executes actions between two calls; a gang of thousands would hold it.
            if len(self._out) >= _REFUSED:
                return

    def late(self, now: float) -> list[TrackedGang]:
        """Return gangs that are not complete in time."""
        return [gang for gang, at in self._deadlines.items() if at <= now]

    def next_wake(self, now: float) -> float | None:
        """Return the time of the next timer; ``None`` without any."""
        if self._unfinished:
            return now
        return min(self._deadlines.values(), default=None)

    # -- batches ------------------------------------------------------------------------------

    def _release(self, gang: TrackedGang) -> None:
        """Execute held binds, some at a time: from now on none is refused."""
        waiting = gang.pods[PodState.WAITING]
        if not gang.held.releasing:
            self._observer.released(gang, len(waiting))
        gang.held.refusing = ""
        for pod in list(islice(waiting.values(), max(0, _PORTION - len(self._out)))):
            self._tickets.pop(pod.ticket, None)
            self._table.move(pod, PodState.BINDING)
            self._out.append(Bind(pod.ticket, pod.uid))
        gang.held.releasing = bool(waiting)
        self._set_unfinished(gang)

    def _refuse_some(self, gang: TrackedGang) -> None:
        waiting = gang.pods[PodState.WAITING]
        for pod in list(islice(waiting.values(), max(0, _REFUSED - len(self._out)))):
            self.refuse(pod, gang.held.refusing)
        if not waiting:
            gang.held.refusing = ""
        self._set_unfinished(gang)

    def _set_unfinished(self, gang: TrackedGang) -> None:
        if gang.waiting:
            self._unfinished[gang] = None
        else:
            self._unfinished.pop(gang, None)
