"""Nodes of held binds and bound pods.

The scheduler filters nodes before it requests a bind. The bind may be held for minutes; meanwhile
its node may be deleted, cordoned or tainted as unreachable. So a bind is executed only if its node
still admits the pod.
"""

from __future__ import annotations

from collections.abc import Callable

from jobsetpy.coscheduler.engine.arrivals import Arrivals
from jobsetpy.coscheduler.engine.node_rules import NodeInfo
from jobsetpy.coscheduler.engine.node_slices import NodeSlice, constraints_of, node_info
from jobsetpy.coscheduler.engine.pods import GroupPod


class Nodes:
    """Nodes of the cluster.

    Args:
        changed: called with the name of a node that was added, changed or deleted.

    Attributes:
        watched: nodes are shown by an informer; otherwise every node admits all pods.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.watched = False
        self._changed = changed
        self._infos: dict[str, NodeInfo] = {}
        self._arrivals = Arrivals()

    def __contains__(self, name: str) -> bool:
        """Return whether the node exists."""
        return name in self._infos

    def problem(self, name: str, pod: GroupPod) -> str:
        """Return why a node cannot run a pod, regardless of capacity; "" if it can."""
        if not self.watched:
            return ""
        node = self._infos.get(name)
        if node is None:
            return f"node {name} does not exist"
        if not node.admits(constraints_of(pod.spec)):
            return f"node {name} does not admit the pod: its taints or labels have changed"
        return ""

    async def expect(self, name: str, timeout_s: float) -> None:
        """Wait for a node that the scheduler may have seen first."""
        if self.watched and name not in self._infos:
            await self._arrivals.expect(name, timeout_s)

    def see(self, old: NodeSlice | None, new: NodeSlice | None) -> None:
        """Handle a node before and after a change; ``None`` if it did not or does not exist."""
        if new is not None:
            self._update(new.metadata.name, node_info(new))
        elif old is not None:
            name = old.metadata.name
            if self._infos.pop(name, None) is not None:
                self._changed(name)

    def _update(self, name: str, after: NodeInfo) -> None:
        before = self._infos.get(name)
        self._infos[name] = after
        self._arrivals.seen(name)
        if before is None or (before.labels, before.taints) != (after.labels, after.taints):
            self._changed(name)
