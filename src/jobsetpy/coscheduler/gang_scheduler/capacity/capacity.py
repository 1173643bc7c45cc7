"""Capacity check for gangs: sums over nodes, updated incrementally.

A gate cannot be put back, and a gang that is ungated without capacity costs the scheduler attempts,
and then has to wait for a back-off once there is capacity. So a gang is ungated only when it may
fit. The check is necessary, never sufficient: criteria that are not evaluated here (affinity
between pods, spreading, volumes, ports, resources that no node offers) can only make a positive
answer wrong. The scheduler decides if pods really fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import attrs

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.capacity.node_index import (
    ALL_PODS,
    NO_PODS,
    Admission,
    Log,
    Node,
    Places,
    Survey,
    Totals,
)
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import NodeConstraints, NodeInfo
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import Amounts
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 1000
"""Maximum number of surveys kept of each kind, of at least 4 bytes per node."""

_UNBOUNDED: Final = 1 << 60

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


class Capacity:
    """Free capacity of all nodes, and requests of the pods in gangs.

    Args:
        steps: maximum number of nodes checked between two calls of :meth:`work`; questions that are
            not answered by then return ``None``. 0 for no bound.
    """

    def __init__(self, steps: int = 0) -> None:
        self._steps = self._left = steps or _UNBOUNDED
        self._nodes: dict[str, Node] = {}
        self._numbers: list[Node | None] = []
        self._spare: list[int] = []
        self._changed = Log()
        self._changed_themselves = Log()
        self._offers: Counter[str] = Counter()
        self._pods: dict[str, _Load] = {}
        self._unplaced: dict[PodGroupKey, Counter[Shape]] = {}
        self._shapes: dict[PodGroupKey, Counter[Shape]] = {}
        self._reserved: defaultdict[PodGroupKey, set[str]] = defaultdict(set)
        self._admissions: dict[NodeConstraints, Admission] = {}
        self._places: dict[tuple[Shape, float], Places] = {}
        self._totals: dict[tuple[frozenset[NodeConstraints], float], Totals] = {}
        self._pending: dict[Survey, None] = {}
        self.growth = 0
        """Counter of changes of pods or nodes that may have freed capacity."""
        self.released = 0
        """Counter of reservations that were given up."""

    @property
    def pending(self) -> bool:
        """Return whether an answer is still being computed."""
        return bool(self._pending)

    def __contains__(self, uid: str) -> bool:
        """Return whether a pod is known."""
        return uid in self._pods

    # -- updates ------------------------------------------------------------------------------

    def node(self, name: str, info: NodeInfo | None) -> None:
        """Update a node that is new, has changed, or was deleted (``None``)."""
        node = self._nodes.get(name)
        before = None if node is None else node.info
        if before == info:
            return
        if node is None:
            node = self._add_node(name)
        node.info = info
        self.growth += info is not None
        self._account_offers(before, info)
        self._itself_changed(node)
        self._has_changed(name, node)

    def pod(self, uid: str, shape: Shape, *, node: str, group: PodGroupKey | None) -> None:
        """Update an active pod that is new or has changed."""
        known = self._pods.get(uid)
        if known is None:
            self._add(uid, _Load(node, shape, group))
        elif (known.node or known.reserved, known.shape, known.group) == (node, shape, group):
            if node != known.node:  # bound to the node that was reserved
                self._account_reserved(uid, known, -1)
                known.node = node
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

    def fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Return whether this number of further pods of a gang may fit.

        True if fewer than ``wanted`` unplaced pods are known: the others are unknown. ``None`` if
        the check exceeds the current step limit: ask again after :meth:`work`.
        """
        return self._answer(group, wanted)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Return :meth:`fits` for a cluster without other pods."""
        return self._answer(group, wanted, level=NO_PODS)

    def fits_without(
        self, group: PodGroupKey, wanted: int, others: Iterable[PodGroupKey]
    ) -> bool | None:
        """Return :meth:`fits` without the reservations of other gangs; O(their pods)."""
        freed: dict[Node, dict[int, Counter[str]]] = {}
        for load in (self._pods[uid] for other in others for uid in self._reserved.get(other, ())):
            at = freed.setdefault(self._nodes[load.reserved], {})
            at.setdefault(load.shape.priority, Counter()).update(dict(load.shape.requests))
        return self._answer(group, wanted, freed=freed)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Return whether pods of two gangs may be placed on the same node, as far as is known."""
        mine, others = (
            {self._admission(shape.placement) for shape in self._shapes.get(key, ())}
            for key in (group, other)
        )
        for each in mine | others:
            if not self._known(each):
                return bool(mine and others)
        return any(a.overlaps(b) for a in mine for b in others)

    def work(self) -> bool:
        """Continue pending checks for a number of steps; return whether any are left."""
        self._left = self._steps
        return any(not self._known(survey) for survey in list(self._pending))

    def _answer(
        self,
        group: PodGroupKey,
        wanted: int,
        *,
        level: float | None = None,
        freed: Mapping[Node, Mapping[int, Mapping[str, int]]] | None = None,
    ) -> bool | None:
        shapes = self._unplaced.get(group)
        if wanted <= 0 or shapes is None or shapes.total() < wanted:
            return True
        capacity, all_known = 0, True
        for shape, count in shapes.items():
            places = self._places_of(shape, shape.level if level is None else level)
            if self._known(places):
                more = sum(places.more(node, pods) for node, pods in (freed or {}).items())
                capacity += min(count, places.total + more)
            else:
                all_known = False
        if not all_known:
            return None
        if capacity < wanted:
            return False
        return True if len(shapes) == 1 or freed else self._sums_fit(shapes, wanted, level)

    def _sums_fit(self, shapes: Counter[Shape], wanted: int, level: float | None) -> bool | None:
        """Return whether the ``wanted`` smallest pods fit in sum into the nodes that admit any.

        The pods that are admitted by the same nodes are also checked, as many as have to be placed.
        """
        if level is None:
            level = max(shape.level for shape in shapes)
        kinds: dict[NodeConstraints, Counter[Shape]] = {}
        for shape, count in shapes.items():
            kinds.setdefault(shape.placement, Counter())[shape] = count
        others = shapes.total()
        parts = [(wanted - others + each.total(), each) for each in kinds.values()]
        for least, part in [(wanted, shapes), *(parts if len(parts) > 1 else ())]:
            if least <= 0:
                continue
            totals = self._totals_of(frozenset(shape.placement for shape in part), level)
            if not self._known(totals):
                return None
            if not self._sum_fits(part, least, totals.free):
                return False
        return True

    def _sum_fits(self, shapes: Counter[Shape], wanted: int, free: Mapping[str, int]) -> bool:
        for resource in {name for shape in shapes for name, _ in self._asked(shape)}:
            each = sorted(
                (dict(shape.requests).get(resource, 0), count) for shape, count in shapes.items()
            )
            need, left = 0, wanted
            for amount, count in each:
                need += amount * min(count, left)
                left -= min(count, left)
            if need > free.get(resource, 0):
                return False
        return True

    # -- surveys ------------------------------------------------------------------------------

    def _known(self, survey: Survey) -> bool:
        """Advance a survey within the step limit; return whether it is complete."""
        if not survey.known:
            self._left = survey.advance(self._left)
        if survey.known:
            self._pending.pop(survey, None)
            return True
        self._pending[survey] = None
        return False

    def _admission(self, placement: NodeConstraints) -> Admission:
        found = self._admissions.pop(placement, None)
        if found is None:
            found = Admission(self._numbers, self._changed_themselves, placement)
        return _keep(self._admissions, placement, found)

    def _places_of(self, shape: Shape, level: float) -> Places:
        found = self._places.pop((shape, level), None)
        if found is None:
            admission = self._admission(shape.placement)
            asked = self._asked(shape)
            found = Places(self._numbers, self._changed, admission, level, asked)
        return _keep(self._places, (shape, level), found)

    def _totals_of(self, placements: frozenset[NodeConstraints], level: float) -> Totals:
        found = self._totals.pop((placements, level), None)
        if found is None:
            admissions = [self._admission(each) for each in placements]
            found = Totals(self._numbers, self._changed, admissions, level)
        return _keep(self._totals, (placements, level), found)

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

    def _add_node(self, name: str) -> Node:
        if self._spare:
            node = Node(self._spare.pop())
            self._numbers[node.at] = node
        else:
            node = Node(len(self._numbers))
            self._numbers.append(node)
        self._nodes[name] = node
        self._itself_changed(node)
        return node

    def _itself_changed(self, node: Node) -> None:
        self._changed_themselves.note(node.at, len(self._numbers))

    def _has_changed(self, name: str, node: Node) -> None:
        node.changed()
        self._changed.note(node.at, len(self._numbers))
        if node.info is None and not node.used:
            del self._nodes[name]
            self._numbers[node.at] = None
            self._spare.append(node.at)

    def _account_offers(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        old, new = ({} if each is None else each.allocatable for each in (before, after))
        known = set(self._offers)
        self._offers.update(new.keys() - old.keys())
        self._offers -= Counter(old.keys() - new.keys())
        if self._offers.keys() != known:
            self._places.clear()  # the relevant part of a pod's requests has changed

    def _add(self, uid: str, load: _Load) -> None:
        self._pods[uid] = load
        self._account(uid, load, 1)

    def _remove(self, uid: str) -> None:
        self._account(uid, self._pods.pop(uid), -1)

    def _account(self, uid: str, load: _Load, sign: int) -> None:
        if load.place:
            self._account_place(load, sign)
        elif load.group is not None:
            _count(self._unplaced, load.group, load.shape, sign)
        if load.group is not None:
            _count(self._shapes, load.group, load.shape, sign)
        self._account_reserved(uid, load, sign)

    def _account_place(self, load: _Load, sign: int) -> None:
        node = self._nodes.get(load.place) or self._add_node(load.place)
        amounts = node.used.setdefault(load.shape.priority, Counter())
        for resource, amount in load.shape.requests:
            amounts[resource] += sign * amount
        if not any(amounts.values()):
            del node.used[load.shape.priority]
        self._has_changed(load.place, node)

    def _account_reserved(self, uid: str, load: _Load, sign: int) -> None:
        if load.group is None or load.node or not load.reserved:
            return
        uids = self._reserved[load.group]
        (uids.add if sign > 0 else uids.discard)(uid)
        if not uids:
            del self._reserved[load.group]


def _keep(kept: dict[K, V], key: K, value: V) -> V:
    """Keep the most recently used entries."""
    kept[key] = value
    if len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]
    return value


def _count(
    groups: dict[PodGroupKey, Counter[Shape]], group: PodGroupKey, shape: Shape, sign: int
) -> None:
    shapes = groups.setdefault(group, Counter())
    shapes[shape] += sign
    if not shapes[shape]:
        del shapes[shape]
        if not shapes:
            del groups[group]
