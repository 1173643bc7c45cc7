"""Free capacity of the cluster, which the gang scheduler reads before it ungates gangs.

Nodes and pods come from informers. The engine adds the nodes that the scheduler has reserved for
held pods, which are not visible in the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Final

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ResourceInfo, resource
from jobsetpy.coscheduler._pods import (
    GroupAffinity,
    GroupNodeRequirement,
    GroupPod,
    GroupPodSpec,
    attempt_of,
)
from jobsetpy.coscheduler.gang_scheduler.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.node_rules import (
    UNSCHEDULABLE_TAINT,
    NodeConstraints,
    NodeInfo,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from jobsetpy.coscheduler.gang_scheduler.requests import Amounts, amounts, pod_requests


@wire
class NodeMeta:
    """Identity and labels of a node."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(factory=dict)


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
    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


STEPS: Final = 500
"""Maximum number of nodes checked per step, which takes some milliseconds."""


class CapacityTracker:
    """Tracker of the free capacity of all nodes.

    Args:
        grew: called when capacity may have been freed; must not take long.

    Attributes:
        free: capacity to query.
    """

    def __init__(self, grew: Callable[[], None]) -> None:
        self.free = Capacity(STEPS)
        self._grew = grew
        self._notified = (0, 0)
        self._growth = 0

    def freed(self) -> bool:
        """Return whether capacity was freed since the last call."""
        before, self._growth = self._growth, self.free.growth
        return before != self._growth

    # -- nodes, as an informer's handler ------------------------------------------------------

    def on_add(self, obj: CapacityNode, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        """Handle a new node."""
        self._node(obj)

    def on_update(self, old: CapacityNode, new: CapacityNode) -> None:  # noqa: ARG002 - protocol
        """Handle a changed node."""
        self._node(new)

    def on_delete(self, obj: CapacityNode, *, final_state_known: bool) -> None:  # noqa: ARG002
        """Handle a deleted node."""
        self.free.node(obj.metadata.name, None)

    def _node(self, node: CapacityNode) -> None:
        self.free.node(node.metadata.name, node_info(node))
        self._notify()

    # -- pods ---------------------------------------------------------------------------------

    def pod(self, pod: GroupPod) -> None:
        """Handle a pod that is new or has changed."""
        if pod.status.phase in {"Succeeded", "Failed"}:
            self.gone(pod.metadata.uid)
            return
        # A pod that is being deleted uses its capacity until it is gone, but needs no other.
        group = None if pod.metadata.deletion_timestamp is not None else attempt_of(pod)
        self.free.pod(pod.metadata.uid, shape_of(pod.spec), node=pod.spec.node_name, group=group)
        self._notify()

    def gone(self, uid: str) -> None:
        """Handle a pod that has ended or was deleted."""
        self.free.gone(uid)
        self._notify()

    def release(self, uid: str) -> None:
        """Give up the reservation of a pod."""
        self.free.release(uid)
        self._notify()

    def _notify(self) -> None:
        now = (self.free.growth, self.free.released)
        if now != self._notified:
            self._notified = now
            self._grew()


def node_info(node: CapacityNode) -> NodeInfo:
    """Return a node's capacity, labels and taints."""
    meta, taints = node.metadata, node.spec.taints
    if node.spec.unschedulable:
        taints = (*taints, Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"))
    return NodeInfo(amounts(node.status.allocatable), meta.labels, taints, meta.name)


def shape_of(spec: GroupPodSpec) -> Shape:
    """Return the fields of a pod that decide where it fits; equal for pods of one template."""
    return _shape(
        _requests(
            tuple(_pairs(each.resources.requests) for each in spec.containers),
            tuple(
                (_pairs(each.resources.requests), each.restart_policy == "Always")
                for each in spec.init_containers
            ),
            _pairs(spec.resources.requests if spec.resources is not None else None),
            _pairs(spec.overhead),
        ),
        _pairs(spec.node_selector),
        spec.tolerations,
        spec.affinity,
        spec.priority or 0,
        spec.preemption_policy != "Never",
    )


Pairs = tuple[tuple[str, str], ...]


def _pairs(mapping: Mapping[str, str] | None) -> Pairs:
    return tuple(sorted(mapping.items())) if mapping else ()


@lru_cache(maxsize=4096)
def _requests(
    containers: tuple[Pairs, ...],
    init_containers: tuple[tuple[Pairs, bool], ...],
    pod_level: Pairs,
    overhead: Pairs,
) -> Amounts:
    return pod_requests(
        [dict(each) for each in containers],
        [(dict(each), stays) for each, stays in init_containers],
        pod_level=dict(pod_level),
        overhead=dict(overhead),
    )


@lru_cache(maxsize=4096)
def _shape(
    requests: Amounts,
    selector: Pairs,
    tolerations: tuple[Toleration, ...],
    affinity: GroupAffinity | None,
    priority: int,
    preempts: bool,
) -> Shape:
    return Shape(requests, _placement(selector, tolerations, affinity), priority, preempts)


@lru_cache(maxsize=4096)
def _placement(
    selector: Pairs, tolerations: tuple[Toleration, ...], affinity: GroupAffinity | None
) -> NodeConstraints:
    node = None if affinity is None else affinity.node_affinity
    required = None if node is None else node.required
    if required is None:
        return NodeConstraints(selector, tolerations)
    terms = [
        Term(_requirements(each.match_expressions), _requirements(each.match_fields))
        for each in required.node_selector_terms
    ]
    return NodeConstraints(selector, tolerations, tuple(terms))


def _requirements(given: tuple[GroupNodeRequirement, ...]) -> tuple[Requirement, ...]:
    return tuple(Requirement(each.key, each.operator, each.values) for each in given)
