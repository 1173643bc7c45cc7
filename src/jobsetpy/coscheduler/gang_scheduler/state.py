"""Inputs, state and actions of the gang scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Protocol

import attrs

from jobsetpy.coscheduler.gang_scheduler.lanes import Lane
from jobsetpy.reconcilers.coscheduling import plugin
from jobsetpy.reconcilers.coscheduling.plugin import (
    Member,
    PodGroupInfo,
    PodGroupKey,
)


class PodState(Enum):
    """State of a pod in a gang."""

    GATED = "gated"
    LIFTED = "lifted"
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"

    # Hash by identity: that of Enum is a Python function, called for each lookup.
    __hash__ = object.__hash__


@attrs.frozen(kw_only=True)
class SeenPod:
    """Pod of a gang, as observed in the cache.

    Args:
        group: gang of the pod.
        name: name of the pod.
        member: properties that matter to its gang; ``bound`` if it has a node.
        gated: it has our scheduling gate.
        ended: it has finished, or is being deleted.
        bound_at: time at which it got its node, by the API server's clock; ``None`` without a node.
    """

    group: PodGroupKey
    name: str
    member: Member
    gated: bool = False
    ended: bool = False
    bound_at: float | None = None


@attrs.frozen
class Lift:
    """Remove the scheduling gate of a pod."""

    group: PodGroupKey
    name: str
    uid: str


@attrs.frozen
class Bind:
    """Bind the pod of a held request; then report the result, and answer."""

    ticket: int
    uid: str


@attrs.frozen
class Refuse:
    """Answer a held request with an error."""

    ticket: int
    uid: str
    reason: str


@attrs.frozen
class LookUp:
    """Read an unknown pod. If it is in a gang, report it and repeat the request; else bind it."""

    ticket: int
    uid: str


@attrs.frozen
class Evict:
    """Delete a pod with a node: the rest of its gang has found none."""

    group: PodGroupKey
    name: str
    uid: str


Action = Lift | Bind | Refuse | LookUp | Evict


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of the gang scheduler.

    Args:
        in_flight: maximum number of incomplete gangs ungated at a time.
        stuck: additional maximum for gangs that have failed ``stuck_after`` times.
        stuck_after: number of failures after which a gang counts as stuck.
        settle_s: time in seconds after which an ungated gang counts as settled, plus
            ``settle_per_pod_s`` for each pod.
        settle_per_pod_s: additional settling time for each pod, in seconds.
        patience_s: time in seconds for which an incomplete gang with an unschedulable pod keeps its
            reservations before other gangs get them; applies to its first attempt only.
        promise_s: maximum timeout in seconds of an incomplete gang while one of its pods waits for
            the deletion of other pods.
        permit_s: time in seconds for which binds of an incomplete gang are held, plus
            ``permit_per_pod_s`` for each required pod, at most ``longest_permit_s``.
        permit_per_pod_s, longest_permit_s: additional time per pod, and maximum, in seconds. The
            scheduler's timeout has to exceed the maximum.
        gather_s: interval in seconds within which new pods have to appear for the binds of a gang
            with too few pods to be held; 0 refuses them.
        first_backoff_s: time in seconds for which binds of a refused gang are refused; doubled each
            time, at most ``longest_backoff_s``.
        longest_backoff_s: maximum back-off, in seconds.
        reserve_after_s: waiting time in seconds after which capacity that becomes free is reserved
            for a gang, if it may fit into the empty cluster; 0 for never.
        partial_s: time in seconds without changes after which a released gang is reported as bound
            in part, because other pods took its capacity; 0 for never.
        delete_partial: delete its bound pods then.
        held: maximum number of binds that can be held at a time; 0 for no limit.
    """

    in_flight: int = 4
    stuck: int = 32
    stuck_after: int = 3
    settle_s: float = 5.0
    settle_per_pod_s: float = 0.02
    patience_s: float = 5.0
    promise_s: float = 5.0
    permit_s: float = plugin.SHORTEST_TIMEOUT_S
    permit_per_pod_s: float = plugin.TIMEOUT_PER_POD_S
    longest_permit_s: float = plugin.LONGEST_TIMEOUT_S
    gather_s: float = 3.0
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 10.0
    reserve_after_s: float = 60.0
    partial_s: float = 60.0
    delete_partial: bool = False
    held: int = 0


