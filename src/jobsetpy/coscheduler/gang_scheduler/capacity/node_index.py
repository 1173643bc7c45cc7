"""Index of the nodes of a cluster, updated incrementally and in steps.

A cluster has thousands of nodes and gangs have pods of many shapes. So nothing is recounted when a
node changes: the change is logged, and the next query reads only the changed nodes. A scan of all
nodes takes milliseconds, so that can be done in steps as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import NodeConstraints, NodeInfo

_MANY: Final = 1_000_000_000
"""Upper bound for the number of pods on a node."""

ALL_PODS: Final = float("-inf")
"""Level at which all pods use capacity."""
NO_PODS: Final = float("inf")
"""Level at which no pod uses capacity."""


class Node:
    """Node, or the pods of an unknown node.

    Args:
        at: number of the node.
    """

    __slots__ = ("_free", "at", "info", "used")

    def __init__(self, at: int) -> None:
        self.at = at
        self.info: NodeInfo | None = None
        self.used: dict[int, Counter[str]] = {}
        self._free: dict[float, Mapping[str, int]] = {}

    def free(self, level: float) -> Mapping[str, int]:
        """Return the capacity that pods with a priority of at least ``level`` leave."""
        if self.info is None:
            return {}
        if not self.used:
            return self.info.allocatable
        found = self._free.get(level)
        if found is None:
            free = dict(self.info.allocatable)
            for priority, amounts in self.used.items():
                if priority >= level:
                    for resource, amount in amounts.items():
                        free[resource] = free.get(resource, 0) - amount
            found = self._free[level] = free
        return found

    def changed(self) -> None:
        """Invalidate cached results."""
        self._free.clear()


class Log:
    """Log of changed nodes, in order. Each reader continues from its own position."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.start = 0
        self._read = 0
        self._last: dict[int, int] = {}

    @property
    def end(self) -> int:
        """End position."""
        return self.start + len(self.entries)

    def note(self, at: int, nodes: int) -> None:
        """Record a change of a node; ``nodes`` is the number of nodes."""
        if self._last.get(at, -1) >= self._read:
            return  # its last change has not been read yet
        self._last[at] = self.end
        self.entries.append(at)
        if len(self.entries) > max(1024, 2 * nodes):
            # A reader that is further behind has to read more entries than there are nodes.
            half = len(self.entries) // 2
            del self.entries[:half]
            self.start += half

    def was_read(self, to: int) -> None:
        """Record that some reader has read all entries before this position."""
        self._read = max(self._read, to)


class Survey(ABC):
    """Information about each node.

    Args:
        nodes: nodes by number; ``None`` for unused numbers.
        log: log of changed nodes.
    """

    def __init__(self, nodes: list[Node | None], log: Log) -> None:
        self._nodes = nodes
        self._log = log
        self._place = -1
        self._scan: int | None = None

    @property
    def known(self) -> bool:
        """Return whether the information is complete."""
        return self._scan is None and self._place == self._log.end

    def advance(self, steps: int) -> int:
        """Process up to this number of nodes; return the number of steps left."""
        log = self._log
        if self._place < log.start:
            self._begin(len(self._nodes))
            self._scan, self._place = 0, log.end
            log.was_read(log.end)
        if self._scan is not None:
            stop = min(self._scan + steps, len(self._nodes))
            for at in range(self._scan, stop):
                self._update(at)
            steps -= stop - self._scan
            if stop < len(self._nodes):
                self._scan = stop
                return 0
            self._scan = None
        start = self._place - log.start
        stop = min(start + steps, len(log.entries))
        for at in log.entries[start:stop]:
            self._update(at)
        self._place = log.start + stop
        log.was_read(self._place)
        return steps - (stop - start)

    @abstractmethod
    def _begin(self, nodes: int) -> None:
        """Reset the information, for this number of nodes."""

    @abstractmethod
    def _update(self, at: int) -> None:
        """Process a node, new or changed."""


