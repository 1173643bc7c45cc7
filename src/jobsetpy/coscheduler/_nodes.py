"""Nodes of held binds and bound pods: a bind is executed only if its node still admits the pod.

The scheduler filters nodes before it requests a bind. The bind may be held for minutes; meanwhile
its node may be deleted, cordoned or tainted as unreachable.
"""

from __future__ import annotations

from collections.abc import Callable

from jobsetpy.coscheduler._arrivals import Arrivals
from jobsetpy.coscheduler._capacity import CapacityNode, node_info, shape_of
from jobsetpy.coscheduler._pods import GroupPod
from jobsetpy.coscheduler.gang_scheduler.node_rules import NodeInfo


class NodeRegistry:
    """Registry of nodes, from the cache; a handler of their informer.

    Args:
        changed: called with the name of a node that was added, changed or deleted.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._nodes: dict[str, NodeInfo] = {}
        self._arrivals = Arrivals()

    def __contains__(self, name: str) -> bool:
        """Return whether the node exists."""
        return name in self._nodes

    def problem(self, name: str, pod: GroupPod) -> str:
        """Return why a node cannot run a pod, regardless of capacity; "" if it can."""
        node = self._nodes.get(name)
        if node is None:
            return f"node {name} does not exist"
        if not node.admits(shape_of(pod.spec).placement):
            return f"node {name} does not admit the pod: its taints or labels have changed"
        return ""

    async def expect(self, name: str, timeout_s: float) -> None:
        """Wait for a node that the scheduler may have seen first."""
        if name not in self._nodes:
            await self._arrivals.expect(name, timeout_s)

    # -- nodes, as an informer's handler ------------------------------------------------------

    def on_add(self, obj: CapacityNode, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        """Add a node."""
        self._see(obj)

    def on_update(self, old: CapacityNode, new: CapacityNode) -> None:  # noqa: ARG002 - protocol
        """Update a node."""
        self._see(new)

    def on_delete(self, obj: CapacityNode, *, final_state_known: bool) -> None:  # noqa: ARG002
        """Remove a node."""
        if self._nodes.pop(obj.metadata.name, None) is not None:
            self._changed(obj.metadata.name)

    def _see(self, node: CapacityNode) -> None:
        name, after = node.metadata.name, node_info(node)
        before = self._nodes.get(name)
        self._nodes[name] = after
        self._arrivals.seen(name)
        if before is None or (before.labels, before.taints) != (after.labels, after.taints):
            self._changed(name)
