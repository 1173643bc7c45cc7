"""What is known of each node of a cluster, kept up to date by what changes, in steps.

A cluster has thousands of nodes and groups have pods of many shapes. So nothing is counted anew
when something changes: it is noted which nodes have, and who is asked next looks at these alone. To
look at all of them takes milliseconds, so that can be done in steps, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from jobsetpy.coscheduler.gang_scheduler.node_rules import NodeConstraints, NodeRoom

_MANY: Final = 1_000_000_000
"""More pods than fit on any node."""

ALL_PODS: Final = float("-inf")
"""The level at which all pods have their room."""
NO_PODS: Final = float("inf")
"""The level at which none has."""


class Node:
    """A node, or the pods of one that is not known.

    Args:
        at: its number.
    """

    __slots__ = ("_free", "at", "room", "used")

    def __init__(self, at: int) -> None:
        self.at = at
        self.room: NodeRoom | None = None
        self.used: dict[int, Counter[str]] = {}
        self._free: dict[float, Mapping[str, int]] = {}

    def free(self, level: float) -> Mapping[str, int]:
        """What pods of priorities from ``level`` on leave of what it offers."""
        if self.room is None:
            return {}
        if not self.used:
            return self.room.allocatable
        found = self._free.get(level)
        if found is None:
            free = dict(self.room.allocatable)
            for priority, amounts in self.used.items():
                if priority >= level:
                    for resource, amount in amounts.items():
                        free[resource] = free.get(resource, 0) - amount
            found = self._free[level] = free
        return found

    def changed(self) -> None:
        """Forget what was computed."""
        self._free.clear()


class Log:
    """Which nodes have changed, in order. Whoever has read up to some place goes on from there."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.start = 0
        self._read = 0
        self._last: dict[int, int] = {}

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.entries)

    def note(self, at: int, nodes: int) -> None:
        """A node has changed, of so many."""
        if self._last.get(at, -1) >= self._read:
            return  # nobody has read of its last change yet
        self._last[at] = self.end
        self.entries.append(at)
        if len(self.entries) > max(1024, 2 * nodes):
            # Who has not read that has more to look at than there are nodes.
            half = len(self.entries) // 2
            del self.entries[:half]
            self.start += half

    def was_read(self, to: int) -> None:
        """Somebody knows all that comes before this place."""
        self._read = max(self._read, to)


class Survey(ABC):
    """Something that is known of each node.

    Args:
        nodes: by number; ``None`` for numbers that are free.
        log: which of them have changed.
    """

    def __init__(self, nodes: list[Node | None], log: Log) -> None:
        self._nodes = nodes
        self._log = log
        self._place = -1
        self._scan: int | None = None

    @property
    def known(self) -> bool:
        """Whether all is known."""
        return self._scan is None and self._place == self._log.end

    def reset(self) -> None:
        """Begin again."""
        self._place = -1

    def advance(self, steps: int) -> int:
        """Look at no more than so many nodes; how many steps are left."""
        log = self._log
        if self._place < log.start:
            self._begin(len(self._nodes))
            self._scan, self._place = 0, log.end
            log.was_read(log.end)
        if self._scan is not None:
            stop = min(self._scan + steps, len(self._nodes))
            for at in range(self._scan, stop):
                self._look(at)
            steps -= stop - self._scan
            if stop < len(self._nodes):
                self._scan = stop
                return 0
            self._scan = None
        start = self._place - log.start
        stop = min(start + steps, len(log.entries))
        for at in log.entries[start:stop]:
            self._look(at)
        self._place = log.start + stop
        log.was_read(self._place)
        return steps - (stop - start)

    @abstractmethod
    def _begin(self, nodes: int) -> None:
        """Forget all; there are so many numbers of nodes."""

    @abstractmethod
    def _look(self, at: int) -> None:
        """Learn about a node, for the first time or because it has changed."""


class Admission(Survey):
    """Which nodes let a pod in.

    Args:
        nodes: see :class:`Survey`.
        log: of nodes that have changed themselves.
        placement: of the pod.
    """

    def __init__(self, nodes: list[Node | None], log: Log, placement: NodeConstraints) -> None:
        super().__init__(nodes, log)
        self._placement = placement
        self.flags = bytearray()

    def _begin(self, nodes: int) -> None:
        self.flags = bytearray(nodes)

    def _look(self, at: int) -> None:
        if at >= len(self.flags):
            self.flags.extend(bytes(len(self._nodes) - len(self.flags)))
        node = self._nodes[at]
        self.flags[at] = (
            node is not None and node.room is not None and node.room.admits(self._placement)
        )

    def overlaps(self, other: Admission) -> bool:
        """Whether a node lets both in."""
        return bool(int.from_bytes(self.flags, "little") & int.from_bytes(other.flags, "little"))


class _Rooms(Survey):
    """Something about the room of the nodes that let pods in."""

    def __init__(
        self, nodes: list[Node | None], log: Log, admissions: Iterable[Admission], level: float
    ) -> None:
        super().__init__(nodes, log)
        self._admissions = tuple(admissions)
        self._level = level

    @property
    def known(self) -> bool:
        """Whether all is known."""
        return super().known and all(each.known for each in self._admissions)

    def advance(self, steps: int) -> int:
        """See :class:`Survey`; a change of who is let in is also one of the node's room."""
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


class Places(_Rooms):
    """How many pods of a kind each node has room for.

    Args:
        nodes: see :class:`Survey`.
        log: of nodes that have changed, or whose pods have.
        admission: of the pods.
        level: pods of lower priority make room.
        asked: what a pod takes.
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

    def _look(self, at: int) -> None:
        if at >= len(self._counts):
            self._counts.extend([0] * (len(self._nodes) - len(self._counts)))
        free = self._free(at)
        count = 0 if free is None else self._fit(free)
        self.total += count - self._counts[at]
        self._counts[at] = count

    def more(self, node: Node, freed: Mapping[int, Mapping[str, int]]) -> int:
        """How many more there would be on a node without some of its pods.

        Args:
            node: which.
            freed: what these take, by priority.
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


class Totals(_Rooms):
    """What is free on all nodes that let one of several kinds of pods in, by resource."""

    def __init__(
        self, nodes: list[Node | None], log: Log, admissions: Iterable[Admission], level: float
    ) -> None:
        super().__init__(nodes, log, admissions, level)
        self._counted: list[Mapping[str, int] | None] = []
        self.free: Counter[str] = Counter()

    def _begin(self, nodes: int) -> None:
        self._counted = [None] * nodes
        self.free = Counter()

    def _look(self, at: int) -> None:
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
