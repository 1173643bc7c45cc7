"""What room nodes have left, told by one process to another in few words.

The coscheduler knows all nodes and pods; who makes pods of groups knows neither, and only asks
whether a whole group would find room by count. So nodes that are alike in what they have left, in
labels and in taints are told as one with a number. Labels that nearly each node has its own of, as
its name, are left out; if that is not short enough, amounts are rounded down, then labels are left
out altogether, and at last nothing is told. Each step makes the room look smaller, never larger.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

import attrs

from jobsetpy.domain.coscheduling.capacity import Shape
from jobsetpy.domain.coscheduling.node_rules import NodeRoom, Placement, Taint
from jobsetpy.domain.coscheduling.requests import Amounts

VALUES: Final = 16
"""A label with more values than this is not told of."""
KINDS: Final = 200
"""No more kinds of nodes than this are told of."""


@attrs.frozen(slots=True)
class Vacancy:
    """Nodes that are alike.

    Args:
        number: how many there are.
        free: what each of them has left.
        labels: what they have of the labels that are told.
        taints: theirs.
    """

    number: int
    free: Amounts
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()

    def admits(self, placement: Placement) -> bool:
        """Whether labels and taints let such a pod in."""
        return NodeRoom({}, dict(self.labels), self.taints).admits(placement)

    def holds(self, requests: Amounts) -> int:
        """How many such pods one of these nodes has room for."""
        free = dict(self.free)
        return max(0, min((free.get(name, 0) // amount for name, amount in requests), default=0))

    def less(self, requests: Amounts, pods: int, nodes: int) -> Vacancy:
        """So many of these nodes with so many such pods on each."""
        taken = dict(requests)
        left = ((name, amount - pods * taken.get(name, 0)) for name, amount in self.free)
        return attrs.evolve(self, number=nodes, free=tuple(each for each in left if each[1] > 0))


@attrs.frozen
class Vacancies:
    """All nodes that have something left.

    Args:
        nodes: by kind.
        labels: which labels are told; of others nothing is known.
    """

    nodes: tuple[Vacancy, ...] = ()
    labels: frozenset[str] = frozenset()

    def without(self, shape: Shape, pods: int) -> Vacancies | None:
        """What is left when so many such pods are there; ``None`` if there is no room for them.

        That they fit is by count: each node is filled before the next one. The scheduler may see
        it otherwise. Nor is there room where that depends on labels that are not told.
        """
        placement = shape.placement
        asked = {key for key, _ in placement.selector}
        for term in placement.terms or ():
            if term.fields:
                return None
            asked.update(each.key for each in term.labels)
        if not asked <= self.labels:
            return None
        out: list[Vacancy] = []
        left = pods
        for kind in self.nodes:
            each = kind.holds(shape.requests) if left > 0 and kind.admits(placement) else 0
            if not each:
                out.append(kind)
                continue
            full = min(kind.number, left // each)
            rest = min(left - full * each, each) if full < kind.number else 0
            untouched = kind.number - full - (rest > 0)
            left -= full * each + rest
            if untouched:
                out.append(attrs.evolve(kind, number=untouched))
            if full:
                out.append(kind.less(shape.requests, each, full))
            if rest:
                out.append(kind.less(shape.requests, rest, 1))
        if left > 0:
            return None
        return attrs.evolve(self, nodes=tuple(each for each in out if each.free))

    def encoded(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "labels": sorted(self.labels),
            "nodes": [
                {
                    "number": each.number,
                    "free": dict(each.free),
                    "labels": dict(each.labels),
                    "taints": [[taint.key, taint.value, taint.effect] for taint in each.taints],
                }
                for each in self.nodes
            ],
        }


def decoded(value: Any) -> Vacancies:
    """What :meth:`Vacancies.encoded` has made.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is something else.
    """
    nodes = tuple(
        Vacancy(
            number=int(each["number"]),
            free=tuple(sorted((str(name), int(amount)) for name, amount in each["free"].items())),
            labels=tuple(sorted((str(key), str(text)) for key, text in each["labels"].items())),
            taints=tuple(Taint(*map(str, taint)) for taint in each["taints"]),
        )
        for each in value["nodes"]
    )
    return Vacancies(nodes, frozenset(map(str, value["labels"])))


class LabelValues:
    """Decides which labels are told."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = defaultdict(set)

    def add(self, room: NodeRoom) -> None:
        """Look at a node."""
        for key, text in room.labels.items():
            if len(self._values[key]) <= VALUES:
                self._values[key].add(text)

    def told(self) -> frozenset[str]:
        """The labels with few values."""
        return frozenset(key for key, texts in self._values.items() if len(texts) <= VALUES)


class Summary:
    """Counts nodes that are alike.

    Args:
        labels: those that are told.
    """

    def __init__(self, labels: frozenset[str]) -> None:
        self.labels = labels
        self._kinds: Counter[tuple[Amounts, tuple[tuple[str, str], ...], tuple[Taint, ...]]]
        self._kinds = Counter()

    def add(self, room: NodeRoom, free: Mapping[str, int]) -> None:
        """Count a node in; what is free of each resource is in thousandths."""
        left = tuple(sorted((name, amount) for name, amount in free.items() if amount > 0))
        if left:
            labels = ((key, text) for key, text in room.labels.items() if key in self.labels)
            self._kinds[left, tuple(sorted(labels)), room.taints] += 1

    def vacancies(self) -> Vacancies:
        """What is told: as much as can be with no more than :data:`KINDS` kinds."""
        kinds, labels = self._kinds, self.labels
        for rounded, bare in ((False, False), (True, False), (True, True)):
            if len(kinds) <= KINDS:
                break
            fewer: Counter[Any] = Counter()
            for (free, own, taints), number in kinds.items():
                free = tuple((name, _rounded(amount)) for name, amount in free) if rounded else free
                fewer[free, () if bare else own, taints] += number
            kinds, labels = fewer, frozenset() if bare else labels
        if len(kinds) > KINDS:
            return Vacancies()
        nodes = (Vacancy(number, *kind) for kind, number in kinds.items())
        return Vacancies(tuple(sorted(nodes, key=repr)), labels)


def _rounded(amount: int) -> int:
    """Down to a power of two."""
    return 1 << (amount.bit_length() - 1)