class Cause(Enum):
    """Reason for refusing a gang's held binds."""

    UNSCHEDULABLE = "unschedulable"
    """One of its pods found no node."""
    YIELDED = "yielded"
    """An older gang found no node, and this one held capacity."""
    TIMEOUT = "timeout"
    """It was not complete in time."""
    PREEMPTED = "preempted"
    """A pod of higher priority needs its capacity."""
    TOO_SMALL = "too_small"
    """Pods were deleted while it waited."""


class Observer(Protocol):
    """Observer of decisions about gangs, called as they are made. It must not change any state."""

    def lifted(self, group: PodGroupInfo, pods: int) -> None:
        """Gates of this number of its pods are removed; 0: its pods have no gates."""
        ...

    def released(self, group: PodGroupInfo, pods: int) -> None:
        """It is complete: this number of held binds is executed."""
        ...

    def rejected(self, group: PodGroupInfo, cause: Cause, why: str, pods: int) -> None:
        """It cannot be complete now: this number of held binds is refused."""
        ...

    def bound_in_part(self, group: PodGroupInfo, bound: int, *, deleted: bool) -> None:
        """Other pods took its capacity during its release; its bound pods may be ``deleted``."""
        ...

    def too_large(self, group: PodGroupInfo, held: int) -> None:
        """It needs more held binds than are possible and never starts."""
        ...

    def staged(self, key: PodGroupKey, stage: str) -> None:
        """Its stage has changed, see :class:`Census`; "" if its last pod is gone."""
        ...

    def forgotten(self, key: PodGroupKey) -> None:
        """Its last pod is gone."""
        ...


@attrs.frozen
class Preemption:
    """Answer to the scheduler's request to delete pods for another one.

    Args:
        outcome: ``allowed``, ``spared`` (waiting gangs give up their reservations) or ``refused``.
        nodes: remaining nodes, each with all its victims.
        actions: actions to execute.
    """

    outcome: str
    nodes: dict[str, list[str]]
    actions: list[Action]


