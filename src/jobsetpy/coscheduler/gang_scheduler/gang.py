"""Gangs and their pods, as the gang scheduler tracks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter

import attrs

from jobsetpy.coscheduler.gang_scheduler.state import Cause, PodState, Stage
from jobsetpy.reconcilers.coscheduling import plugin
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupInfo, PodGroupKey, QueueKey


@attrs.define(eq=False)
class TrackedPod:
    """Pod of a gang with its state and, while it waits, its request."""

    uid: str
    name: str
    gang: TrackedGang
    kind: Member
    state: PodState
    ticket: int = -1


@attrs.define
class Held:
    """Held binds of a gang; :class:`Holding` alone writes it.

    Args:
        begun: its first bind was reported.
        releasing: its held binds are being executed.
        refusing: reason for which its held binds are being refused; "" if they are not.
        failures: number of refusals since it was complete.
        not_before: end of the back-off.
        preempted: pods were deleted for it since it was refused.
        preempted_in_vain: number of refusals after that.
        preempts_from: time until which no pods are deleted for it.
    """

    begun: bool = False
    releasing: bool = False
    refusing: str = ""
    failures: int = 0
    not_before: float = 0.0
    preempted: bool = False
    preempted_in_vain: int = 0
    preempts_from: float = 0.0


class TrackedGang:
    """Gang with its pods by state. ``kinds`` counts pods with equal properties.

    Attributes:
        held: its held binds.
        counted_as: stage in which the table counts it, ``None`` for none.
    """

    def __init__(self, key: PodGroupKey) -> None:
        self.key = key
        self.pods: dict[PodState, dict[str, TrackedPod]] = {state: {} for state in PodState}
        self._waiting = self.pods[PodState.WAITING]
        self._binding, self._bound = self.pods[PodState.BINDING], self.pods[PodState.BOUND]
        self.kinds: Counter[Member] = Counter()
        self.held = Held()
        self.counted_as: Stage | None = None
        self._blocked = 0
        self._since = float("inf")
        self._info: PodGroupInfo | None = None
        self._queue_key: QueueKey | None = None

    def info(self) -> PodGroupInfo:
        """Return the gang as its pods define it, with the timestamp of the first observed pod.

        So it does not lose its place in the queue when that pod is replaced.
        """
        if self._info is None:
            info = plugin.pod_group_info(self.key, self.kinds)
            self._info = attrs.evolve(info, initial_timestamp=self._since)
            self._queue_key = None
        return self._info

    @property
    def queue_key(self) -> QueueKey:
        """Sort key in the order of the queue."""
        info = self.info()
        if self._queue_key is None:
            self._queue_key = plugin.queue_key(info)
        return self._queue_key

    def add_kind(self, kind: Member) -> None:
        """Add a pod."""
        if not self.kinds[kind]:
            self._info = None
        self.kinds[kind] += 1
        self._blocked += kind.blocked
        self._since = min(self._since, kind.created)

    def remove_kind(self, kind: Member) -> None:
        """Remove a pod."""
        self.kinds[kind] -= 1
        self._blocked -= kind.blocked
        if not self.kinds[kind]:
            del self.kinds[kind]
            self._info = None

    @property
    def members(self) -> Iterator[TrackedPod]:
        """Its pods, in any order."""
        return chain.from_iterable(each.values() for each in self.pods.values())

    @property
    def first(self) -> TrackedPod:
        """Its first pod by name; O(its pods)."""
        return min(self.members, key=attrgetter("name"))

    @property
    def size(self) -> int:
        """Number of its pods."""
        return self.kinds.total() if len(self.kinds) > 1 else next(iter(self.kinds.values()), 0)

    @property
    def placeable(self) -> int:
        """Number of its pods without those that scheduling gates hold back."""
        return self.size - self._blocked

    @property
    def is_large(self) -> bool:
        """Return whether enough of its pods can be placed."""
        return plugin.pre_filter(self.info(), self.placeable)

    @property
    def running(self) -> int:
        """Number of its pods that are bound, or being bound."""
        return len(self._binding) + len(self._bound)

    @property
    def waiting(self) -> int:
        """Number of its pods with a reservation."""
        return len(self._waiting)

    @property
    def lacks_a_node(self) -> bool:
        """Return whether pods without which it cannot be complete have found no node.

        A gang with too few pods could not use the capacity of others.
        """
        if self.complete or not self.is_large or not self.pods[PodState.UNSCHEDULABLE]:
            return False
        hopeful = self.size - len(self.pods[PodState.UNSCHEDULABLE])
        return hopeful < self.info().min_available

    @property
    def complete(self) -> bool:
        """Return whether enough of its pods are bound, or being bound."""
        return self.held.releasing or self.running >= self.info().min_available

    @property
    def stage(self) -> Stage:
        """Stage of the gang, for users."""
        if self.complete:
            return Stage.BOUND
        if self.waiting:
            return Stage.HOLDING
        return Stage.PENDING if self.is_large else Stage.INCOMPLETE


class Observer:
    """Observer of decisions about gangs, called as they are made. It must not change any state.

    This one does nothing.
    """

    def begun(self, gang: TrackedGang) -> None:
        """Its first bind is held."""

    def released(self, gang: TrackedGang, pods: int) -> None:
        """It is complete: this number of held binds is executed."""

    def rejected(self, gang: TrackedGang, cause: Cause, why: str, pods: int) -> None:
        """It cannot be complete now: this number of held binds is refused."""

    def gone(self, gang: TrackedGang) -> None:
        """Its last pod is gone."""
