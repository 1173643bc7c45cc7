"""Whether a group can have room at all: sums over nodes, kept up to date by what changes.

A gate cannot be put back, and a group that is lifted without room costs the scheduler attempts,
then waits for its back-off when there is room at last. So a group is lifted when there may be room
for it. What is tested is necessary, never sufficient: what is not looked at here (affinity,
spreading, volumes, ports, resources that no node offers) only makes the answer "perhaps". Whether
pods really fit is the scheduler's business.

Amounts are integers, in thousandths of a resource's unit. Rules of what a pod requests: Kubernetes
documentation, "Resource Management for Pods and Containers", "Sidecar Containers" and "Pod
Overhead".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.domain.coscheduling.plugin import PodGroupKey
from jobsetpy.domain.json_equality import quantity

MILLI: Final = 1000
Amounts = tuple[tuple[str, int], ...]
"""Resources and how much of each, sorted, without zeros."""

UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
_REMEMBERED: Final = 1000
_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


@attrs.frozen(slots=True)
class Taint:
    """Of a node."""

    key: str
    value: str = ""
    effect: str = ""


@attrs.frozen(slots=True)
class Toleration:
    """Of a pod; an empty key or effect stands for all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether a node's taint does not keep the pod away."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        # Operators that are not known here (comparisons of numbers) may well be satisfied.
        return self.operator not in {"", "Equal"} or (bool(self.key) and self.value == taint.value)


@attrs.frozen(slots=True)
class Shape:
    """What of a pod decides which nodes have room for it.

    Args:
        requests: what it asks for, the pod itself as one of ``pods`` included.
        selector: labels that its node has to have.
        tolerations: taints that its node may have.
        priority: of the pod.
        preempts: whether pods of lower priority would be deleted for it.
    """

    requests: Amounts
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    preempts: bool = True


@attrs.frozen(slots=True)
class NodeRoom:
    """What a node has to offer."""

    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = attrs.field(factory=dict)
    taints: tuple[Taint, ...] = ()

    def admits(self, shape: Shape) -> bool:
        """Whether labels and taints let such a pod in."""
        labels = self.labels
        if any(labels.get(key) != value for key, value in shape.selector):
            return False
        return all(
            taint.effect not in _KEEPS_AWAY
            or any(toleration.tolerates(taint) for toleration in shape.tolerations)
            for taint in self.taints
        )


@attrs.define(slots=True)
class _Load:
    """A pod: where it is or is to be, what it takes, and which group waits for it."""

    node: str
    shape: Shape
    group: PodGroupKey | None
    reserved: str = ""

    @property
    def place(self) -> str:
        return self.node or self.reserved