class Room(Protocol):
    """Source of information about free capacity.

    ``None`` is returned if an answer takes longer: :meth:`GangScheduler.room_grew` is called when
    it is known.
    """

    def fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Return whether this number of a gang's pods without a node may fit.

        ``False`` only if they certainly do not fit.
        """
        ...

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Return :meth:`fits` for a cluster without other pods."""
        ...

    def fits_without(
        self, group: PodGroupKey, wanted: int, others: Iterable[PodGroupKey]
    ) -> bool | None:
        """Return :meth:`fits` without the reservations of other gangs."""
        ...

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Return whether pods of two gangs may be placed on the same node."""
        ...


class NoObserver:
    """Observer that does nothing."""

    def lifted(self, group: PodGroupInfo, pods: int) -> None:
        """Do nothing."""

    def released(self, group: PodGroupInfo, pods: int) -> None:
        """Do nothing."""

    def rejected(self, group: PodGroupInfo, cause: Cause, why: str, pods: int) -> None:
        """Do nothing."""

    def bound_in_part(self, group: PodGroupInfo, bound: int, *, deleted: bool) -> None:
        """Do nothing."""

    def too_large(self, group: PodGroupInfo, held: int) -> None:
        """Do nothing."""

    def staged(self, key: PodGroupKey, stage: str) -> None:
        """Do nothing."""

    def forgotten(self, key: PodGroupKey) -> None:
        """Do nothing."""


class TrackedPod:
    """Pod of a gang with its state and, while it waits, its request."""

    __slots__ = ("group", "kind", "name", "state", "ticket", "uid")

    def __init__(
        self, uid: str, name: str, group: TrackedGang, kind: Member, state: PodState
    ) -> None:
        self.uid = uid
        self.name = name
        self.group = group
        self.kind = kind
        self.state = state
        self.ticket = -1


class TrackedGang:
    """Gang with its pods by state. ``kinds`` counts pods with equal properties."""

    def __init__(self, key: PodGroupKey) -> None:
        self.key = key
        self.pods: dict[PodState, dict[str, TrackedPod]] = {state: {} for state in PodState}
        self._waiting = self.pods[PodState.WAITING]
        self._binding, self._bound = self.pods[PodState.BINDING], self.pods[PodState.BOUND]
        self.kinds: Counter[Member] = Counter()
        self.unsettled: set[str] = set()
        self.promised: set[str] = set()
        self.settle_by = 0.0
        self.deadline: float | None = None
        self.begun = False
        self.lifted = False
        self.gathering = False
        self.gathers_until = 0.0
        self.failures = 0
        self.timeouts = 0
        self.not_before = 0.0
        self.gave_up_at = float("-inf")
        self.reservations = 0
        self.in_vain = 0
        self.outrun = False
        self.queued_as: plugin.QueueKey | None = None
        self.lane: Lane | None = None
        self.place = ""
        self.needed = 0
        self.counted_as = ""
        self.started = False
        self.released = False
        self.releasing = False
        self.refusing = ""
        self.bound_at: float | None = None
        self.retry_at = 0.0
        self.bound_before = 0
        self.too_large = False
        self._blocked = 0
        self._since = float("inf")
        self._info: PodGroupInfo | None = None

    def info(self) -> PodGroupInfo:
        """Return the gang as its pods define it, with the timestamp of the first observed pod.

        So it does not lose its place in the queue when that pod is replaced.
        """
        if self._info is None:
            info = plugin.pod_group_info(self.key, self.kinds)
            self._info = attrs.evolve(info, initial_timestamp=self._since)
        return self._info

    def was_bound(self, at: float) -> None:
        """Record the time at which one of its pods got its node."""
        self.bound_at = at if self.bound_at is None else min(self.bound_at, at)

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

    def disagreements(self) -> list[str]:
        """Return the differences between its pods that should be equal, for users."""
        open_ = [kind for kind in self.kinds if not kind.bound] or list(self.kinds)
        minima = sorted({kind.min_available for kind in open_})
        priorities = sorted({kind.priority for kind in self.kinds})
        return [
            f"different {what} ({', '.join(map(str, values))}), of which the greatest counts"
            for what, values in (("minima", minima), ("priorities", priorities))
            if len(values) > 1
        ]

    @property
    def size(self) -> int:
        """Number of its pods."""
        return self.kinds.total() if len(self.kinds) > 1 else next(iter(self.kinds.values()), 0)

    @property
    def placeable(self) -> int:
        """Number of its pods without those that gates of other controllers hold back."""
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
        """Return whether pods without which it cannot be complete have found no node."""
        if self.complete or not self.pods[PodState.UNSCHEDULABLE]:
            return False
        hopeful = self.size - len(self.pods[PodState.UNSCHEDULABLE])
        return hopeful < self.info().min_available

    @property
    def complete(self) -> bool:
        """Return whether enough of its pods are bound, or being bound."""
        return self.releasing or self.running >= self.info().min_available

    @property
    def stage(self) -> str:
        """Stage of the gang, for users: see :class:`Census`."""
        if self.complete:
            return "bound"
        if self.waiting:
            return "holding"
        if self.in_flight:
            return "lifted"
        return "queued" if self.is_large else "incomplete"

    @property
    def in_flight(self) -> bool:
        """Return whether it is at least partly ungated, and not complete."""
        pods = self.pods
        lifted = pods[PodState.LIFTED] or pods[PodState.UNSCHEDULABLE] or pods[PodState.WAITING]
        return bool(lifted) and not self.complete


@attrs.frozen
class Census:
    """Numbers of gangs and pods.

    Args:
        groups: number by stage: ``incomplete``, ``queued``, ``lifted``, ``holding``, ``bound``.
        pods: number by values of :class:`PodState`.
    """

    groups: Mapping[str, int]
    pods: Mapping[str, int]


@attrs.frozen
class Standing:
    """State of a gang.

    Args:
        info: the gang.
        members: number of its pods.
        placeable: number of its pods without those held back by gates of other controllers.
        waiting: number of its pods with a reservation.
        bound: number of its pods that are bound, or being bound.
        in_flight: it is ungated and not complete.
        failures: number of refusals since it was last complete.
    """

    info: PodGroupInfo
    members: int
    placeable: int
    waiting: int
    bound: int
    in_flight: bool
    failures: int