class Admission(Survey):
    """Nodes that admit a pod.

    Args:
        nodes: see :class:`Survey`.
        log: log of nodes that have changed themselves.
        placement: constraints of the pod.
    """

    def __init__(self, nodes: list[Node | None], log: Log, placement: NodeConstraints) -> None:
        super().__init__(nodes, log)
        self._placement = placement
        self.flags = bytearray()

    def _begin(self, nodes: int) -> None:
        self.flags = bytearray(nodes)

    def _update(self, at: int) -> None:
        if at >= len(self.flags):
            self.flags.extend(bytes(len(self._nodes) - len(self.flags)))
        node = self._nodes[at]
        self.flags[at] = (
            node is not None and node.info is not None and node.info.admits(self._placement)
        )

    def overlaps(self, other: Admission) -> bool:
        """Return whether a node admits both."""
        return bool(int.from_bytes(self.flags, "little") & int.from_bytes(other.flags, "little"))


class _FreeNodes(Survey):
    """Information about the capacity of the nodes that admit pods."""

    def __init__(
        self, nodes: list[Node | None], log: Log, admissions: Iterable[Admission], level: float
    ) -> None:
        super().__init__(nodes, log)
        self._admissions = tuple(admissions)
        self._level = level

    @property
    def known(self) -> bool:
        """Return whether the information is complete."""
        return super().known and all(each.known for each in self._admissions)

    def advance(self, steps: int) -> int:
        """Advance as :class:`Survey`; a change of admission counts as one of capacity."""
        for each in self._admissions:
            steps = each.advance(steps)
            if not each.known:
                return 0
        return super().advance(steps)

    def _free(self, at: int) -> Mapping[str, int] | None:
        node = self._nodes[at]
        if node is None or not any(each.flags[at] for each in self._admissions):
            return None
        return node.free(self._level)


class Places(_FreeNodes):
    """Number of pods of one kind that fit on each node.

    Args:
        nodes: see :class:`Survey`.
        log: log of nodes that have changed, or whose pods have.
        admission: nodes that admit the pods.
        level: pods of lower priority are ignored.
        asked: requests of a pod.
    """

    def __init__(
        self,
        nodes: list[Node | None],
        log: Log,
        admission: Admission,
        level: float,
        asked: tuple[tuple[str, int], ...],
    ) -> None:
        super().__init__(nodes, log, (admission,), level)
        self._asked = asked
        self._counts = array("i")
        self.total = 0

    def _begin(self, nodes: int) -> None:
        self._counts = array("i", bytes(4 * nodes))
        self.total = 0

    def _update(self, at: int) -> None:
        if at >= len(self._counts):
            self._counts.extend([0] * (len(self._nodes) - len(self._counts)))
        free = self._free(at)
        count = 0 if free is None else self._fit(free)
        self.total += count - self._counts[at]
        self._counts[at] = count

    def more(self, node: Node, freed: Mapping[int, Mapping[str, int]]) -> int:
        """Return the number of additional pods that fit on a node without some of its pods.

        Args:
            node: node to check.
            freed: requests of the pods to ignore, by priority.
        """
        free = self._free(node.at)
        if free is None:
            return 0
        with_them = dict(free)
        for priority, amounts in freed.items():
            if priority >= self._level:
                for resource, amount in amounts.items():
                    with_them[resource] = with_them.get(resource, 0) + amount
        return self._fit(with_them) - self._counts[node.at]

    def _fit(self, free: Mapping[str, int]) -> int:
        least = _MANY if self._asked else 0
        for resource, amount in self._asked:
            count = free.get(resource, 0) // amount
            if count < least:
                if count <= 0:
                    return 0
                least = count
        return least


class Totals(_FreeNodes):
    """Total free resources of the nodes that admit one of several kinds of pods."""

    def __init__(
        self, nodes: list[Node | None], log: Log, admissions: Iterable[Admission], level: float
    ) -> None:
        super().__init__(nodes, log, admissions, level)
        self._counted: list[Mapping[str, int] | None] = []
        self.free: Counter[str] = Counter()

    def _begin(self, nodes: int) -> None:
        self._counted = [None] * nodes
        self.free = Counter()

    def _update(self, at: int) -> None:
        if at >= len(self._counted):
            self._counted.extend([None] * (len(self._nodes) - len(self._counted)))
        total = self.free
        before, now = self._counted[at], self._free(at)
        if before is not None:
            for resource, amount in before.items():
                if amount > 0:
                    total[resource] -= amount
        if now is not None:
            for resource, amount in now.items():
                if amount > 0:
                    total[resource] += amount
        self._counted[at] = now
