"""Rules for the nodes that admit a pod: node selectors, required node affinity, taints.

The rules are those of kube-scheduler's filters NodeAffinity, TaintToleration and NodeUnschedulable
(Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and Tolerations").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from jobsetpy.api._wire import field, wire

UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
NAME_FIELD: Final = "metadata.name"
"""Only node field that ``matchFields`` may refer to."""

MAX_REQUIREMENTS: Final = 100
"""Maximum number of requirements of a pod's node affinity that are checked for each node.

A pod with more is treated as admitted by all nodes: the scheduler has decided, and a pod with
20,000 terms would block the loop for seconds.
"""
MAX_TOLERATIONS: Final = 100
"""Maximum number of tolerations that are checked; a pod with more tolerates all taints here."""

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")


@attrs.frozen(slots=True)
class Taint:
    """Taint of a node, also as the API server returns it."""

    key: str = ""
    value: str = ""
    effect: str = ""


@attrs.frozen(slots=True)
class Toleration:
    """Toleration of a pod, also as in its spec; an empty key or effect matches all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a pod tolerates a node's taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        # Operators that are unknown here (comparisons of numbers) may be satisfied.
        return self.operator not in {"", "Equal"} or (bool(self.key) and self.value == taint.value)


@attrs.frozen(slots=True)
class Requirement:
    """Requirement on a label or field of a node, also as in a pod's spec."""

    key: str = ""
    operator: str = ""
    values: frozenset[str] = attrs.field(default=frozenset(), converter=frozenset)

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy it; an operator that is unknown here may be satisfied."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return True

    def _compares(self, value: str | None) -> bool:
        bound = _integer(min(self.values)) if len(self.values) == 1 else None
        number = None if value is None else _integer(value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


@wire
class Term:
    """Entry of ``nodeSelectorTerms``: all its requirements must hold; an empty one never does."""

    labels: tuple[Requirement, ...] = field(default=(), name="matchExpressions")
    fields: tuple[Requirement, ...] = field(default=(), name="matchFields")

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node satisfies it."""
        if not self.labels and not self.fields:
            return False
        if not all(each.holds(labels) for each in self.labels):
            return False
        node = {NAME_FIELD: name}
        return all(each.key == NAME_FIELD and each.holds(node) for each in self.fields)


Terms = tuple[Term, ...]


def _checked_terms(terms: Terms | None) -> Terms | None:
    size = sum(1 + len(each.labels) + len(each.fields) for each in terms or ())
    return terms if size <= MAX_REQUIREMENTS else None


def _checked_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations if len(tolerations) <= MAX_TOLERATIONS else (Toleration(operator="Exists"),)


@attrs.frozen(slots=True, cache_hash=True)
class NodeConstraints:
    """Properties of a pod that decide which nodes admit it, regardless of free capacity.

    Args:
        selector: required labels of its node.
        tolerations: tolerations of taints of its node; too many to be checked tolerate all.
        terms: terms of its required node affinity, one of which has to hold; ``None`` if it has
            none, or too many to be checked.
    """

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = attrs.field(default=(), converter=_checked_tolerations)
    terms: Terms | None = attrs.field(default=None, converter=_checked_terms)


@attrs.frozen(slots=True)
class NodeInfo:
    """Labels and taints of a node.

    Args:
        labels: labels of the node.
        taints: taints of the node, including that of an unschedulable one.
        name: name of the node.
    """

    labels: Mapping[str, str] = attrs.field(factory=dict)
    taints: tuple[Taint, ...] = ()
    name: str = ""

    def admits(self, placement: NodeConstraints) -> bool:
        """Return whether labels and taints admit such a pod."""
        labels = self.labels
        for key, value in placement.selector:
            if labels.get(key) != value:
                return False
        for taint in self.taints:
            if taint.effect in _KEEPS_AWAY and not any(
                toleration.tolerates(taint) for toleration in placement.tolerations
            ):
                return False
        terms = placement.terms
        return terms is None or any(term.holds(self.name, labels) for term in terms)


def _integer(text: str) -> int | None:
    """Return a 64-bit integer, parsed as the scheduler does it."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