class Capacity:
    """Room of all nodes, and what the pods of groups need."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeRoom] = {}
        self._pods: dict[str, _Load] = {}
        self._used: dict[str, dict[int, Counter[str]]] = {}
        self._unplaced: dict[PodGroupKey, Counter[Shape]] = {}
        self._shapes: dict[PodGroupKey, Counter[Shape]] = {}
        self._admit: dict[object, frozenset[str]] = {}
        self._places: dict[Shape, int] = {}
        self._free: dict[tuple[int, bool], Counter[str]] = {}
        self._offered: frozenset[str] | None = None
        self._growth = 0
        self._released = 0

    @property
    def growth(self) -> int:
        """Goes up each time that pods or nodes change so that there may be more room."""
        return self._growth

    @property
    def released(self) -> int:
        """Goes up each time that a reservation is given up."""
        return self._released

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is known."""
        return uid in self._pods

    # -- what changes -------------------------------------------------------------------------

    def node(self, name: str, room: NodeRoom | None) -> None:
        """A node is new, has changed, or is gone (``None``)."""
        if self._nodes.get(name) == room:
            return
        if room is None:
            del self._nodes[name]
        else:
            self._nodes[name] = room
            self._growth += 1
        self._offered = None
        self._admit.clear()
        self._forget()

    def pod(self, uid: str, shape: Shape, *, node: str, group: PodGroupKey | None) -> None:
        """A pod that has not ended is new, or has changed."""
        known = self._pods.get(uid)
        if known is None:
            self._put(uid, _Load(node, shape, group))
        elif (known.node or known.reserved, known.shape) == (node, shape) and node:
            if known.group != group:
                self._account_group(known.group, shape, -1)
                self._account_group(group, shape, 1)
            known.node, known.group = node, group  # bound where its room was reserved
        elif (known.node, known.shape, known.group) != (node, shape, group):
            self._growth += bool(known.place)
            self._take(uid)
            self._put(uid, _Load(node, shape, group, known.reserved))

    def gone(self, uid: str) -> None:
        """A pod has ended, or was deleted."""
        known = self._pods.get(uid)
        if known is not None:
            self._growth += bool(known.place)
            self._take(uid)

    def reserve(self, uid: str, node: str) -> None:
        """The scheduler has given a pod a node, and waits for it to be bound."""
        known = self._pods.get(uid)
        if known is not None and known.reserved != node:
            self._released += not known.node and bool(known.reserved)
            self._take(uid)
            self._put(uid, attrs.evolve(known, reserved=node))

    def release(self, uid: str) -> None:
        """It was told no: the reservation is given up, unless the pod has the node by now."""
        self.reserve(uid, "")

    # -- questions ----------------------------------------------------------------------------

    def fits(self, group: PodGroupKey, wanted: int) -> bool:
        """Whether there may be room for so many more of a group's pods that have none yet.

        True if fewer than ``wanted`` such pods are known: nothing is known of the others. Costs
        O(nodes) for each kind of pod after a change, else nothing.
        """
        shapes = self._unplaced.get(group)
        if wanted <= 0 or shapes is None or shapes.total() < wanted:
            return True
        if sum(min(count, self._room_for(shape)) for shape, count in shapes.items()) < wanted:
            return False
        return len(shapes) == 1 or self._sum_fits(shapes, wanted)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool:
        """The same, if there were no other pods."""
        empty = Capacity()
        empty._nodes, empty._unplaced = self._nodes, self._unplaced
        return empty.fits(group, wanted)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Whether pods of two groups may be on the same node, as far as is known."""
        nodes, others = (
            [self._admitting(shape) for shape in self._shapes.get(key, ())]
            for key in (group, other)
        )
        return not all(a.isdisjoint(b) for a in nodes for b in others)

    def _admitting(self, shape: Shape) -> frozenset[str]:
        marks = shape.selector, shape.tolerations
        found = self._admit.get(marks)
        if found is None:
            if len(self._admit) >= _REMEMBERED:
                self._admit.clear()
            names = (name for name, room in self._nodes.items() if room.admits(shape))
            found = self._admit[marks] = frozenset(names)
        return found

    def _room_for(self, shape: Shape) -> int:
        """How many pods of this shape there is room for, if nothing else comes."""
        count = self._places.get(shape)
        if count is None:
            counted = self._counted(shape)
            asked = [each for each in shape.requests if each[0] in counted]
            count = self._places[shape] = sum(
                max(0, min((free.get(name, 0) // amount for name, amount in asked), default=0))
                for free in self._free_of(shape)
            )
        return count

    def _counted(self, shape: Shape) -> frozenset[str]:
        """The resources of a pod that nodes have to offer.

        What no node offers is perhaps no resource of nodes at all: the scheduler may have been told
        to leave it out, or devices be claimed for it. Of a pod that is marked for the extender that
        is the mark, and it has to have the rest before it is lifted: kube-scheduler judges by all
        requests, mark included, whether a node that is new or has grown is a reason to try again,
        and so does not for five minutes.
        """
        names = frozenset(name for name, _ in shape.requests)
        if keys.POD_GROUP_MEMBER_RESOURCE in names:
            return names - {keys.POD_GROUP_MEMBER_RESOURCE}
        return names & self._offers()

    def _offers(self) -> frozenset[str]:
        if self._offered is None:
            self._offered = frozenset(
                name for room in self._nodes.values() for name in room.allocatable
            )
        return self._offered

    def _free_of(self, shape: Shape) -> Iterator[Mapping[str, int]]:
        for name, room in self._nodes.items():
            if room.admits(shape):
                yield self._free_on(name, room, shape.priority, preempts=shape.preempts)

    def _free_on(
        self, name: str, room: NodeRoom, priority: int, *, preempts: bool
    ) -> Mapping[str, int]:
        used = self._used.get(name)
        if not used:
            return room.allocatable
        free = dict(room.allocatable)
        for other, amounts in used.items():
            if preempts and other < priority:
                continue
            for resource, amount in amounts.items():
                free[resource] = free.get(resource, 0) - amount
        return free

    def _sum_fits(self, shapes: Counter[Shape], wanted: int) -> bool:
        """Whether the smallest so many fit into all that is free, resource by resource."""
        priority = max(shape.priority for shape in shapes)
        preempts = any(shape.preempts for shape in shapes)
        for resource in {name for shape in shapes for name in self._counted(shape)}:
            each = sorted(
                (dict(shape.requests).get(resource, 0), count) for shape, count in shapes.items()
            )
            need, left = 0, wanted
            for amount, count in each:
                need += amount * min(count, left)
                left -= min(count, left)
            free = self._total(priority, preempts=preempts).get(resource, 0)
            if need > free:
                return False
        return True

    def _total(self, priority: int, *, preempts: bool) -> Counter[str]:
        total = self._free.get((priority, preempts))
        if total is None:
            total = self._free[priority, preempts] = Counter()
            for name, room in self._nodes.items():
                free = self._free_on(name, room, priority, preempts=preempts)
                for resource, amount in free.items():
                    total[resource] += max(0, amount)
        return total

    # -- accounts -----------------------------------------------------------------------------

    def _put(self, uid: str, load: _Load) -> None:
        self._pods[uid] = load
        self._account(load, 1)

    def _take(self, uid: str) -> None:
        self._account(self._pods.pop(uid), -1)

    def _account(self, load: _Load, sign: int) -> None:
        self._forget()
        if load.place:
            by_priority = self._used.setdefault(load.place, {})
            amounts = by_priority.setdefault(load.shape.priority, Counter())
            for resource, amount in load.shape.requests:
                amounts[resource] += sign * amount
            if not any(amounts.values()):
                del by_priority[load.shape.priority]
                if not by_priority:
                    del self._used[load.place]
        elif load.group is not None:
            _count(self._unplaced, load.group, load.shape, sign)
        self._account_group(load.group, load.shape, sign)

    def _account_group(self, group: PodGroupKey | None, shape: Shape, sign: int) -> None:
        if group is not None:
            _count(self._shapes, group, shape, sign)

    def _forget(self) -> None:
        self._places.clear()
        self._free.clear()


def _count(
    groups: dict[PodGroupKey, Counter[Shape]], group: PodGroupKey, shape: Shape, sign: int
) -> None:
    shapes = groups.setdefault(group, Counter())
    shapes[shape] += sign
    if not shapes[shape]:
        del shapes[shape]
        if not shapes:
            del groups[group]


# -- what objects say -----------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def milli(text: str | float) -> int:
    """A quantity in thousandths; 0 if it is none."""
    value = quantity(text)
    return int(value * MILLI) if not isinstance(value, str) else 0


def amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """Quantities by resource."""
    return {name: milli(value) for name, value in resources.items()}


def pod_requests(
    containers: Iterable[Mapping[str, Any]],
    init_containers: Iterable[tuple[Mapping[str, Any], bool]] = (),
    *,
    pod_level: Mapping[str, Any] | None = None,
    overhead: Mapping[str, Any] | None = None,
) -> Amounts:
    """What a pod takes of a node.

    Containers run together, with the sidecars; other init containers one by one before them, each
    beside the sidecars that were started before it. What is requested for the whole pod counts in
    place of its containers' sum.

    Args:
        containers: requests of each.
        init_containers: requests of each in order, and whether it is a sidecar (it stays).
        pod_level: requests of the pod.
        overhead: of its runtime class.
    """
    total: Counter[str] = Counter()
    for requests in containers:
        total.update(amounts(requests))
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for requests, stays in init_containers:
        own = Counter(amounts(requests))
        if stays:
            sidecars += own
        peak |= sidecars if stays else own + sidecars
    total = (total + sidecars) | peak
    total.update({name: amount - total[name] for name, amount in amounts(pod_level or {}).items()})
    total.update(amounts(overhead or {}))
    total["pods"] = MILLI
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))
