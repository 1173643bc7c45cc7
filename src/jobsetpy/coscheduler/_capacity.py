"""Free capacity of the cluster, which the planner reads before it lifts gates.

Nodes and pods come from informers. The engine adds the nodes that the scheduler has reserved for
held pods, which no object in the API server shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from jobsetpy.domain.coscheduling.capacity import Capacity, Shape
from jobsetpy.domain.coscheduling.node_rules import (
    UNSCHEDULABLE_TAINT,
    NodeRoom,
    Placement,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from jobsetpy.domain.coscheduling.plugin import PodGroupKey
from jobsetpy.domain.coscheduling.requests import Amounts, amounts, pod_requests


@wire
class NodeMeta:
    """Identity and labels."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(factory=dict)


@wire
class NodeTaint:
    """A taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


@wire
class NodeSpec:
    """Whether and which pods may be scheduled."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


@wire
class NodeStatus:
    """Allocatable resources."""

    allocatable: Mapping[str, str] = field(factory=dict)


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class CapacityNode:
    """The slice of a node that decides its free capacity."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


STEPS: Final = 500
"""So many nodes are looked at at a time: some milliseconds."""


class CapacityTracker:
    """Tracks the free capacity of all nodes; a :class:`~jobsetpy.domain.coscheduling.state.Room`.

    Args:
        grew: called when capacity may have been freed; must not take long.
    """

    def __init__(self, grew: Callable[[], None]) -> None:
        self._capacity = Capacity(STEPS)
        self._grew = grew
        self._told = (0, 0)
        self._growth = 0

    @property
    def pending(self) -> bool:
        """See ``Capacity``."""
        return self._capacity.pending

    def work(self) -> bool:
        """See ``Capacity``; to be called again and again while it says that there is more."""
        return self._capacity.work()

    def fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """See ``Room``."""
        return self._capacity.fits(group, wanted)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool | None:
        """See ``Room``."""
        return self._capacity.ever_fits(group, wanted)

    def fits_without(
        self, group: PodGroupKey, wanted: int, others: Iterable[PodGroupKey]
    ) -> bool | None:
        """See ``Room``."""
        return self._capacity.fits_without(group, wanted, others)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        """See ``Room``."""
        return self._capacity.compete(group, other)

    def rooms(self) -> Iterator[tuple[NodeRoom, Mapping[str, int]]]:
        """All nodes, and what is left of each."""
        return self._capacity.rooms()

    def unplaced(self, group: PodGroupKey) -> Mapping[Shape, int]:
        """How many pods of each shape a group has that have no place yet."""
        return self._capacity.unplaced(group)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is known, of a group or not."""
        return uid in self._capacity

    def freed(self) -> bool:
        """Whether capacity was freed since the last call."""
        before, self._growth = self._growth, self._capacity.growth
        return before != self._growth

    # -- nodes, as an informer's handler ------------------------------------------------------

    def on_add(self, obj: CapacityNode, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        """A node is new."""
        self._node(obj)

    def on_update(self, old: CapacityNode, new: CapacityNode) -> None:  # noqa: ARG002 - protocol
        """A node has changed."""
        self._node(new)

    def on_delete(self, obj: CapacityNode, *, final_state_known: bool) -> None:  # noqa: ARG002
        """A node is gone."""
        self._capacity.node(obj.metadata.name, None)

    def _node(self, node: CapacityNode) -> None:
        self._capacity.node(node.metadata.name, node_room(node))
        self._tell()

    # -- pods ---------------------------------------------------------------------------------

    def pod(self, pod: GroupPod) -> None:
        """A pod is new, or has changed."""
        if pod.status.phase in {"Succeeded", "Failed"}:
            self.gone(pod.metadata.uid)
            return
        # One that is being deleted has its room until it is gone, but waits for none.
        group = None if pod.metadata.deletion_timestamp is not None else attempt_of(pod)
        self._capacity.pod(
            pod.metadata.uid, shape_of(pod.spec), node=pod.spec.node_name, group=group
        )
        self._tell()

    def gone(self, uid: str) -> None:
        """A pod has ended, or is deleted."""
        self._capacity.gone(uid)
        self._tell()

    def reserve(self, uid: str, node: str) -> None:
        """The scheduler has reserved a node for the pod."""
        self._capacity.reserve(uid, node)

    def release(self, uid: str) -> None:
        """The reservation is given up."""
        self._capacity.release(uid)
        self._tell()

    def _tell(self) -> None:
        now = (self._capacity.growth, self._capacity.released)
        if now != self._told:
            self._told = now
            self._grew()


def node_room(node: CapacityNode) -> NodeRoom:
    """A node's capacity, labels and taints."""
    taints = [Taint(each.key, each.value, each.effect) for each in node.spec.taints]
    if node.spec.unschedulable:
        taints.append(Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"))
    meta = node.metadata
    return NodeRoom(amounts(node.status.allocatable), meta.labels, tuple(taints), meta.name)


def shape_of(spec: GroupPodSpec) -> Shape:
    """The fields of a pod that decide where it fits; equal for pods of one template."""
    tolerations = spec.tolerations
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
        tuple((each.key, each.operator, each.value, each.effect) for each in tolerations),
        _terms(spec.affinity),
        spec.priority or 0,
        spec.preemption_policy != "Never",
    )


Pairs = tuple[tuple[str, str], ...]


RawRequirements = tuple[tuple[str, str, tuple[str, ...]], ...]
RawTerms = tuple[tuple[RawRequirements, RawRequirements], ...]


def _terms(affinity: GroupAffinity | None) -> RawTerms | None:
    node = None if affinity is None else affinity.node_affinity
    required = None if node is None else node.required
    if required is None:
        return None
    return tuple(
        (_raw(term.match_expressions), _raw(term.match_fields))
        for term in required.node_selector_terms
    )


def _raw(requirements: tuple[GroupNodeRequirement, ...]) -> RawRequirements:
    return tuple((each.key, each.operator, each.values) for each in requirements)


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
    tolerations: tuple[tuple[str, str, str, str], ...],
    terms: RawTerms | None,
    priority: int,
    preempts: bool,
) -> Shape:
    return Shape(requests, _placement(selector, tolerations, terms), priority, preempts)


@lru_cache(maxsize=4096)
def _placement(
    selector: Pairs, tolerations: tuple[tuple[str, str, str, str], ...], terms: RawTerms | None
) -> Placement:
    return Placement(
        selector,
        tuple(Toleration(*each) for each in tolerations),
        None
        if terms is None
        else tuple(
            Term(*(tuple(Requirement(*each) for each in raw) for raw in term)) for term in terms
        ),
    )
