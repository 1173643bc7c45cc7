"""Ungating: the order in which gates of gangs are removed.

* **One gang settles at a time.** The scheduler queues pods by when it first saw them, so the order
  among gangs is decided here: the next gang is ungated when each ungated pod of the one before has
  found a node, was found unschedulable, or is gone.
* **Ungating cannot be undone**, so only a few incomplete gangs are ungated at a time. One that
  fails repeatedly gives its place to others, since it may never fit; the number of such gangs is
  limited too.
* **A gang without capacity stays gated**, if the free capacity is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

import attrs

from jobsetpy.coscheduler.gang_scheduler.fit import Fit
from jobsetpy.coscheduler.gang_scheduler.gang import Observer, TrackedGang
from jobsetpy.coscheduler.gang_scheduler.holding import Holding
from jobsetpy.coscheduler.gang_scheduler.order.lanes import FRESH, STUCK, TRIED, Lane
from jobsetpy.coscheduler.gang_scheduler.order.ranking import Ranking
from jobsetpy.coscheduler.gang_scheduler.order.reservations import Reservations
from jobsetpy.coscheduler.gang_scheduler.order.timers import Timers, earliest
from jobsetpy.coscheduler.gang_scheduler.state import Action, Limits, PodState, Progress, Ungate
from jobsetpy.coscheduler.gang_scheduler.table import GangTable

_QUESTIONS: Final = 100
"""Maximum number of gangs checked for capacity per pass; the rest follow after other work."""

_SCANS: Final = 1
"""Number of scans of all nodes, of milliseconds each, after which a pass ends."""

_PORTION: Final = 500
"""Maximum number of pods of a gang ungated per pass."""

_RECENT_S: Final = 1.0
"""Time in seconds after which capacity that a gang gave up no longer counts as its own."""


@attrs.define(eq=False)
class _Entry:
    """Lane of a gang, the place that it takes there, and the held binds that it needs."""

    lane: Lane
    place: str = ""
    needed: int = 0


class Ungating:
    """Queues of gangs that wait behind their gates.

    Args:
        table: all gangs.
        fit: capacity check.
        holding: held binds.
        reservations: reservations of capacity.
        limits: times and limits.
        observer: observer of decisions.
        out: actions to execute.

    Attributes:
        awake: lanes that have work to do.
    """

    def __init__(
        self,
        table: GangTable,
        fit: Fit,
        holding: Holding,
        reservations: Reservations,
        limits: Limits,
        observer: Observer,
        out: list[Action],
    ) -> None:
        self._table = table
        self._fit = fit
        self._holding = holding
        self._reservations = reservations
        self._limits = limits
        self._observer = observer
        self._out = out
        self._entries: dict[TrackedGang, _Entry] = {}
        self._lanes: dict[str, Lane] = {}
        self.awake: dict[Lane, None] = {}
        self._settling: Timers[Lane] = Timers()
        self._retries: Timers[TrackedGang] = Timers()
        self._queued: dict[TrackedGang, None] = {}
        self._backing_off: Ranking[TrackedGang] = Ranking()
        self._needed = 0
        self._scan_again = False

    @property
    def is_empty(self) -> bool:
        """Return whether no incomplete gang is queued."""
        return not self._queued

    def first_in_queues(self, gang: TrackedGang) -> Iterator[TrackedGang]:
        """Return gangs at the front of the queues, those of the gang's own lane first."""
        own = self._entries[gang].lane
        lanes = chain((own,), (lane for lane in self._lanes.values() if lane is not own))
        return islice(chain.from_iterable(lane.queue for lane in lanes), _QUESTIONS)

    # -- gangs --------------------------------------------------------------------------------

    def review(self, gang: TrackedGang, now: float, progress: Progress) -> None:
        """Update the queue and the places of a gang that has changed."""
        info, in_flight = gang.info(), progress.in_flight
        entry = self._entries.get(gang)
        if entry is None or entry.lane.scheduler != info.scheduler:
            self.forget(gang)
            entry = self._enter(gang)
        if gang.complete:
            gang.gates.ungated = False
        lane, key = entry.lane, gang.queue_key
        if progress.ready:
            self._enqueue(gang, lane, now, in_flight=in_flight)
        elif gang in lane.queue:
            self._dequeue(gang, lane)
        self._backing_off.put(gang, key if in_flight and gang.held.failures else None)
        if in_flight:
            large = self._holding.exceeds_limit(gang)
            needed = 0 if large else max(gang.waiting, info.min_available - gang.running)
            self._take(entry, self._place_of(gang), needed)
        else:
            self._take(entry, "", 0)
        if progress.ready:
            lane.recheck(gang)
            self._wake(lane)
        elif lane.settling is gang and not gang.tabled.awaiting_first_attempt:
            self._wake(lane)

    def _place_of(self, gang: TrackedGang) -> str:
        """Return the place of a gang that is being placed."""
        if not gang.info().needs_capacity:
            return TRIED
        return STUCK if gang.held.failures >= self._limits.stuck_after else FRESH

    def _enqueue(self, gang: TrackedGang, lane: Lane, now: float, *, in_flight: bool) -> None:
        key, complete = gang.queue_key, gang.complete
        lane.queue.put(gang, key)
        lane.begun.put(gang, key if in_flight and gang.gates.ungated else None)
        lane.whole.put(gang, key if complete else None)
        if complete:
            self._queued.pop(gang, None)
        else:
            self._queued[gang] = None
        self._retries.set(gang, gang.held.not_before if gang.held.not_before > now else None)

    def forget(self, gang: TrackedGang) -> None:
        """Forget a gang without pods, or with another scheduler."""
        entry = self._entries.pop(gang, None)
        if entry is None:
            return
        lane = entry.lane
        self._take(entry, "", 0)
        self._dequeue(gang, lane)
        self._backing_off.drop(gang)
        lane.members -= 1
        if lane.settling is gang:
            lane.settling = None
            self._settling.drop(lane)
        if lane.members:
            self._wake(lane)
        else:
            del self._lanes[lane.scheduler]
            self.awake.pop(lane, None)

    def _dequeue(self, gang: TrackedGang, lane: Lane) -> None:
        lane.dequeue(gang)
        self._retries.drop(gang)
        self._queued.pop(gang, None)

    def _enter(self, gang: TrackedGang) -> _Entry:
        scheduler = gang.info().scheduler
        lane = self._lanes.get(scheduler)
        if lane is None:
            lane = self._lanes[scheduler] = Lane(scheduler)
        lane.members += 1
        entry = self._entries[gang] = _Entry(lane)
        return entry

    def _take(self, entry: _Entry, place: str, needed: int) -> None:
        """Record the place that a gang takes ("" for none), and the held binds that it needs."""
        lane = entry.lane
        if entry.place != place:
            lane.places[entry.place] -= 1
            lane.places[place] += 1
            if entry.place:
                self._wake(lane)  # another gang may take its place
                if entry.place == TRIED:
                    lane.rescan()
            entry.place = place
        self._needed += needed - entry.needed
        if needed < entry.needed and self._scan_again:
            self.scan_all()
        entry.needed = needed

    # -- time and capacity --------------------------------------------------------------------

    def capacity_grew(self, now: float, *, freed: bool) -> None:
        """Handle a possible increase of free capacity.

        The back-off of a gang ends if it may fit now, but not because of capacity that it has just
        given up itself. Only the first gangs in the queue are checked.
        """
        for gang in islice(self._backing_off, _QUESTIONS):
            # What a refused gang has just given up looks like new capacity; it would take it again
            # immediately, and no other gang would ever get it.
            own = not freed and gang.held.gave_up_at > now - _RECENT_S
            if gang.held.not_before > now and not own and self._fit.fits(gang):
                self._holding.end_backoff(gang, now)
                self._table.touch(gang)

    def seen_ungated(self, gang: TrackedGang) -> None:
        """Handle a pod without a gate from before the start of this process."""
        gang.gates.ungated = True

    def scan_all(self) -> None:
        """Check all queued gangs again."""
        self._scan_again = False
        for lane in self._lanes.values():
            if lane.queue:
                lane.rescan()
                self._wake(lane)

    def end_backoffs(self, now: float) -> None:
        """Check gangs again whose back-off has ended, and lanes whose gang has had its time."""
        for gang in self._retries.pop_due(now):
            lane = self._entries[gang].lane
            lane.recheck(gang)
            self._wake(lane)
        for lane in self._settling.pop_due(now):
            self._wake(lane)

    def next_wake(self, now: float) -> float | None:
        """Return the time of the next timer; ``None`` without any."""
        return now if self.awake else earliest(self._settling.next_at(), self._retries.next_at())

    def _wake(self, lane: Lane) -> None:
        self.awake[lane] = None

    # -- ungating -----------------------------------------------------------------------------

    def advance(self, lane: Lane, now: float) -> None:
        """Ungate the next pods of a lane, if the previous gang has settled."""
        self.awake.pop(lane, None)
        settling = lane.settling
        if settling is not None and (
            not settling.tabled.awaiting_first_attempt or lane.settle_by <= now
        ):
            self._table.await_no_attempt(settling)
            lane.settling = settling = None
            self._settling.drop(lane)
        if settling is None:
            gang = self._choose(lane, now)
        else:
            # New pods of the settling gang are ungated with it.
            gang = settling if settling.ready and settling.held.not_before <= now else None
        if gang is not None:
            self._ungate(lane, gang, now)

    def _choose(self, lane: Lane, now: float) -> TrackedGang | None:
        """Return the next gang to ungate: a partly ungated one, or the first that may fit.

        After a number of capacity checks the next call continues where this one stopped.
        """
        # A partly ungated gang is finished first: its pods are in the scheduler's queue.
        for gang in lane.begun:
            if gang.held.not_before <= now:
                return gang
        if not lane.has_place(self._limits.in_flight, self._limits.stuck):
            return self._choose_without_place(lane, now)
        scans = self._fit.scans + _SCANS
        for _ in range(_QUESTIONS):
            # A scan of all nodes takes milliseconds: binds are answered in between.
            if self._fit.scans >= scans:
                break
            gang_ = lane.next_unchecked()
            if gang_ is None:
                return None
            if gang_.held.not_before <= now and gang_.complete:
                return gang_
            if gang_.held.not_before > now or not self._may_be_tried(lane, gang_):
                continue
            if self._fit.fits(gang_):
                return gang_
            if self._fit.ever_fits(gang_):
                self._reservations.bypass(gang_)
        self._wake(lane)
        return None

    def _may_be_tried(self, lane: Lane, gang: TrackedGang) -> bool:
        """Return whether an incomplete gang may be ungated if it fits."""
        limits = self._limits
        if self._refuse_too_large(gang):
            return False
        if limits.held and gang.missing > limits.held - self._needed:
            self._reservations.bypass(gang)
            self._scan_again = True
            return False
        if self._reservations.must_leave_capacity(gang):
            return False
        return lane.places[TRIED] < limits.stuck or gang.info().needs_capacity

    def _choose_without_place(self, lane: Lane, now: float) -> TrackedGang | None:
        """Return the next gang to ungate while the places for incomplete gangs are taken."""
        for gang in lane.whole:
            if gang.held.not_before <= now:
                return gang
        first = self._reservations.gang
        if first is None or not first.ready or first.held.not_before > now:
            return None
        if self._entries[first].lane is not lane:
            return None
        return first if self._fit.fits(first) else None

    def _refuse_too_large(self, gang: TrackedGang) -> bool:
        """Return whether a gang can never start; it is reported once."""
        too_large = self._holding.exceeds_limit(gang)
        if too_large and not gang.gates.too_large:
            self._observer.too_large(gang, self._limits.held)
        gang.gates.too_large = too_large
        return too_large

    def _ungate(self, lane: Lane, gang: TrackedGang, now: float) -> None:
        limits = self._limits
        gated = gang.pods[PodState.GATED]
        if lane.settling is not gang:
            self._observer.ungated(gang, len(gated))
        self._holding.begin(gang)
        gang.gates.ungated = True
        for pod in list(islice(gated.values(), _PORTION)):
            self._table.move(pod, PodState.UNGATED)
            # The scheduler does not try a pod that another controller's gate still holds back.
            if not pod.kind.blocked:
                self._table.await_first_attempt(pod)
            self._out.append(Ungate(gang.key, pod.name, pod.uid))
        lane.settling = gang
        lane.settle_by = (
            now
            + limits.settle_s
            + limits.settle_per_pod_s * len(gang.tabled.awaiting_first_attempt)
        )
        self._settling.set(lane, lane.settle_by)
