"""What the planner of coscheduling keeps of pods and groups, is told, and answers."""

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
    """How far a member is."""

    GATED = "gated"
    LIFTED = "lifted"
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"

    # By identity, as they are compared: Enum's own is a function in Python, called for each lookup.
    __hash__ = object.__hash__


@attrs.frozen(kw_only=True)
class SeenPod:
    """A pod with a group, as the cache has it.

    Args:
        group: its group.
        name: of the pod.
        member: what it says of its group; ``bound`` if it has a node.
        gated: whether our gate is on it.
        ended: finished, or being deleted.
        bound_at: when it got its node, by the API server's clock; ``None`` if it has none.
    """

    group: PodGroupKey
    name: str
    member: Member
    gated: bool = False
    ended: bool = False
    bound_at: float | None = None


@attrs.frozen
class Lift:
    """Take the gate off a pod."""

    group: PodGroupKey
    name: str
    uid: str


@attrs.frozen
class Bind:
    """Bind the pod of a held request; then say how it went, and answer."""

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
    """The pod is not known: read it. If it is of a group, show it and ask again; else bind it."""

    ticket: int
    uid: str


@attrs.frozen
class Evict:
    """Have a pod with a node deleted: the rest of its group has found none."""

    group: PodGroupKey
    name: str
    uid: str


Action = Lift | Bind | Refuse | LookUp | Evict


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of the planner.

    Args:
        in_flight: maximum incomplete groups lifted at a time.
        stuck: maximum besides these that have failed ``stuck_after`` times.
        stuck_after: see there.
        settle_s: a lifted group counts as settled after this time, plus ``settle_per_pod_s`` for
            each pod.
        settle_per_pod_s: see there.
        patience_s: an incomplete group with a pod that found no node keeps what it holds for so
            long before others that could use its room get it; only the first time that it is tried.
        promise_s: the longest timeout of an incomplete group while one of its pods waits for pods
            that are deleted for it.
        permit_s: binds of an incomplete group are held for this time, plus ``permit_per_pod_s`` for
            each pod it needs, at most ``longest_permit_s``.
        permit_per_pod_s, longest_permit_s: see there. The scheduler has to wait longer than the
            longest for an answer.
        gather_s: binds of a group that has yet too few pods are held as long as new ones come, each
            within this time; 0 refuses them.
        first_backoff_s: binds of a group that was refused are refused for this time, then for twice
            as long each time, at most ``longest_backoff_s``.
        longest_backoff_s: see there.
        reserve_after_s: a group that has waited for so long gets the room that becomes free, if it
            may fit into the empty cluster; 0 for never.
        partial_s: a group that was let go and could be bound only in part, since others took its
            room, is told of when nothing has changed for so long; 0 for never.
        delete_partial: its pods that are bound are deleted then.
        held: maximum binds that can be held at a time; 0 for no bound.
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
    """Why a group's held binds were refused."""

    UNSCHEDULABLE = "unschedulable"
    """One of its pods found no node."""
    YIELDED = "yielded"
    """An older group found no node, and this one held room."""
    TIMEOUT = "timeout"
    """It was not complete in time."""
    PREEMPTED = "preempted"
    """A pod of higher priority needs its room."""
    TOO_SMALL = "too_small"
    """Pods went away while it waited."""


class Observer(Protocol):
    """Is told of each decision about a group as it is taken. Changes nothing of the planner."""

    def lifted(self, group: PodGroupInfo, pods: int) -> None:
        """Gates of so many of its pods are to be taken off; 0: it has come without gates."""
        ...

    def released(self, group: PodGroupInfo, pods: int) -> None:
        """It is complete: so many held binds are to be carried out."""
        ...

    def rejected(self, group: PodGroupInfo, cause: Cause, why: str, pods: int) -> None:
        """It cannot be complete now: so many held binds are refused."""
        ...

    def bound_in_part(self, group: PodGroupInfo, bound: int, *, deleted: bool) -> None:
        """Others took its room while it was let go; whether what is bound is deleted."""
        ...

    def too_large(self, group: PodGroupInfo, held: int) -> None:
        """It needs more held binds than are possible: it never starts."""
        ...

    def staged(self, key: PodGroupKey, stage: str) -> None:
        """It is at another stage, see :class:`Census`; "" if its last pod is gone."""
        ...

    def forgotten(self, key: PodGroupKey) -> None:
        """Its last pod is gone."""
        ...


@attrs.frozen
class Preemption:
    """The answer to the scheduler's question whether pods may be deleted for another one.

    Args:
        outcome: ``allowed``, ``spared`` (groups that only wait give up their room) or ``refused``.
        nodes: those that remain, each with all its victims.
        actions: what is to be done.
    """

    outcome: str
    nodes: dict[str, list[str]]
    actions: list[Action]


