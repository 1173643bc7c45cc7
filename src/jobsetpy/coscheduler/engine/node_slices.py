"""Fields of nodes and pods that decide which pods fit on a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from jobsetpy.api._wire import field, wire
from jobsetpy.api.core import LabelledMeta
from jobsetpy.api.meta import ResourceInfo, resource
from jobsetpy.coscheduler.engine.pods import GroupPodSpec
from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Shape
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import (
    UNSCHEDULABLE_TAINT,
    NodeConstraints,
    NodeInfo,
    Taint,
)
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import amounts, pod_requests


@wire
class NodeSpec:
    """Scheduling settings of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


@wire
class NodeStatus:
    """Allocatable resources of a node."""

    allocatable: Mapping[str, str] = field(factory=dict)


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class CapacityNode:
    """Fields of a node that decide its free capacity."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: LabelledMeta = LabelledMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def node_info(node: CapacityNode) -> NodeInfo:
    """Return a node's capacity, labels and taints."""
    meta, taints = node.metadata, node.spec.taints
    if node.spec.unschedulable:
        taints = (*taints, Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"))
    return NodeInfo(amounts(node.status.allocatable), meta.labels, taints, meta.name)


_Pairs = tuple[tuple[str, str], ...]
_requests = lru_cache(maxsize=4096)(pod_requests)
_constraints = lru_cache(maxsize=4096)(NodeConstraints)
_shape = lru_cache(maxsize=4096)(Shape)


def shape_of(spec: GroupPodSpec) -> Shape:
    """Return the fields of a pod that decide where it fits; equal for pods of one template."""
    requests = _requests(
        tuple(_pairs(each.resources.requests) for each in spec.containers),
        tuple(
            (_pairs(each.resources.requests), each.restart_policy == "Always")
            for each in spec.init_containers
        ),
        pod_level=_pairs(spec.resources.requests if spec.resources is not None else None),
        overhead=_pairs(spec.overhead),
    )
    node = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if node is None else node.required
    terms = None if required is None else required.node_selector_terms
    return _shape(
        requests,
        _constraints(_pairs(spec.node_selector), spec.tolerations, terms),
        spec.priority or 0,
        spec.preemption_policy != "Never",
    )


def _pairs(mapping: Mapping[str, str] | None) -> _Pairs:
    return tuple(sorted(mapping.items())) if mapping else ()
