"""Nodes of held binds and bound pods.

The scheduler filters nodes before it requests a bind. The bind may be held for minutes; meanwhile
its node may be deleted, cordoned or tainted as unreachable. Whether it still admits the pod is the
scheduler's question: a bind whose node has changed is refused, and the scheduler chooses again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.core import LabelledMeta
from jobsetpy.api.meta import ResourceInfo, resource


@wire
class Taint:
    """Taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


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


class Nodes:
    """Nodes of the cluster.

    Args:
        changed: called with the name of a node that was added, deleted, or may admit other pods.

    Attributes:
        watched: nodes are shown by an informer; otherwise all exist.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.watched = False
        self._changed = changed
        self._known: dict[str, NodeSlice] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether the node exists."""
        return not self.watched or name in self._known

    def see(self, old: NodeSlice | None, new: NodeSlice | None) -> None:
        """Handle a node before and after a change; ``None`` if it did not or does not exist."""
        node = new or old
        assert node is not None, "an event is about an object"
        name = node.metadata.name
        before = self._known.pop(name, None)
        if new is not None:
            self._known[name] = new
        if _admission(before) != _admission(new):
            self._changed(name)


def _admission(node: NodeSlice | None) -> object:
    """Return the fields of a node by which the scheduler filters it, regardless of capacity."""
    return node and (node.metadata.labels, node.spec)
