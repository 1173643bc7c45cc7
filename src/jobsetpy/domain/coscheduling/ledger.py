"""Pods of coscheduling's groups, counted as they change, for all JobSets.

An event changes a few numbers of one group, however large it is. Of pods only the names of those
are kept that have no node yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.meta import ObjectKey

_ENDED: Final = frozenset({"Succeeded", "Failed"})
GATED: Final = "SchedulingGated"
"""Why a pod waits that some scheduling gate holds back."""
_UNSCHEDULABLE: Final = "Unschedulable"


@attrs.define
class Counts:
    """Pods of one group that have not ended and are not being deleted.

    Args:
        members: how many there are.
        bound: with a node.
        gated: the scheduler does not look at them, because of a scheduling gate.
        unschedulable: the scheduler has found no node for them.
        priorities: how many have each priority.
    """

    members: int = 0
    bound: int = 0
    gated: int = 0
    unschedulable: int = 0
    priorities: dict[int, int] = attrs.field(factory=dict)


@attrs.frozen
class GangKey:
    """A group by its JobSet and the label of its pods."""

    jobset: ObjectKey
    name: str


class GangLedger:
    """Counts per group, kept up to date by events in O(1)."""

    __slots__ = ("_groups", "_open")

    def __init__(self) -> None:
        self._groups: dict[GangKey, Counts] = {}
        self._open: dict[ObjectKey, set[str]] = {}

    def __len__(self) -> int:
        """How many groups and pods it holds."""
        return len(self._groups) + sum(map(len, self._open.values()))

    def counts(self, group: GangKey) -> Counts:
        """What is counted of a group; zeros if it has no pods."""
        return self._groups.get(group) or Counts()

    def open_pods(self, jobset: ObjectKey) -> Iterable[str]:
        """Names of a JobSet's pods in groups that have no node yet."""
        return self._open.get(jobset, ())

    def pod_changed(self, old: ChildPod | None, new: ChildPod | None) -> set[GangKey]:
        """Take a pod's change into account.

        Args:
            old: the pod before, ``None`` if it is new.
            new: the pod now, ``None`` if it is gone.

        Returns:
            The groups whose counts changed.
        """
        was = None if old is None else _state(old)
        now = None if new is None else _state(new)
        if was == now:
            return set()
        changed = set()
        if old is not None and was is not None:
            self._count(was, old.metadata.name, -1)
            changed.add(was.group)
        if new is not None and now is not None:
            self._count(now, new.metadata.name, 1)
            changed.add(now.group)
        return changed

    def _count(self, state: _State, name: str, number: int) -> None:
        counts = self._groups.setdefault(state.group, Counts())
        counts.members += number
        counts.bound += number * state.bound
        counts.gated += number * (state.why == GATED)
        counts.unschedulable += number * (state.why == _UNSCHEDULABLE)
        if state.priority is not None:
            left = counts.priorities.get(state.priority, 0) + number
            if left:
                counts.priorities[state.priority] = left
            else:
                del counts.priorities[state.priority]
        if not counts.members:
            del self._groups[state.group]
        if state.bound:
            return
        jobset = state.group.jobset
        names = self._open.setdefault(jobset, set())
        (names.add if number > 0 else names.discard)(name)
        if not names:
            del self._open[jobset]


@attrs.frozen
class _State:
    group: GangKey
    bound: bool
    why: str
    priority: int | None


def is_live(pod: ChildPod) -> bool:
    """Whether a pod counts: it has not ended, and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in _ENDED


def _state(pod: ChildPod) -> _State | None:
    meta = pod.metadata
    if not meta.labels.pod_group or not is_live(pod):
        return None
    group = GangKey(ObjectKey(meta.namespace, meta.labels.jobset_name), meta.labels.pod_group)
    bound = bool(pod.spec.node_name)
    return _State(group, bound, "" if bound else pod.status.waiting, pod.spec.priority)
