"""Gang scheduler: a state machine without I/O that holds, binds or refuses pods of gangs.

Inputs are events (pods seen and gone, bind requests, pods without a node, results, time); outputs
are lists of actions. The process around it holds the requests, writes to the API server, and calls
:meth:`GangScheduler.tick` by :meth:`next_wake`.

* **A gang is bound as a whole or not at all**: binds are held until there are enough of them, or
  their time is over. Then all are refused, and the scheduler gives up their reservations.
* **Gangs that lack capacity take turns**: a pod that finds no node costs no other gang anything
  that makes progress.
* **Pods that are created first wait for the others**: their binds are held like all others. Once
  they were refused, they are held only when there are enough pods.

The parts: the :mod:`table <.table>` of gangs, :mod:`holding <.holding>` and :mod:`contention
<.contention>`. An event changes pods in the table; then the parts review the gangs that have
changed.

Costs per event do not grow with the size of the gang, except for events that release or refuse all
of it, nor with the number of gangs, except when one of those that lack capacity is given the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.contention import Contention
from jobsetpy.coscheduler.gang_scheduler.gang import Observer, TrackedGang, TrackedPod
from jobsetpy.coscheduler.gang_scheduler.holding import Holding
from jobsetpy.coscheduler.gang_scheduler.state import (
    Action,
    Cause,
    Counts,
    Limits,
    Outcome,
    PodState,
    Preemption,
    Refuse,
    SeenPod,
)
from jobsetpy.coscheduler.gang_scheduler.table import GangTable
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

_ANSWERED: Final = frozenset({PodState.BINDING, PodState.BOUND})
"""States in which a bind of a pod is refused."""


class GangScheduler:
    """State of all gangs of a cluster. ``now`` is a monotonic time in seconds everywhere."""

    def __init__(self, limits: Limits | None = None, *, observer: Observer | None = None) -> None:
        limits, observer = limits or Limits(), observer or Observer()
        self._limits = limits
        self._out: list[Action] = []
        self._observer = observer
        self._paused = False
        self._table = GangTable()
        self._holding = Holding(self._table, limits, observer, self._out)
        self._contention = Contention(limits, self._holding)
        self.knows: Callable[[str], bool] = self._table.pods.__contains__
        self.gang: Callable[[PodGroupKey], TrackedGang | None] = self._table.gangs.get
        self.counts: Callable[[], Counts] = self._table.counts
        self.states: Callable[[], dict[str, PodState]] = self._table.states

    def pause(self) -> None:
        """Make no decisions while existing pods are listed.

        The order of gangs, and their sizes, are known only when all pods have been seen.
        """
        self._paused = True

    def resume(self, now: float) -> list[Action]:
        """Resume decisions: all existing pods have been seen."""
        self._paused = False
        return self._schedule_and_flush(now)

    # -- events -------------------------------------------------------------------------------

    def seen(self, pod: SeenPod, now: float) -> list[Action]:
        """Handle a pod that is new or has changed."""
        known = self._table.pods.get(pod.uid)
        # A changed label moves a pod to another gang: as if one had gone and another come.
        if known is not None and (pod.ended or known.gang.key != pod.group):
            self._remove(known, now)
            known = None
        if not pod.ended:
            if known is None:
                self._table.add(pod, PodState.BOUND if pod.member.bound else PodState.PENDING)
            else:
                self._update(known, pod)
        return self._schedule_and_flush(now)

    def gone(self, uid: str, now: float) -> list[Action]:
        """Handle the deletion of a pod."""
        pod = self._table.pods.get(uid)
        if pod is not None:
            self._remove(pod, now)
        return self._schedule_and_flush(now)

    def unschedulable(self, uid: str, now: float) -> list[Action]:
        """Handle a pod for which the scheduler has found no node.

        Its gang keeps its reservations, unless another one lacks capacity as well and has the turn.
        """
        self._move(uid, PodState.PENDING, PodState.UNSCHEDULABLE)
        return self._schedule_and_flush(now)

    def bind_asked(self, ticket: int, uid: str, now: float) -> list[Action]:
        """Handle a bind request of the scheduler, which has found a node for a pod.

        Args:
            ticket: identifier of the request; never used twice.
            uid: UID of the pod, which is known.
            now: current time.
        """
        pod = self._table.pods[uid]
        if pod.state is PodState.WAITING:
            # A new scheduler, or the old one gave up.
            self._holding.refuse(pod, "asked for again")
        # The scheduler asks again for a pod whose bind was lost on its side, or that has a node.
        if pod.state in _ANSWERED:
            obstacle = f"the pod is {pod.state.value}"
        else:
            obstacle = self._obstacle(pod.gang, now)
            self._table.move(pod, PodState.PENDING)
        if obstacle:
            self._out.append(Refuse(ticket, uid, obstacle))
        else:
            self._holding.hold(ticket, pod, now)
        return self._schedule_and_flush(now)

    def bind_cancelled(self, ticket: int, now: float) -> list[Action]:
        """Handle the loss of a bind request's client: its reservation is gone as well."""
        self._holding.cancelled(ticket)
        return self._schedule_and_flush(now)

    def bind_done(self, uid: str, *, ok: bool, now: float) -> list[Action]:
        """Handle the result of a :class:`Bind`; a failed one is requested again and not held."""
        self._move(uid, PodState.BINDING, PodState.BOUND if ok else PodState.PENDING)
        return self._schedule_and_flush(now)

    def preempt(
        self, victims: Mapping[str, Iterable[str]], now: float, *, preemptor: str = ""
    ) -> Preemption:
        """Protect pods that only wait from being deleted for a pod of higher priority.

        Their gangs are refused instead, which frees the capacity as well. If some nodes have no
        waiting pods among their victims, and no node has only such, the scheduler chooses among
        these nodes. No pod is deleted for a gang that is too small, nor for a while after others
        were deleted for it in vain.

        Args:
            victims: UIDs of the pods that would be deleted, by node.
            now: current time.
            preemptor: UID of the pod that needs the capacity.
        """
        pod = self._table.pods.get(preemptor)
        gang = None if pod is None or pod.gang.complete else pod.gang
        if gang is not None and not (gang.is_large and gang.held.preempts_from <= now):
            return Preemption(Outcome.REFUSED, {}, self._schedule_and_flush(now))
        nodes = {node: list(uids) for node, uids in victims.items()}
        waiting = {node: [u for u in uids if self._unbound(u)] for node, uids in nodes.items()}
        free = [node for node, uids in nodes.items() if uids and len(waiting[node]) == len(uids)]
        clean = {node: uids for node, uids in nodes.items() if not waiting[node]}
        if clean and not free:
            if gang is not None:
                self._holding.preempts(gang)
            return Preemption(Outcome.ALLOWED, clean, self._schedule_and_flush(now))
        self._give_way([waiting[node] for node in sorted(free or nodes) if waiting[node]], now)
        return Preemption(Outcome.SPARED, {}, self._schedule_and_flush(now))

    def _give_way(self, choices: Sequence[Sequence[str]], now: float) -> None:
        """Refuse the gangs of the fewest waiting pods whose capacity is enough."""
        for uid in min(choices, key=len, default=()):
            victim = self._table.pods[uid]
            if victim.state is PodState.WAITING:
                self._holding.reject(victim.gang, Cause.PREEMPTED, "its capacity is needed", now)

    def tick(self, now: float) -> list[Action]:
        """Handle the passage of time.

        The order follows from what each step needs: batches that were begun come first, since
        nothing may refuse a gang whose binds are being executed. A gang that has become too small,
        or complete, is not late. Gangs give way when those that are late have given up their
        capacity.
        """
        self._holding.continue_batches()
        self._review_changed()  # what has ended drops its deadline
        for gang in self._holding.late(now):
            have, want = gang.running + gang.waiting, gang.info().min_available
            why = f"{gang.key}: {have} of {want} pods in time"
            self._holding.reject(gang, Cause.TIMEOUT, why, now)
        self._review_changed()
        self._contention.resolve(now)
        return self._schedule_and_flush(now)

    def finish(self, now: float) -> list[Action]:
        """Return all remaining actions; no further events may follow."""
        out = self._schedule_and_flush(now)
        while self._holding.is_unfinished:
            self._holding.continue_batches()
            out += self._schedule_and_flush(now)
        return out

    # -- queries ------------------------------------------------------------------------------

    def next_wake(self, now: float) -> float | None:
        """Return when :meth:`tick` is due; ``None`` if no timer is set."""
        times = self._holding.next_wake(now), self._contention.next_wake()
        return min((each for each in times if each is not None), default=None)

    # -- pods ---------------------------------------------------------------------------------

    def _update(self, known: TrackedPod, pod: SeenPod) -> None:
        self._table.update(known, pod)
        if pod.member.bound:
            # Another scheduler, or this one before a restart, has bound it.
            if known.state is PodState.WAITING:
                self._holding.refuse(known, "the pod has a node")
            self._table.move(known, PodState.BOUND)

    def _remove(self, pod: TrackedPod, now: float) -> None:
        if pod.state is PodState.WAITING:
            self._holding.refuse(pod, "the pod is gone")
        self._table.remove(pod)
        self._holding.pod_removed(pod.gang, now)

    def _move(self, uid: str, before: PodState, state: PodState) -> None:
        """Change the state of a pod that is in another one."""
        pod = self._table.pods.get(uid)
        if pod is not None and pod.state is before:
            self._table.move(pod, state)

    def _unbound(self, uid: str) -> bool:
        """Return whether a pod has only a reservation.

        This includes reservations given up just now: the scheduler processes refused binds one by
        one, and meanwhile treats the other pods as possible victims.
        """
        pod = self._table.pods.get(uid)
        if pod is None or pod.gang.held.releasing:
            return False
        return pod.state not in {PodState.BINDING, PodState.BOUND}

    # -- gangs --------------------------------------------------------------------------------

    def _obstacle(self, gang: TrackedGang, now: float) -> str:
        """Return why a bind of a pod of a gang is refused now; "" if it is not."""
        wanted, why = gang.info().min_available, ""
        backs_off = gang.held.not_before > now or self._contention.has_to_wait(gang)
        if backs_off and not gang.complete:
            why = "backs off"
        elif gang.held.failures and not gang.is_large and not gang.complete:
            why = f"has {gang.placeable} of {wanted} pods"
        elif self._holding.exceeds_limit(gang):
            why = f"needs {wanted} held binds, of {self._limits.held}"
        return why and f"{gang.key} {why}"

    def _schedule_and_flush(self, now: float) -> list[Action]:
        """Bring all parts up to date after an event, and return all actions."""
        self._review_changed()
        if self._contention.is_new:
            self._contention.resolve(now)
            self._review_changed()
        if self._paused:
            return []
        out = self._out.copy()
        self._out.clear()
        return out

    def _review_changed(self) -> None:
        changed = self._table.changed
        while changed:
            gang = next(iter(changed))
            if gang.kinds:
                # First: whether its held binds are executed decides whether it is complete.
                self._holding.review(gang)
                self._contention.review(gang)
            else:
                self._holding.forget(gang)
                self._contention.forget(gang)
                self._observer.gone(gang)
            self._table.reviewed(gang)
