"""Whether a group can have room at all: sums over nodes, kept up to date by what changes.

A gate cannot be put back, and a group that is lifted without room costs the scheduler attempts,
then waits for its back-off when there is room at last. So a group is lifted when there may be room
for it. What is tested is necessary, never sufficient: what is not looked at here (affinity between
pods, spreading, volumes, ports, resources that no node offers) only makes the answer "perhaps".
Whether pods really fit is the scheduler's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import attrs

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.node_index import (
    ALL_PODS,
    NO_PODS,
    Admission,
    Log,
    Node,
    Places,
    Survey,
    Totals,
)
from jobsetpy.coscheduler.gang_scheduler.node_rules import NodeConstraints, NodeRoom
from jobsetpy.coscheduler.gang_scheduler.requests import Amounts
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 1000
"""So many surveys of each kind are kept, of 4 bytes a node and more."""

_UNBOUNDED: Final = 1 << 60

ANYWHERE: Final = NodeConstraints()
"""Of a pod that says nothing of nodes."""


@attrs.frozen(slots=True, cache_hash=True)
class Shape:
    """What of a pod decides which nodes have room for it.

    Args:
        requests: what it asks for, the pod itself as one of ``pods`` included.
        placement: which nodes let it in.
        priority: of the pod.
        preempts: whether pods of lower priority would be deleted for it.
    """

    requests: Amounts
    placement: NodeConstraints = ANYWHERE
    priority: int = 0
    preempts: bool = True

    @property
    def level(self) -> float:
        """Pods of lower priorities are not in its way."""
        return self.priority if self.preempts else ALL_PODS


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
    """Room of all nodes, and what the pods of groups need.

    Args:
        steps: look at no more than so many nodes between two calls of :meth:`work`; what is not
            known by then is answered with ``None``. 0 for no bound.
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
        self._reserved: dict[PodGroupKey, set[str]] = {}
        self._admissions: dict[NodeConstraints, Admission] = {}
        self._places: dict[tuple[Shape, float], Places] = {}
        self._totals: dict[tuple[frozenset[NodeConstraints], float], Totals] = {}
        self._pending: dict[Survey, None] = {}
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

    @property
    def pending(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._pending)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is known."""
        return uid in self._pods

    # -- what changes -------------------------------------------------------------------------

    def node(self, name: str, room: NodeRoom | None) -> None:
        """A node is new, has changed, or is gone (``None``)."""
        node = self._nodes.get(name)
        before = None if node is None else node.room
        if before == room:
            return
        if node is None:
            node = self._add_node(name)
        node.room = room
        self._growth += room is not None
        self._account_offers(before, room)
        self._itself_changed(node)
        self._has_changed(name, node)

    def pod(self, uid: str, shape: Shape, *, node: str, group: PodGroupKey | None) -> None:
        """A pod that has not ended is new, or has changed."""
        known = self._pods.get(uid)
        if known is None:
            self._put(uid, _Load(node, shape, group))
        elif (known.node or known.reserved, known.shape, known.group) == (node, shape, group):
            if node != known.node:  # bound where its room was reserved
                self._account_reserved(uid, known, -1)
                known.node = node
        elif (known.node, known.shape, known.group) != (node, shape, group):
            self._growth += bool(known.place) and (known.place, known.shape) != (node, shape)
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

    def fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """Whether there may be room for so many more of a group's pods that have none yet.

        True if fewer than ``wanted`` such pods are known: nothing is known of the others. ``None``
        if there is more to look at than may be now: ask again when :meth:`work` is done.
        """
        return self._answer(group, wanted)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """The same, if there were no other pods."""
        return self._answer(group, wanted, level=NO_PODS)

    def fits_without(
        self, group: PodGroupKey, wanted: int, others: Iterable[PodGroupKey]
    ) -> bool | None:
        """The same, if other groups gave up what is reserved for them; O(their pods)."""
        freed: dict[Node, dict[int, Counter[str]]] = {}
        for load in (self._pods[uid] for other in others for uid in self._reserved.get(other, ())):
            at = freed.setdefault(self._nodes[load.reserved], {})
            at.setdefault(load.shape.priority, Counter()).update(dict(load.shape.requests))
        return self._answer(group, wanted, freed=freed)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """Whether pods of two groups may be on the same node, as far as is known."""
        mine, others = (
            {self._admission(shape.placement) for shape in self._shapes.get(key, ())}
            for key in (group, other)
        )
        for each in mine | others:
            if not self._known(each):
                return bool(mine and others)
        return any(a.overlaps(b) for a in mine for b in others)

    def work(self) -> bool:
        """Go on with what was asked, for some steps; whether anything is left to do."""
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
        room, all_known = 0, True
        for shape, count in shapes.items():
            places = self._places_of(shape, shape.level if level is None else level)
            if self._known(places):
                more = sum(places.more(node, pods) for node, pods in (freed or {}).items())
                room += min(count, places.total + more)
            else:
                all_known = False
        if not all_known:
            return None
        if room < wanted:
            return False
        return True if len(shapes) == 1 or freed else self._sums_fit(shapes, wanted, level)

    def _sums_fit(self, shapes: Counter[Shape], wanted: int, level: float | None) -> bool | None:
        """Whether the smallest so many fit in sum, on all nodes that let any of them in.

        And of those that are let in by the same nodes as many as there have to be.
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
        """Bring a survey up to date if that may be now; whether it is."""
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
        """What a pod asks for that nodes have to offer.

        What no node offers is perhaps no resource of nodes at all: the scheduler may have been told
        to leave it out, or devices be claimed for it. Of a pod that is marked for the extender that
        is the mark, and it has to have the rest before it is lifted: kube-scheduler judges by all
        requests, mark included, whether a node that is new or has grown is a reason to try again,
        and so does not for five minutes.
        """
        mark = keys.POD_GROUP_MEMBER_RESOURCE
        if any(name == mark for name, _ in shape.requests):
            return tuple(each for each in shape.requests if each[0] != mark)
        return tuple(each for each in shape.requests if each[0] in self._offers)

    # -- accounts -----------------------------------------------------------------------------

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
        if node.room is None and not node.used:
            del self._nodes[name]
            self._numbers[node.at] = None
            self._spare.append(node.at)

    def _account_offers(self, before: NodeRoom | None, after: NodeRoom | None) -> None:
        old, new = ({} if each is None else each.allocatable for each in (before, after))
        known = len(self._offers)
        self._offers.update(new.keys() - old.keys())
        changed = len(self._offers) != known
        for resource in old.keys() - new.keys():
            self._offers[resource] -= 1
            if not self._offers[resource]:
                del self._offers[resource]
                changed = True
        if changed:
            self._places.clear()  # what counts of a pod's requests is not what it was

    def _put(self, uid: str, load: _Load) -> None:
        self._pods[uid] = load
        self._account(uid, load, 1)

    def _take(self, uid: str) -> None:
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
        if sign > 0:
            self._reserved.setdefault(load.group, set()).add(uid)
            return
        uids = self._reserved[load.group]
        uids.discard(uid)
        if not uids:
            del self._reserved[load.group]


def _keep(kept: dict[K, V], key: K, value: V) -> V:
    """Keep what was asked for last."""
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
