"""Fields of nodes and pods that decide which pods a node admits."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.core import LabelledMeta
from jobsetpy.api.meta import ResourceInfo, resource
from jobsetpy.coscheduler.engine.node_rules import (
    UNSCHEDULABLE_TAINT,
    NodeConstraints,
    NodeInfo,
    Taint,
)
from jobsetpy.coscheduler.engine.pods import GroupPodSpec


@wire
class NodeSpec:
    """Scheduling settings of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class NodeSlice:
    """Fields of a node that decide which pods it admits."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: LabelledMeta = LabelledMeta()
    spec: NodeSpec = NodeSpec()


def node_info(node: NodeSlice) -> NodeInfo:
    """Return a node's labels and taints."""
    meta, taints = node.metadata, node.spec.taints
    if node.spec.unschedulable:
        taints = (*taints, Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"))
    return NodeInfo(meta.labels, taints, meta.name)


_constraints = lru_cache(maxsize=4096)(NodeConstraints)


def constraints_of(spec: GroupPodSpec) -> NodeConstraints:
    """Return the rules of a pod for its node; the same object for pods of one template."""
    node = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if node is None else node.required
    terms = None if required is None else required.node_selector_terms
    selector = tuple(sorted(spec.node_selector.items())) if spec.node_selector else ()
    return _constraints(selector, spec.tolerations, terms)
