"""Nodes of held binds and bound pods, and the free capacity that the gang scheduler reads.

The scheduler filters nodes before it requests a bind. The bind may be held for minutes; meanwhile
its node may be deleted, cordoned or tainted as unreachable. So a bind is executed only if its node
still admits the pod.

Nodes and pods come from informers. The engine adds the nodes that the scheduler has reserved for
held pods, which are not visible in the API.
"""

from __future__ import annotations

from collections.abc import Callable

from jobsetpy.coscheduler.engine.arrivals import Arrivals
from jobsetpy.coscheduler.engine.node_slices import CapacityNode, node_info, shape_of
from jobsetpy.coscheduler.engine.pods import GroupPod, attempt_of
from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import NodeInfo


class Nodes:
    """Nodes of the cluster.

    Args:
        changed: called with the name of a node that was added, changed or deleted.
        grew: called when capacity may have been freed; must not take long.
        capacity: count the capacity of the nodes.

    Attributes:
        free: capacity to query; ``None`` if it is not counted.
        watched: nodes are shown by an informer; otherwise every node admits all pods.
    """

    def __init__(
        self, changed: Callable[[str], None], grew: Callable[[], None], *, capacity: bool
    ) -> None:
        self.free = Capacity() if capacity else None
        self.watched = False
        self._changed = changed
        self._grew = grew
        self._infos: dict[str, NodeInfo] = {}
        self._arrivals = Arrivals()
        self._notified = (0, 0)
        self._growth = 0

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
        if not node.admits(shape_of(pod.spec).placement):
            return f"node {name} does not admit the pod: its taints or labels have changed"
        return ""

    async def expect(self, name: str, timeout_s: float) -> None:
        """Wait for a node that the scheduler may have seen first."""
        if self.watched and name not in self._infos:
            await self._arrivals.expect(name, timeout_s)

    def see(self, old: CapacityNode | None, new: CapacityNode | None) -> None:
        """Handle a node before and after a change; ``None`` if it did not or does not exist."""
        if new is not None:
            self._update(new.metadata.name, node_info(new))
        elif old is not None:
            name = old.metadata.name
            if self.free is not None:
                self.free.node(name, None)
            if self._infos.pop(name, None) is not None:
                self._changed(name)

    def _update(self, name: str, after: NodeInfo) -> None:
        before = self._infos.get(name)
        self._infos[name] = after
        if self.free is not None:
            self.free.node(name, after)
            self._notify(self.free)
        self._arrivals.seen(name)
        if before is None or (before.labels, before.taints) != (after.labels, after.taints):
            self._changed(name)

    # -- pods ---------------------------------------------------------------------------------

    def knows(self, uid: str) -> bool:
        """Return whether a pod counts against the capacity."""
        return self.free is not None and uid in self.free

    def pod(self, pod: GroupPod) -> None:
        """Handle a pod that is new or has changed."""
        uid = pod.metadata.uid
        if pod.status.phase in {"Succeeded", "Failed"}:
            self.gone(uid)
        elif self.free is not None:
            # A pod that is being deleted uses its capacity until it is gone, but needs no other.
            group = None if pod.metadata.deletion_timestamp is not None else attempt_of(pod)
            self.free.pod(uid, shape_of(pod.spec), node=pod.spec.node_name, group=group)
            self._notify(self.free)

    def gone(self, uid: str) -> None:
        """Handle a pod that has ended or was deleted."""
        if self.free is not None:
            self.free.gone(uid)
            self._notify(self.free)

    def reserve(self, uid: str, node: str) -> None:
        """Reserve a node for a pod; "" gives up its reservation."""
        if self.free is not None:
            self.free.reserve(uid, node)
            self._notify(self.free)

    def freed(self) -> bool:
        """Return whether capacity was freed by pods or nodes since the last call."""
        before, self._growth = self._growth, self._notified[0]
        return before != self._growth

    def _notify(self, free: Capacity) -> None:
        now = (free.growth, free.released)
        if now != self._notified:
            self._notified = now
            self._grew()
