"""Gang scheduler: a state machine without I/O that ungates gangs and holds, binds or refuses pods.

Inputs are events (pods seen and gone, bind requests, pods without a node, results, time); outputs
are lists of actions. The process around it holds the requests, writes to the API server, and calls
:meth:`GangScheduler.tick` by :meth:`next_wake`.

* **One gang settles at a time.** The scheduler queues pods by when it first saw them, so the order
  among gangs is decided here: the next gang is ungated when each ungated pod of the one before has
  found a node, was found unschedulable, or is gone.
* **Ungating cannot be undone**, so only a few incomplete gangs are ungated at a time. One that
  fails repeatedly gives its place to others, since it may never fit; the number of such gangs is
  limited too.
* **A gang is bound as a whole or not at all**: binds are held until there are enough of them, or
  their time is over. Then all are refused, and the scheduler gives up their reservations.
* **No gang gives way in vain**: a pod that finds no node costs its gang nothing at first, and other
  gangs only reservations with which they make no progress themselves, and only where that capacity
  would help.
* **Pods that are created without a gate wait for the others**: their binds are held while the gang
  grows, since they were not refused before.
* **A gang without capacity stays gated**, if the free capacity is known.
* **A gang that has waited for long gets the capacity that becomes free**: gangs behind it in the
  queue stay gated meanwhile. So none is overtaken forever by smaller ones.
* **Gangs that timed out take turns**: during the turn of one of them, the others' binds are
  refused. So one that fits makes progress even if unschedulable pods are never reported.

Costs per event do not grow with the size of the gang, except for events that release or refuse all
of it, nor with the number of waiting gangs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Final

import attrs

from jobsetpy.coscheduler.gang_scheduler.lanes import FRESH, STUCK, TRIED, Lane
from jobsetpy.coscheduler.gang_scheduler.state import (
    Action,
    Bind,
    Cause,
    Census,
    Evict,
    Lift,
    Limits,
    LookUp,
    NoObserver,
    Observer,
    PodState,
    Preemption,
    Refuse,
    Room,
    SeenPod,
    Standing,
    TrackedGang,
    TrackedPod,
)
from jobsetpy.coscheduler.gang_scheduler.timers import Timers
from jobsetpy.reconcilers.coscheduling import plugin
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

RECENT_S: Final = 1.0
"""Time in seconds after which capacity that a gang gave up no longer counts as its own."""

_QUESTIONS: Final = 100
"""Maximum number of gangs checked for capacity per pass; the rest follow after other work."""

_PORTION: Final = 500
"""Maximum number of pods of a gang ungated or released per pass."""

_REFUSED: Final = 100
"""Maximum number of held binds refused per pass; each is answered, and frees its capacity."""

_BUSY: Final = 100
"""Number of pending actions above which the next gang is chosen in a separate pass."""

_IN_VAIN: Final = 6
"""Maximum doublings of the time until the next reservation of a gang that cannot be placed."""

_CLOSER: Final = 8
"""Maximum number of gangs for which the capacity of another gang is checked."""


def _queue_key(group: TrackedGang) -> plugin.QueueKey:
    return plugin.queue_key(group.info())


class GangScheduler:
    """State of all gangs of a cluster. ``now`` is a monotonic time in seconds everywhere."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        observer: Observer | None = None,
        room: Room | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._room = room
        self._observer: Observer = observer or NoObserver()
        self._groups: dict[PodGroupKey, TrackedGang] = {}
        self._pods: dict[str, TrackedPod] = {}
        self._tickets: dict[int, TrackedPod] = {}
        self._lanes: dict[str, Lane] = {}
        self._active: dict[Lane, None] = {}
        self._holding: dict[PodGroupKey, TrackedGang] = {}
        self._ready: dict[PodGroupKey, TrackedGang] = {}
        self._flying: dict[PodGroupKey, TrackedGang] = {}
        self._refused: dict[PodGroupKey, TrackedGang] = {}
        self._turn: TrackedGang | None = None
        self._turn_ends = 0.0
        self._deadlines: Timers[TrackedGang] = Timers()
        self._gathering: Timers[TrackedGang] = Timers()
        self._retries: Timers[TrackedGang] = Timers()
        self._starving: Timers[TrackedGang] = Timers()
        self._due: Timers[TrackedGang] = Timers()
        self._longest_due: Timers[TrackedGang] = Timers()
        self._oldest_was_served = False
        self._lacking: Timers[TrackedGang] = Timers()
        self._partial: Timers[TrackedGang] = Timers()
        self._unfinished: dict[PodGroupKey, TrackedGang] = {}
        self._new: list[TrackedGang] = []
        self._needed = 0
        self._stages: Counter[str] = Counter()
        self._states: Counter[PodState] = Counter()
        self._reserved_for: TrackedGang | None = None
        self._reserved_until = 0.0
        self._offered = False
        self._paused = False
        self._out: list[Action] = []

    def pause(self) -> None:
        """Make no decisions while existing pods are listed.

        The order of gangs, and their sizes, are known only when all pods have been seen.
        """
        self._paused = True

    def resume(self, now: float) -> list[Action]:
        """Resume decisions: all existing pods have been seen."""
        self._paused = False
        return self._done(now)

    # -- events -------------------------------------------------------------------------------

    def seen(self, pod: SeenPod, now: float) -> list[Action]:
        """Handle a pod that is new or has changed."""
        uid = pod.member.uid
        known = self._pods.get(uid)
        if known is not None and (pod.ended or known.group.key != pod.group):
            self._remove(known)
            known = None
        if pod.ended:
            return self._done(now)
        kind = attrs.evolve(pod.member, uid="")
        if known is None:
            state = PodState.GATED if pod.gated else PodState.LIFTED
            if pod.member.bound:
                state = PodState.BOUND
            group = self._groups.setdefault(pod.group, TrackedGang(pod.group))
            known = self._pods[uid] = TrackedPod(uid, pod.name, group, kind, state)
            group.pods[state][uid] = known
            self._states[state] += 1
            group.add_kind(kind)
            group.gathers_until = now + self._limits.gather_s
            # Pods from before the start of this process may have been ungated by its predecessor.
            group.lifted |= self._paused and state is PodState.LIFTED
            if group.gathering:
                self._gathering.set(group, group.gathers_until)
        else:
            if known.kind != kind:
                known.group.add_kind(kind)
                known.group.remove_kind(known.kind)
                known.kind = kind
            if pod.member.bound:
                if known.state is PodState.WAITING:
                    self._refuse(known, "the pod has a node")
                self._move(known, PodState.BOUND)
            elif known.state is PodState.GATED and not pod.gated:
                self._move(known, PodState.LIFTED)
        if pod.bound_at is not None:
            known.group.was_bound(pod.bound_at)
        self._review(known.group)
        return self._done(now)

    def gone(self, uid: str, now: float) -> list[Action]:
        """Handle the deletion of a pod."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._remove(pod)
        return self._done(now)

    def lift_failed(self, uid: str, now: float) -> list[Action]:
        """Handle a failed removal of a gate; it will be tried again."""
        pod = self._pods.get(uid)
        if pod is not None and pod.state is PodState.LIFTED:
            self._move(pod, PodState.GATED)
            self._review(pod.group)
        return self._done(now)

    def unschedulable(self, uid: str, now: float) -> list[Action]:
        """Handle a pod for which the scheduler has found no node.

        Its gang keeps its reservations: capacity may become free. But of two gangs that cannot be
        complete for lack of capacity, the younger one gives way if its capacity helps the older: so
        they do not wait for each other until they time out.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.state not in {PodState.LIFTED, PodState.UNSCHEDULABLE}:
            return self._done(now)
        group = pod.group
        self._move(pod, PodState.UNSCHEDULABLE)
        self._may_fit(group, whatever=True)
        if group.lacks_a_node and group not in self._lacking:
            patience_s = 0.0 if group.failures else self._limits.patience_s
            self._lacking.set(group, max(now, group.not_before) + patience_s)
            self._untangle(now)
            self._give_up_lacking(now)
        self._review(group)
        return self._done(now)

    def promised(self, uid: str, now: float) -> list[Action]:
        """Handle a pod that gets the capacity of pods that are deleted for it.

        The scheduler tries it again when these are gone. But it can miss that, if they were deleted
        for another pod at the same time; then only the gang's timeout makes it try again. So that
        is shorter while one of its pods waits for this.
        """
        pod = self._pods.get(uid)
        if pod is not None and pod.state is PodState.LIFTED:
            group = pod.group
            group.promised.add(uid)
            if group.deadline is not None:
                self._set_deadline(group, min(group.deadline, now + self._limits.promise_s))
        return self._done(now)

    def bind_asked(self, ticket: int, uid: str, now: float) -> list[Action]:
        """Handle a bind request of the scheduler, which has found a node for a pod.

        Args:
            ticket: identifier of the request; never used twice.
            uid: UID of the pod.
            now: current time.
        """
        pod = self._pods.get(uid)
        if pod is None:
            return [*self._done(now), LookUp(ticket, uid)]
        group = pod.group
        if pod.state is PodState.WAITING:
            self._refuse(pod, "asked for again")  # a new scheduler, or the old one gave up
        if pod.state in {PodState.GATED, PodState.BINDING, PodState.BOUND}:
            self._out.append(Refuse(ticket, uid, f"the pod is {pod.state.value}"))
            return self._done(now)
        info = group.info()
        group.unsettled.discard(uid)
        obstacle = self._obstacle(group, now)
        if obstacle:
            self._move(pod, PodState.LIFTED)
            self._out.append(Refuse(ticket, uid, f"{group.key} {obstacle}"))
        else:
            permitted = plugin.permit(info, running=group.running, waiting=group.waiting)
            pod.ticket = ticket
            self._tickets[ticket] = pod
            self._move(pod, PodState.WAITING)
            if not group.begun:
                group.begun = True
                self._observer.lifted(info, 0)
            # A permitted one is released by the review below.
            if not permitted and group.deadline is None:
                longest_s = self._limits.promise_s if group.promised else float("inf")
                self._set_deadline(group, now + min(self._permit_timeout(info), longest_s))
        self._review(group)
        return self._done(now)

    def _obstacle(self, group: TrackedGang, now: float) -> str:
        """Return why a bind of a pod of a gang is refused now; "" if it is not."""
        wanted = group.info().min_available
        if group.not_before > now and not group.complete:
            return "backs off"
        if not self._large_soon(group, now) and not group.complete:
            return f"has {group.placeable} of {wanted} pods"
        if self._too_large(group):
            return f"needs {wanted} held binds, of {self._limits.held}"
        if self._has_to_wait(group):
            return "waits for its turn"
        if group.failures and self._leaves_room(group):
            return "leaves room for another group"
        return ""

    def bind_cancelled(self, ticket: int, now: float) -> list[Action]:
        """Handle the loss of a bind request's client: its reservation is gone as well."""
        pod = self._tickets.pop(ticket, None)
        if pod is not None and pod.state is PodState.WAITING:
            self._move(pod, PodState.LIFTED)
            self._review(pod.group)
        return self._done(now)

    def bind_done(self, uid: str, *, ok: bool, now: float) -> list[Action]:
        """Handle the result of a :class:`Bind`; a failed one is requested again and not held."""
        pod = self._pods.get(uid)
        if pod is not None and pod.state is PodState.BINDING:
            self._move(pod, PodState.BOUND if ok else PodState.LIFTED)
            self._review(pod.group)
        return self._done(now)

    def room_grew(self, now: float, *, freed: bool = True) -> list[Action]:
        """Handle a possible increase of free capacity.

        Args:
            now: current time.
            freed: pods or nodes have changed; not only reservations were given up.

        The back-off of a gang ends if it may fit now, but not because of capacity that it has just
        given up itself.
        """
        for group in self._refused.values():
            own = not freed and group.gave_up_at > now - RECENT_S
            if group.not_before > now and not own and self._may_fit(group):
                group.not_before = now
        self._reserve(now)
        self._wake_all()
        return self._done(now)

    def preempt(
        self, victims: Mapping[str, Iterable[str]], now: float, *, preemptor: str = ""
    ) -> Preemption | None:
        """Protect pods that only wait from being deleted for a pod of higher priority.

        Their gangs are refused instead, which frees the capacity as well. If some nodes have no
        waiting pods among their victims, and no node has only such, the scheduler chooses among
        these nodes. No pod is deleted for a gang that is too small, or that cannot be complete even
        then.

        Args:
            victims: UIDs of the pods that would be deleted, by node.
            now: current time.
            preemptor: UID of the pod that needs the capacity.

        Returns:
            The answer; ``None`` if the free capacity is not known yet.
        """
        pod = self._pods.get(preemptor)
        if pod is not None and not pod.group.complete:
            fits = pod.group.is_large and self._may_fit(pod.group)
            if fits is None:
                return None
            if not fits:
                return Preemption("refused", {}, self._done(now))
        nodes = {node: list(uids) for node, uids in victims.items()}
        waiting = {node: [u for u in uids if self._unbound(u)] for node, uids in nodes.items()}
        free = [node for node, uids in nodes.items() if uids and len(waiting[node]) == len(uids)]
        clean = {node: uids for node, uids in nodes.items() if not waiting[node]}
        if clean and not free:
            return Preemption("allowed", clean, self._done(now))
        candidates = free or [node for node in nodes if waiting[node]]
        if candidates:
            chosen = min(candidates, key=lambda node: (len(waiting[node]), node))
            for uid in waiting[chosen]:
                group = self._pods[uid].group
                if self._pods[uid].state is PodState.WAITING:
                    self._reject(group, Cause.PREEMPTED, "its room is needed", now)
        return Preemption("spared", {}, self._done(now))

    def tick(self, now: float) -> list[Action]:
        """Handle the passage of time."""
        self._go_on()
        while (group := self._gathering.pop(now)) is not None:
            if group.gathering:
                group.gathering = False
                self._review(group)
        late = []
        while (group := self._deadlines.pop(now)) is not None:
            late.append(group)
        turn = self._turn
        if turn is not None and self._turn_ends <= now and turn not in late:
            late.append(turn)
        for group in late:
            have, want = group.running + group.waiting, group.info().min_available
            why = f"{group.key}: {have} of {want} pods in time"
            group.timeouts += 1
            self._reject(group, Cause.TIMEOUT, why, now)
        if late and self._turn is None:
            self._give_turn(late, now)
        self._give_up_lacking(now)
        self._end_partial(now)
        self._reserve(now)
        while self._retries.pop(now) is not None:
            pass
        self._wake_all()
        return self._done(now)

    def next_wake(self, now: float) -> float | None:
        """Return when :meth:`tick` is due; ``None`` if no timer is set. O(log gangs)."""
        moments = [
            self._deadlines.first(),
            self._gathering.first(),
            self._lacking.first(),
            self._partial.first(),
        ]
        if self._turn is not None:
            moments.append(self._turn_ends)
        if self._reserved_for is not None:
            moments.append(self._reserved_until)
        else:
            moments.append(self._starving.first())
        if self._unfinished:
            moments.append(now)
        moments.append(self._retries.first())
        for lane in self._active:
            settling = lane.settling
            if settling is None or not settling.unsettled:
                moments.append(now)
            else:
                rest = settling.key in self._ready and settling.not_before <= now
                moments.append(now if rest else settling.settle_by)
        return min((moment for moment in moments if moment is not None), default=None)

    def finish(self, now: float) -> list[Action]:
        """Return all remaining actions; no further events may follow."""
        out = self._done(now)
        while self._unfinished:
            self._go_on()
            out += self._done(now)
        return out

    def standing(self, key: PodGroupKey) -> Standing | None:
        """Return the state of a gang; ``None`` if it has no pods."""
        group = self._groups.get(key)
        if group is None:
            return None
        return Standing(
            group.info(),
            group.size,
            group.placeable,
            group.waiting,
            group.running,
            group.in_flight,
            group.failures,
        )

    def census(self) -> Census:
        """Return the numbers of gangs and pods; O(1)."""
        pods = {state.value: count for state, count in (+self._states).items()}
        return Census(+self._stages, pods)

    def lacks_room(self, key: PodGroupKey) -> bool:
        """Return whether a gang stays gated because it certainly does not fit."""
        group = self._groups.get(key)
        waits = group is not None and key in self._ready and not group.complete
        return waits and group is not None and self._may_fit(group) is False

    def queue_is_empty(self) -> bool:
        """Return whether no gang has to wait for its turn or for capacity; O(incomplete gangs).

        Gangs that are being placed and were not refused before do not count as waiting.
        """
        if self._turn is not None or self._reserved_for is not None:
            return False
        if any(not group.complete for group in self._ready.values()):
            return False
        return not any(
            group.failures or group.pods[PodState.UNSCHEDULABLE] for group in self._flying.values()
        )

    def disagreements(self, key: PodGroupKey) -> list[str]:
        """Return the differences between pods of a gang that should be equal, for users."""
        group = self._groups.get(key)
        return [] if group is None else group.disagreements()

    def first_member(self, key: PodGroupKey) -> str:
        """Return the UID of a gang's first pod by name; "" if it has none. O(its pods)."""
        group = self._groups.get(key)
        pods = chain.from_iterable(each.values() for each in group.pods.values()) if group else ()
        first = min(pods, key=attrgetter("name"), default=None)
        return "" if first is None else first.uid

    def states(self) -> dict[str, PodState]:
        """Return the state of every pod, by UID."""
        return {uid: pod.state for uid, pod in self._pods.items()}

    # -- groups -------------------------------------------------------------------------------

    def _unbound(self, uid: str) -> bool:
        """Return whether a pod has only a reservation.

        This includes reservations given up just now: the scheduler processes refused binds one by
        one, and meanwhile treats the other pods as possible victims.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.group.releasing:
            return False
        return pod.state not in {PodState.BINDING, PodState.BOUND}

    def _move(self, pod: TrackedPod, state: PodState) -> None:
        group = pod.group
        if pod.state is not state:
            del group.pods[pod.state][pod.uid]
            group.pods[state][pod.uid] = pod
            self._states[pod.state] -= 1
            self._states[state] += 1
            pod.state = state
        if state is not PodState.LIFTED:
            group.unsettled.discard(pod.uid)
            group.promised.discard(pod.uid)

    def _remove(self, pod: TrackedPod) -> None:
        group = pod.group
        if pod.state is PodState.WAITING:
            self._refuse(pod, "the pod is gone")
        del self._pods[pod.uid]
        del group.pods[pod.state][pod.uid]
        self._states[pod.state] -= 1
        group.unsettled.discard(pod.uid)
        group.promised.discard(pod.uid)
        group.remove_kind(pod.kind)
        group.gathering = False
        if group.kinds:
            self._review(group)
            return
        if self._reserved_for is group:
            self._reserved_for = None
        for groups in (
            self._groups,
            self._holding,
            self._ready,
            self._flying,
            self._refused,
            self._unfinished,
        ):
            groups.pop(group.key, None)
        for timers in (
            self._deadlines,
            self._gathering,
            self._retries,
            self._starving,
            self._due,
            self._longest_due,
            self._lacking,
            self._partial,
        ):
            timers.drop(group)
        self._needed -= group.needed
        self._leave_lane(group)
        self._count(group, "")
        if self._turn is group:
            self._turn = None
        self._observer.forgotten(group.key)

    def _refuse(self, pod: TrackedPod, reason: str) -> None:
        self._tickets.pop(pod.ticket, None)
        self._out.append(Refuse(pod.ticket, pod.uid, reason))
        self._move(pod, PodState.LIFTED)

    def _permit_timeout(self, info: plugin.PodGroupInfo) -> float:
        limits = self._limits
        return plugin.permit_timeout(
            info,
            shortest_s=limits.permit_s,
            per_pod_s=limits.permit_per_pod_s,
            longest_s=limits.longest_permit_s,
        )

    def _reject(self, group: TrackedGang, cause: Cause, reason: str, now: float) -> None:
        """Refuse held binds; retries are refused for a while, longer each time."""
        limits = self._limits
        waiting = list(group.pods[PodState.WAITING])
        refused = plugin.unreserve(group.info(), running=group.running, waiting=waiting)
        self._observer.rejected(group.info(), cause, reason, len(refused))
        if refused:
            group.gave_up_at = now
            group.refusing = reason
            self._refuse_some(group)
        # Unschedulable pods may fit now, and will be tried again.
        for pod in list(group.pods[PodState.UNSCHEDULABLE].values()):
            self._move(pod, PodState.LIFTED)
        pause_s = min(limits.first_backoff_s * 2**group.failures, limits.longest_backoff_s)
        group.not_before = now + pause_s
        group.failures = min(group.failures + 1, 30)
        if self._turn is group:
            self._turn = None
        self._set_deadline(group, None)
        self._review(group)
        self._wake(group)  # another gang may take its place now

    def _set_deadline(self, group: TrackedGang, at: float | None) -> None:
        group.deadline = at
        if at is None:
            self._deadlines.drop(group)
        else:
            self._deadlines.set(group, at)

    def _release(self, group: TrackedGang) -> None:
        """Execute held binds, some at a time: from now on none is refused."""
        waiting = group.pods[PodState.WAITING]
        if not group.releasing:
            self._observer.released(group.info(), len(waiting))
        group.released, group.refusing = True, ""
        for pod in list(islice(waiting.values(), max(0, _PORTION - len(self._out)))):
            self._tickets.pop(pod.ticket, None)
            self._move(pod, PodState.BINDING)
            self._out.append(Bind(pod.ticket, pod.uid))
        group.releasing = bool(waiting)
        self._put(self._unfinished, group, wanted=group.releasing)

    def _refuse_some(self, group: TrackedGang) -> None:
        waiting = group.pods[PodState.WAITING]
        for pod in list(islice(waiting.values(), max(0, _REFUSED - len(self._out)))):
            self._refuse(pod, group.refusing)
        if not waiting:
            group.refusing = ""
        self._put(self._unfinished, group, wanted=bool(waiting))

    def _go_on(self) -> None:
        """Continue releases and refusals of gangs, up to a total number of pods per pass."""
        for group in list(self._unfinished.values()):
            if group.refusing:
                self._refuse_some(group)
            self._review(group)
            if len(self._out) >= _REFUSED:
                return

    def _review(self, group: TrackedGang) -> None:
        """Update everything that depends on the counters of a gang with pods."""
        info = group.info()
        large = group.is_large
        if group.gathering and large:
            group.gathering = False
        if not group.gathering or not group.waiting:
            self._gathering.drop(group)
        if group.waiting:
            if group.releasing or group.running + group.waiting >= info.min_available:
                self._release(group)  # the minimum was lowered, or a bind was seen
            elif group.refusing:
                pass
            elif not large and not group.gathering:
                why = f"{group.key} has {group.placeable} of {info.min_available} pods"
                self._observer.rejected(info, Cause.TOO_SMALL, why, group.waiting)
                group.refusing = why
                self._refuse_some(group)
        else:
            group.releasing, group.refusing = False, ""
            self._unfinished.pop(group.key, None)
        complete = group.complete
        if complete:
            group.failures, group.timeouts, group.not_before, group.in_vain = 0, 0, 0.0, 0
            group.begun = group.lifted = False
        if self._turn is group and not group.in_flight:
            self._turn = None
        if group.deadline is not None and (not group.waiting or complete):
            self._set_deadline(group, None)
        if group in self._lacking and not group.lacks_a_node:
            self._lacking.drop(group)
        self._put(self._holding, group, wanted=group.waiting > 0)
        in_flight = group.in_flight
        if group.key in self._flying and not in_flight:
            self._wake(group)
        self._put(self._flying, group, wanted=in_flight)
        self._put(self._refused, group, wanted=in_flight and group.failures > 0)
        ready = bool(group.pods[PodState.GATED]) and (large or complete)
        self._put(self._ready, group, wanted=ready)
        self._put_in_lane(group, ready=ready, in_flight=in_flight)
        bound = len(group.pods[PodState.BOUND])
        group.started |= bound >= info.min_available
        if self._waits(group) or self._in_part(group):
            self._new.append(group)
        if not self._waits(group):
            for timers in (self._starving, self._due, self._longest_due):
                timers.drop(group)
            group.reservations, group.outrun = 0, False
        if self._reserved_for is group and not self._waits(group):
            self._reserved_for = None
            self._wake_all()
        self._count(group, group.stage)

    def _large_soon(self, group: TrackedGang, now: float) -> bool:
        """Return whether a gang has enough pods, or may have once new pods are seen.

        That holds as long as new ones appear. A gang that was refused before has had that time.
        """
        if group.is_large:
            return True
        group.gathering = group.gathers_until > now and not group.failures
        if group.gathering:
            self._gathering.set(group, group.gathers_until)
        return group.gathering

    def _put_in_lane(self, group: TrackedGang, *, ready: bool, in_flight: bool) -> None:
        """Keep the lane of a gang up to date: its queue, and the places that are taken."""
        info = group.info()
        if group.lane is None or group.lane.scheduler != info.scheduler:
            self._leave_lane(group)
            group.lane = self._lanes.setdefault(info.scheduler, Lane(info.scheduler))
            group.lane.members += 1
        lane = group.lane
        if not ready:
            self._retries.drop(group)
        elif group.not_before != group.retry_at:
            self._retries.set(group, group.not_before)
        group.retry_at = group.not_before if ready else 0.0
        lane.enqueue(group, _queue_key(group) if ready else None)
        self._put(lane.begun, group, wanted=ready and in_flight and group.lifted)
        self._put(lane.whole, group, wanted=ready and group.complete)
        place = ""
        if in_flight:
            stuck = group.failures >= self._limits.stuck_after
            place = TRIED if not info.needs_room else STUCK if stuck else FRESH
        lane.count_place(group, place)
        needed = 0
        if in_flight and not self._too_large(group):
            needed = max(group.waiting, info.min_available - group.running)
        self._needed += needed - group.needed
        group.needed = needed
        if ready:
            self._wake(group)

    def _leave_lane(self, group: TrackedGang) -> None:
        lane, group.lane = group.lane, None
        if lane is None:
            return
        lane.remove(group)
        if lane.members:
            self._wake_lane(lane)
        else:
            del self._lanes[lane.scheduler]
            self._active.pop(lane, None)

    def _wake(self, group: TrackedGang) -> None:
        """Mark the lane of a gang for the next pass."""
        if group.lane is not None:
            self._wake_lane(group.lane)

    def _wake_lane(self, lane: Lane) -> None:
        lane.may_ungate = True
        self._active[lane] = None

    def _wake_all(self) -> None:
        for lane in self._lanes.values():
            if lane.queue and lane.resume is None:
                self._wake_lane(lane)

    def _count(self, group: TrackedGang, stage: str) -> None:
        if group.counted_as != stage:
            for name, change in ((group.counted_as, -1), (stage, 1)):
                if name:
                    self._stages[name] += change
            group.counted_as = stage
            self._observer.staged(group.key, stage)

    # -- giving way ---------------------------------------------------------------------------

    def _untangle(self, now: float) -> None:
        """Let the youngest gang with missing nodes and with reservations give way, if it helps."""
        lacking = sorted((g for g in self._flying.values() if g.lacks_a_node), key=_queue_key)
        for at, first in enumerate(lacking):
            if first.not_before > now:
                continue
            younger = [
                g for g in lacking[at + 1 :] if g.waiting and self._may_share_nodes(first, g)
            ]
            if younger and self._helps(first, younger):
                why = f"{first.key} found no node for one of its pods"
                self._reject(younger[-1], Cause.YIELDED, why, now)
                return

    def _give_up_lacking(self, now: float) -> None:
        """Let gangs that miss nodes for long give up their reservations, if others wait for them.

        A gang without reservations has failed, too: it gives up its place among those being tried.
        """
        due = []
        while (group := self._lacking.pop(now)) is not None:
            due.append(group)
        if due:
            self._untangle(now)
        for group in due:
            if not group.lacks_a_node:
                continue
            if group.waiting and not self._is_in_the_way(group):
                self._lacking.set(group, now + max(1.0, self._limits.patience_s))
                continue
            why = f"{group.key} found no node for one of its pods"
            self._reject(group, Cause.UNSCHEDULABLE, why, now)

    def _is_in_the_way(self, group: TrackedGang) -> bool:
        """Return whether another gang waits for capacity and this one's reservations would help."""
        refused = (o for o in self._flying.values() if o.lacks_a_node or o.failures)
        others = (
            other
            for other in chain(refused, self._first_in_queues(group))
            if other is not group
            and not other.complete
            and self._may_share_nodes(other, group)
            and self._may_ever_fit(other) is not False
        )
        return any(self._helps(other, [group]) for other in islice(others, _CLOSER))

    def _first_in_queues(self, group: TrackedGang) -> Iterator[TrackedGang]:
        """Return gangs at the front of the queues, those of the gang's own lane first."""
        own = group.lane
        lanes = chain((own,), (lane for lane in self._lanes.values() if lane is not own))
        queued = chain.from_iterable(islice(lane.queue, _QUESTIONS) for lane in lanes if lane)
        return (each for _, each in islice(queued, _QUESTIONS))

    def _helps(self, group: TrackedGang, others: list[TrackedGang]) -> bool:
        """Return whether a gang may fit only if others gave up their reservations."""
        if self._room is None:
            return True
        if not group.lacks_a_node and self._may_fit(group):
            return False
        keys = [other.key for other in others]
        return self._room.fits_without(group.key, self._missing(group), keys) is not False

    def _may_share_nodes(self, group: TrackedGang, other: TrackedGang) -> bool:
        return self._room is None or self._room.compete(group.key, other.key)

    # -- bound in part ------------------------------------------------------------------------

    @staticmethod
    def _in_part(group: TrackedGang) -> bool:
        pods = group.pods
        on_the_way = pods[PodState.BINDING] or group.releasing
        return bool(pods[PodState.BOUND]) and not group.started and not on_the_way

    def _end_partial(self, now: float) -> None:
        """Handle gangs that are only partly bound and have not changed for long."""
        limits = self._limits
        while (group := self._partial.pop(now)) is not None:
            bound = group.pods[PodState.BOUND]
            if not self._in_part(group):
                continue
            self._partial.set(group, now + limits.partial_s)
            progress = len(bound) != group.bound_before
            group.bound_before = len(bound)
            # Pods that were created after others had started replace some that were lost.
            left = (
                pod
                for state in (PodState.LIFTED, PodState.UNSCHEDULABLE, PodState.WAITING)
                for pod in group.pods[state].values()
            )
            since = group.bound_at
            left_over = group.released or (
                since is not None and any(pod.kind.created <= since for pod in left)
            )
            if progress or not left_over:
                continue
            self._observer.bound_in_part(group.info(), len(bound), deleted=limits.delete_partial)
            if limits.delete_partial:
                self._out += [Evict(group.key, pod.name, pod.uid) for pod in bound.values()]

    # -- turns --------------------------------------------------------------------------------

    def _give_turn(self, late: list[TrackedGang], now: float) -> None:
        """Give one gang a turn to be tried alone: the waiting one with the fewest failures.

        The others that have failed in this way give up their reservations. A turn lasts until each
        of the gang's pods can have come back from the scheduler's back-off.
        """
        waiting = [group for group in self._flying.values() if group not in late] or [
            group for group in late if group.in_flight
        ]
        if len(self._flying) < 2 or not waiting:
            return
        turn = min(waiting, key=lambda group: (group.timeouts, _queue_key(group)))
        self._turn, turn.not_before = turn, now
        self._turn_ends = now + self._round_s(turn)
        for group in [g for g in self._holding.values() if self._has_to_wait(g)]:
            self._reject(group, Cause.YIELDED, f"it is the turn of {turn.key}", now)

    def _has_to_wait(self, group: TrackedGang) -> bool:
        turn = self._turn
        if turn is None or turn is group or not group.timeouts or group.complete:
            return False
        return self._may_share_nodes(turn, group)

    # -- reservations -------------------------------------------------------------------------

    def _waits(self, group: TrackedGang) -> bool:
        return not group.complete and (group.key in self._ready or group.in_flight)

    def _watch_new(self, now: float) -> None:
        """Set timers for reservations of gangs that have begun to wait."""
        limits = self._limits
        for group in self._new:
            if not group.kinds:
                continue
            reserves = limits.reserve_after_s and self._room is not None and self._waits(group)
            due = group in self._starving or group in self._due
            if reserves and not due and group is not self._reserved_for:
                self._starves(group, now + limits.reserve_after_s)
            if limits.partial_s and self._in_part(group) and group not in self._partial:
                group.bound_before = len(group.pods[PodState.BOUND])
                self._partial.set(group, now + limits.partial_s)
        self._new.clear()

    def _starves(self, group: TrackedGang, at: float) -> None:
        self._starving.set(group, at, _queue_key(group))

    def _reserve(self, now: float) -> None:
        """Reserve the capacity that becomes free for one gang that has waited for long.

        Only a gang that others keep waiting gets a reservation: it fits the empty cluster, and
        capacity was missing when it was its turn, or when the scheduler found no node. It may be
        free by now; without a reservation others would take it again. A pod without a node in spite
        of capacity has another reason, and blocks no one.

        Gangs are served in turns: the first in the queue, then the one that has been due for
        longest, so that neither many others nor one that waits for long-running pods keep a gang
        from its reservation. Gangs that were offered capacity in vain several times come last.

        A reservation ends when the gang was tried with capacity for as long as each of its pods
        needs to return from the scheduler's back-off, or after as long as the gang had waited; then
        other gangs proceed for the same time, and the next reservation lasts twice as long: a gang
        that can be placed is started, even if the pods that use the capacity run for long. One that
        was offered capacity in vain waits twice as long each time.
        """
        self._end_reservation(now)
        while (due_at := self._starving.first()) is not None:
            group = self._starving.pop(now)
            if group is None:
                break
            last, key = group.in_vain >= self._limits.stuck_after, _queue_key(group)
            self._due.set(group, (last, key))
            self._longest_due.set(group, (last, due_at, key))
        if self._reserved_for is not None or self._room is None:
            return
        for _ in range(_QUESTIONS):
            group = (self._longest_due if self._oldest_was_served else self._due).peek()
            needs = None if group is None else self._needs_reservation(group, now)
            if group is None or needs is None:
                return
            self._due.drop(group)
            self._longest_due.drop(group)
            if needs:
                self._oldest_was_served = not self._oldest_was_served
                group.reservations += 1
                self._reserved_for, self._offered = group, False
                self._reserved_until = now + self._reservation_s(group)
                return

    def _needs_reservation(self, group: TrackedGang, now: float) -> bool | None:
        """Return whether a gang waits for capacity that others take; ``None`` if unknown yet."""
        ever = self._may_ever_fit(group)
        fits = self._may_fit(group, whatever=True) if ever else False
        if ever is None or fits is None:
            return None
        if not ever:
            self._starves(group, now + self._limits.reserve_after_s)
        elif not group.outrun:
            self._starves(group, now + self._round_s(group))
        return ever and group.outrun

    def _end_reservation(self, now: float) -> None:
        """End the reservation when its time is over, or when it was used."""
        group = self._reserved_for
        if group is None or self._room is None:
            return
        due = self._reserved_until <= now
        if self._offered and not due:
            return
        offered = group.in_flight and self._may_fit(group, whatever=True) is True
        if offered and not self._offered:
            self._offered = True
            self._reserved_until = min(self._reserved_until, now + self._round_s(group))
        if not due:
            return
        if offered:
            group.in_vain, group.reservations = group.in_vain + 1, 0
        group.outrun = False
        patience_s = self._limits.reserve_after_s * 2 ** min(group.in_vain, _IN_VAIN)
        self._starves(group, now + max(patience_s, self._reservation_s(group)))
        self._reserved_for = None
        self._wake_all()

    def _round_s(self, group: TrackedGang) -> float:
        """Return the time in which all pods of a gang can return from the scheduler's back-off."""
        limits = self._limits
        return limits.longest_backoff_s + limits.settle_s + limits.settle_per_pod_s * group.size

    def _reservation_s(self, group: TrackedGang) -> float:
        doubled = 0 if group.in_vain >= self._limits.stuck_after else group.reservations - 1
        return float(self._limits.reserve_after_s * 2 ** min(max(doubled, 0), 20))

    def _leaves_room(self, group: TrackedGang) -> bool:
        """Return whether a gang must leave its capacity to the reservation of an earlier one."""
        first = self._reserved_for
        if first is None or self._room is None or group.complete:
            return False
        ahead = plugin.less(first.info(), group.info())
        return ahead and self._room.compete(first.key, group.key)

    # -- capacity -----------------------------------------------------------------------------

    def _may_fit(self, group: TrackedGang, *, whatever: bool = False) -> bool | None:
        """Return whether a gang may fit; ``None`` if that is not known yet.

        Args:
            group: gang to check.
            whatever: check also a gang that is to be tried without capacity.
        """
        if self._room is None or not (whatever or group.info().needs_room):
            return True
        fits = self._room.fits(group.key, self._missing(group))
        group.outrun |= fits is False
        return fits

    def _may_ever_fit(self, group: TrackedGang) -> bool | None:
        """Return :meth:`_may_fit` for a cluster without other pods."""
        if self._room is None:
            return True
        return self._room.ever_fits(group.key, self._missing(group))

    def _too_large(self, group: TrackedGang) -> bool:
        """Return whether a gang needs more held binds than are possible."""
        held = self._limits.held
        if not held or group.complete:
            return False
        return group.info().min_available - group.running > held

    @staticmethod
    def _missing(group: TrackedGang) -> int:
        return group.info().min_available - group.running - group.waiting

    @staticmethod
    def _put(groups: dict[PodGroupKey, TrackedGang], group: TrackedGang, *, wanted: bool) -> None:
        if wanted:
            groups[group.key] = group
        else:
            groups.pop(group.key, None)

    # -- ungating -----------------------------------------------------------------------------

    def _done(self, now: float) -> list[Action]:
        self._watch_new(now)
        if self._paused:
            return []
        for lane in list(self._active):
            if len(self._out) > _BUSY:
                break  # enough actions: the next wake-up is due immediately
            self._advance(lane, now)
        out, self._out = self._out, []
        return out

    def _advance(self, lane: Lane, now: float) -> None:
        """Ungate the next pods of a lane, if the previous gang has settled."""
        settling = lane.settling
        if settling is not None and (not settling.unsettled or settling.settle_by <= now):
            settling.unsettled.clear()
            lane.settling, lane.may_ungate = None, True
        if lane.settling is not None:
            # New pods of the settling gang are ungated with it.
            if lane.settling.key in self._ready and lane.settling.not_before <= now:
                self._lift(lane, lane.settling, now)
        else:
            if lane.resume is None:
                lane.may_ungate = False
            group = self._choose(lane, now)
            if group is not None:
                self._lift(lane, group, now)
        if not lane.is_active:
            self._active.pop(lane, None)

    def _choose(self, lane: Lane, now: float) -> TrackedGang | None:
        """Return the next gang to ungate: a partly ungated one, or the first that may fit.

        After a number of capacity checks the next call continues where this one stopped.
        """
        # A partly ungated gang is finished first: its pods are in the scheduler's queue.
        begun = [group for group in lane.begun.values() if group.not_before <= now]
        if begun:
            return min(begun, key=_queue_key)
        limits = self._limits
        held = (limits.held or float("inf")) - self._needed
        if not lane.has_place(limits.in_flight, limits.stuck):
            lane.resume = None
            return self._choose_without_place(lane, now)
        at = 0
        if lane.resume is not None:
            at = bisect_left(lane.queue, lane.resume, key=lambda each: each[0])
            lane.resume = None
        for asked in range(at, len(lane.queue)):
            key, group = lane.queue[asked]
            if asked - at >= _QUESTIONS:
                lane.resume = key
                return None
            if group.not_before > now:
                continue
            if group.complete:
                return group
            if self._refuse_too_large(group):
                continue
            if self._missing(group) > held:
                group.outrun = True
                continue
            if self._leaves_room(group):
                continue
            if lane.places[TRIED] >= limits.stuck and not group.info().needs_room:
                continue
            fits = self._may_fit(group)
            if fits is not False:
                return group if fits else None  # the order is kept until the answer is known
        return None

    def _choose_without_place(self, lane: Lane, now: float) -> TrackedGang | None:
        """Return the next gang to ungate while the places for incomplete gangs are taken."""
        whole = [group for group in lane.whole.values() if group.not_before <= now]
        if whole:
            return min(whole, key=_queue_key)
        first = self._reserved_for
        if first is None or first.lane is not lane:
            return None
        if first.key not in self._ready or first.not_before > now:
            return None
        return first if self._may_fit(first) else None

    def _refuse_too_large(self, group: TrackedGang) -> bool:
        """Return whether a gang can never start; it is reported once."""
        too_large = self._too_large(group)
        if too_large and not group.too_large:
            self._observer.too_large(group.info(), self._limits.held)
        group.too_large = too_large
        return too_large

    def _lift(self, lane: Lane, group: TrackedGang, now: float) -> None:
        limits = self._limits
        gated = group.pods[PodState.GATED]
        if lane.settling is not group:
            self._observer.lifted(group.info(), len(gated))
        group.begun = group.lifted = True
        for pod in list(islice(gated.values(), _PORTION)):
            self._move(pod, PodState.LIFTED)
            if not pod.kind.blocked:
                group.unsettled.add(pod.uid)
            self._out.append(Lift(group.key, pod.name, pod.uid))
        lane.settling = group
        self._active[lane] = None
        group.settle_by = now + limits.settle_s + limits.settle_per_pod_s * len(group.unsettled)
        self._review(group)
