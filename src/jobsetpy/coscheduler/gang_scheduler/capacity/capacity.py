"""Capacity check for gangs: does one fit, and could it ever?

A gate cannot be put back, and a gang that is ungated without capacity costs the scheduler attempts,
and then has to wait for a back-off once there is capacity. So a gang is ungated only when it may
fit. The check is necessary, never sufficient: criteria that are not evaluated here (pods of
different kinds on one node, affinity between pods, spreading, volumes, ports, resources that no
node offers) can only make a positive answer wrong. The scheduler decides if pods really fit.

The first question about a kind of pod scans all nodes; afterwards a change of a node adds the
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import NodeConstraints, NodeInfo
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import Amounts
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

_REMEMBERED: Final = 100
"""Maximum number of kinds of pods whose number of places is kept up to date."""

_MANY: Final = 1_000_000_000
"""Upper bound for the number of pods on a node."""

ALL_PODS: Final = float("-inf")
"""Level at which all pods use capacity."""
NO_PODS: Final = float("inf")
"""Level at which no pod uses capacity."""

ANYWHERE: Final = NodeConstraints()
"""Constraints of a pod without any."""


@attrs.frozen(slots=True, cache_hash=True)
class Shape:
    """Properties of a pod that decide which nodes have capacity for it.

    Args:
        requests: resource requests of the pod, including itself as one of ``pods``.
        placement: constraints on its node.
        priority: priority of the pod.
        preempts: pods of lower priority may be deleted for it.
    """

    requests: Amounts
    placement: NodeConstraints = ANYWHERE
    priority: int = 0
    preempts: bool = True

    @property
    def level(self) -> float:
        """Lowest priority of the pods that count against its capacity."""
        return self.priority if self.preempts else ALL_PODS


@attrs.define(slots=True)
class _Load:
    """Pod with its node or reserved node, its requests, and the gang that waits for it."""

    node: str
    shape: Shape
    group: PodGroupKey | None
    reserved: str = ""

    @property
    def place(self) -> str:
        return self.node or self.reserved


class _Node:
    """Node, or the pods of an unknown node."""

    __slots__ = ("_free", "info", "used")

    def __init__(self) -> None:
        self.info: NodeInfo | None = None
        self.used: dict[int, Counter[str]] = {}
        self._free: dict[float, Mapping[str, int]] = {}

    def free(self, info: NodeInfo, level: float) -> Mapping[str, int]:
        """Return the capacity that pods with a priority of at least ``level`` leave."""
        if not self.used:
            return info.allocatable
        found = self._free.get(level)
        if found is None:
            free = dict(info.allocatable)
            for priority, amounts in self.used.items():
                if priority >= level:
                    for resource, amount in amounts.items():
                        free[resource] = free.get(resource, 0) - amount
            found = self._free[level] = free
        return found

    def changed(self) -> None:
        """Invalidate cached results."""
        self._free.clear()


@attrs.define(slots=True)
class _Places:
    """Number of pods of one kind that fit on all nodes.

    Args:
        placement: constraints of the pods.
        asked: requests of a pod.
        level: pods of lower priority are ignored.
    """

    placement: NodeConstraints
    asked: Amounts
    level: float
    total: int = 0

    def on(self, node: _Node) -> int:
        """Return the number of pods that fit on one node."""
        info = node.info
        if info is None or not info.admits(self.placement):
            return 0
        free, least = node.free(info, self.level), _MANY if self.asked else 0
        for resource, amount in self.asked:
            least = min(least, free.get(resource, 0) // amount)
        return max(0, least)


class Capacity:
    """Free capacity of all nodes, and requests of the pods in gangs.

    Attributes:
        growth: counter of changes of pods or nodes that may have freed capacity.
        released: counter of reservations that were given up.
        scans: counter of scans of all nodes.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._offers: Counter[str] = Counter()
        self._pods: dict[str, _Load] = {}
        self._unplaced: dict[PodGroupKey, Counter[Shape]] = {}
        self._shapes: dict[PodGroupKey, Counter[Shape]] = {}
        self._places: dict[tuple[Shape, float], _Places] = {}
        self.growth = self.released = self.scans = 0

    def __contains__(self, uid: str) -> bool:
        """Return whether a pod is known."""
        return uid in self._pods

    # -- updates ------------------------------------------------------------------------------

    def node(self, name: str, info: NodeInfo | None) -> None:
        """Update a node that is new, has changed, or was deleted (``None``)."""
        node = self._nodes.get(name)
        before = None if node is None else node.info
        if before != info:
            self.growth += info is not None
            self._account_offers(before, info)
            with self._changing(name) as changed:
                changed.info = info

    def pod(self, uid: str, shape: Shape, *, node: str, group: PodGroupKey | None) -> None:
        """Update an active pod that is new or has changed."""
        known = self._pods.get(uid)
        if known is None:
            self._add(uid, _Load(node, shape, group))
        elif (known.node or known.reserved, known.shape, known.group) == (node, shape, group):
            known.node = node  # bound to the node that was reserved, or not changed
        elif (known.node, known.shape, known.group) != (node, shape, group):
            self.growth += bool(known.place) and (known.place, known.shape) != (node, shape)
            self._remove(uid)
            self._add(uid, _Load(node, shape, group, known.reserved))

    def gone(self, uid: str) -> None:
        """Remove a pod that has ended or was deleted."""
        known = self._pods.get(uid)
        if known is not None:
            self.growth += bool(known.place)
            self._remove(uid)

    def reserve(self, uid: str, node: str) -> None:
        """Reserve a node that the scheduler has assigned to a pod, until it is bound.

        "" gives up the reservation, unless the pod has been bound to the node.
        """
        known = self._pods.get(uid)
        if known is not None and known.reserved != node:
            self.released += not known.node and bool(known.reserved)
            self._remove(uid)
            self._add(uid, attrs.evolve(known, reserved=node))

    # -- queries ------------------------------------------------------------------------------

    def fits(self, group: PodGroupKey, wanted: int) -> bool:
        """Return whether this number of further pods of a gang may fit.

        True if fewer than ``wanted`` unplaced pods are known: the others are unknown.
        """
        return self._fits(group, wanted)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool:
        """Return :meth:`fits` for a cluster without other pods."""
        return self._fits(group, wanted, level=NO_PODS)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Return whether pods of two gangs may be placed on the same node: by their selectors."""
        mine, others = (
            {shape.placement.selector for shape in self._shapes.get(key, ())}
            for key in (group, other)
        )
        return any(_agree(dict(one), dict(two)) for one in mine for two in others)

    def _fits(self, group: PodGroupKey, wanted: int, level: float | None = None) -> bool:
        shapes = self._unplaced.get(group)
        if wanted <= 0 or shapes is None or shapes.total() < wanted:
            return True
        return wanted <= sum(
            min(count, self._total(shape, shape.level if level is None else level))
            for shape, count in shapes.items()
        )

    def _total(self, shape: Shape, level: float) -> int:
        """Return the number of pods of a kind that fit; the most recently used are remembered."""
        key = (shape, level)
        found = self._places.pop(key, None)
        if found is None:
            found = _Places(shape.placement, self._asked(shape), level)
            found.total = sum(map(found.on, self._nodes.values()))
            self.scans += 1
            if len(self._places) >= _REMEMBERED:
                del self._places[next(iter(self._places))]
        self._places[key] = found
        return found.total

    def _asked(self, shape: Shape) -> Amounts:
        """Return the requests of a pod for resources that nodes have to offer.

        A resource that no node offers may not be a resource of nodes: the scheduler may be
        configured to ignore it, or devices be claimed for it. For pods that request 1 of the mark
        for the extender instead of 0 (those of version 0.2 and earlier, or marked by their users)
        only the mark is ignored, and they need all other resources before they are ungated:
        kube-scheduler uses all requests, including the mark, to decide if a new or larger node is a
        reason to retry, and so does not retry for five minutes.
        """
        mark = keys.POD_GROUP_MEMBER_RESOURCE
        if any(name == mark for name, _ in shape.requests):
            return tuple(each for each in shape.requests if each[0] != mark)
        return tuple(each for each in shape.requests if each[0] in self._offers)

    # -- accounting ---------------------------------------------------------------------------

    @contextmanager
    def _changing(self, name: str) -> Iterator[_Node]:
        """Change a node in the block; then the numbers of places on it are counted again."""
        node = self._nodes.setdefault(name, _Node())
        before = [each.on(node) for each in self._places.values()]
        yield node
        node.changed()
        for places, count in zip(self._places.values(), before, strict=True):
            places.total += places.on(node) - count
        if node.info is None and not node.used:
            del self._nodes[name]

    def _account_offers(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        old, new = ({} if each is None else each.allocatable for each in (before, after))
        known = set(self._offers)
        self._offers.update(new.keys() - old.keys())
        self._offers -= Counter(old.keys() - new.keys())
        if self._offers.keys() != known:
            self._places.clear()  # the relevant part of a pod's requests has changed

    def _add(self, uid: str, load: _Load) -> None:
        self._pods[uid] = load
        self._account(load, 1)

    def _remove(self, uid: str) -> None:
        self._account(self._pods.pop(uid), -1)

    def _account(self, load: _Load, sign: int) -> None:
        if load.place:
            self._account_place(load, sign)
        elif load.group is not None:
            _count(self._unplaced, load.group, load.shape, sign)
        if load.group is not None:
            _count(self._shapes, load.group, load.shape, sign)

    def _account_place(self, load: _Load, sign: int) -> None:
        priority = load.shape.priority
        with self._changing(load.place) as node:
            amounts = node.used.setdefault(priority, Counter())
            for resource, amount in load.shape.requests:
                amounts[resource] += sign * amount
            if not any(amounts.values()):
                del node.used[priority]


def _agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether a node may have the labels of both selectors."""
    return all(other.get(key, value) == value for key, value in one.items())


def _count(
    groups: dict[PodGroupKey, Counter[Shape]], group: PodGroupKey, shape: Shape, sign: int
) -> None:
    shapes = groups.setdefault(group, Counter())
    shapes[shape] += sign
    if not shapes[shape]:
        del shapes[shape]
        if not shapes:
            del groups[group]