class Room(Protocol):
    """Knows how much room there is.

    An answer of ``None`` is one that takes longer: :meth:`GangScheduler.room_grew` is called when
    it is known.
    """

    def fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Whether there may be room for so many of a group's pods that have no node yet.

        ``False`` only if there certainly is none.
        """
        ...

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """The same, if there were no other pods."""
        ...

    def fits_without(
        self, group: PodGroupKey, wanted: int, others: Iterable[PodGroupKey]
    ) -> bool | None:
        """The same, if other groups gave up what is reserved for them."""
        ...

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Whether pods of two groups may be on the same node."""
        ...


class NoObserver:
    """Wants to know nothing."""

    def lifted(self, group: PodGroupInfo, pods: int) -> None:
        """Nothing."""

    def released(self, group: PodGroupInfo, pods: int) -> None:
        """Nothing."""

    def rejected(self, group: PodGroupInfo, cause: Cause, why: str, pods: int) -> None:
        """Nothing."""

    def bound_in_part(self, group: PodGroupInfo, bound: int, *, deleted: bool) -> None:
        """Nothing."""

    def too_large(self, group: PodGroupInfo, held: int) -> None:
        """Nothing."""

    def staged(self, key: PodGroupKey, stage: str) -> None:
        """Nothing."""

    def forgotten(self, key: PodGroupKey) -> None:
        """Nothing."""


class TrackedPod:
    """A member, its state and, while it waits, its request."""

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
    """A group, its pods by state. ``kinds`` counts the pods that say the same."""

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
        """Return what its pods say of it; its time is that of the first pod that was seen.

        So it does not lose its place in the queue when that pod is replaced.
        """
        if self._info is None:
            info = plugin.pod_group_info(self.key, self.kinds)
            self._info = attrs.evolve(info, initial_timestamp=self._since)
        return self._info

    def was_bound(self, at: float) -> None:
        """One of its pods got its node at this time."""
        self.bound_at = at if self.bound_at is None else min(self.bound_at, at)

    def add_kind(self, kind: Member) -> None:
        """Count a pod in."""
        if not self.kinds[kind]:
            self._info = None
        self.kinds[kind] += 1
        self._blocked += kind.blocked
        self._since = min(self._since, kind.created)

    def remove_kind(self, kind: Member) -> None:
        """Count a pod out."""
        self.kinds[kind] -= 1
        self._blocked -= kind.blocked
        if not self.kinds[kind]:
            del self.kinds[kind]
            self._info = None

    def disagreements(self) -> list[str]:
        """In what its pods differ that should be the same for all of them; for people."""
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
        """How many pods there are."""
        return self.kinds.total() if len(self.kinds) > 1 else next(iter(self.kinds.values()), 0)

    @property
    def placeable(self) -> int:
        """Number of its pods without those that other controllers hold back by gates."""
        return self.size - self._blocked

    @property
    def is_large(self) -> bool:
        """Whether enough of its pods can be placed."""
        return plugin.pre_filter(self.info(), self.placeable)

    @property
    def running(self) -> int:
        """How many pods are bound, or being bound."""
        return len(self._binding) + len(self._bound)

    @property
    def waiting(self) -> int:
        """How many pods have a node reserved."""
        return len(self._waiting)

    @property
    def lacks_a_node(self) -> bool:
        """Whether pods have found no node without which it cannot be complete."""
        if self.complete or not self.pods[PodState.UNSCHEDULABLE]:
            return False
        hopeful = self.size - len(self.pods[PodState.UNSCHEDULABLE])
        return hopeful < self.info().min_available

    @property
    def complete(self) -> bool:
        """Whether as many as it needs are bound, or being bound."""
        return self.releasing or self.running >= self.info().min_available

    @property
    def stage(self) -> str:
        """How far it is, for people: see :class:`Census`."""
        if self.complete:
            return "bound"
        if self.waiting:
            return "holding"
        if self.in_flight:
            return "lifted"
        return "queued" if self.is_large else "incomplete"

    @property
    def in_flight(self) -> bool:
        """Whether it is lifted, at least in part, and not complete."""
        pods = self.pods
        lifted = pods[PodState.LIFTED] or pods[PodState.UNSCHEDULABLE] or pods[PodState.WAITING]
        return bool(lifted) and not self.complete


@attrs.frozen
class Census:
    """How many groups and pods there are.

    Args:
        groups: by state: ``incomplete``, ``queued``, ``lifted``, ``holding``, ``bound``.
        pods: by the values of :class:`PodState`.
    """

    groups: Mapping[str, int]
    pods: Mapping[str, int]


@attrs.frozen
class Standing:
    """Where a group stands.

    Args:
        info: the group.
        members: how many pods it has.
        placeable: of these, how many are not held back by gates of other controllers.
        waiting: of these, how many have a node reserved.
        bound: of these, how many are bound, or being bound.
        in_flight: it is lifted and not complete.
        failures: how often it was refused since it was last complete.
    """

    info: PodGroupInfo
    members: int
    placeable: int
    waiting: int
    bound: int
    in_flight: bool
    failures: int
