"""Pods of gangs, counted as they change, for all JobSets.

An event changes a few numbers of one gang, however large it is. Of pods only the names of those
are kept that have no node yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.meta import ObjectKey

GATED: Final = "SchedulingGated"
"""Why a pod waits that some scheduling gate holds back."""
_UNSCHEDULABLE: Final = "Unschedulable"


@attrs.define
class GangCounts:
    """Pods of one gang that have not ended and are not being deleted.

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
    """A gang by its JobSet and the label of its pods."""

    jobset: ObjectKey
    name: str


class GangLedger:
    """Counts per gang, and pods to be looked at; kept up to date by events in O(1)."""

    __slots__ = ("_gangs", "_open", "_suspects")

    def __init__(self) -> None:
        self._gangs: dict[GangKey, GangCounts] = {}
        self._open: dict[ObjectKey, set[str]] = {}
        self._suspects: dict[ObjectKey, set[str]] = {}

    def __len__(self) -> int:
        """How many gangs and pods it holds."""
        names = (*self._open.values(), *self._suspects.values())
        return len(self._gangs) + sum(map(len, names))

    def counts(self, gang: GangKey) -> GangCounts:
        """What is counted of a gang; zeros if it has no pods."""
        return self._gangs.get(gang) or GangCounts()

    def open_pods(self, jobset: ObjectKey) -> Iterable[str]:
        """Names of a JobSet's pods in gangs that have no node yet."""
        return self._open.get(jobset, ())

    def suspect(self, jobset: ObjectKey, *pods: str) -> None:
        """Have pods of a JobSet looked at by its next reconcile."""
        if pods:
            self._suspects.setdefault(jobset, set()).update(pods)

    def take_suspects(self, jobset: ObjectKey) -> frozenset[str]:
        """The pods to be looked at now; they are suspects no more."""
        return frozenset(self._suspects.pop(jobset, ()))

    def pod_changed(self, old: ChildPod | None, new: ChildPod | None) -> set[GangKey]:
        """Take a pod's change into account.

        Args:
            old: the pod before, ``None`` if it is new.
            new: the pod now, ``None`` if it is gone.

        Returns:
            The gangs whose counts changed.
        """
        was = None if old is None else _state(old)
        now = None if new is None else _state(new)
        if was == now:
            return set()
        changed = set()
        if old is not None and was is not None:
            self._count(was, old.metadata.name, -1)
            changed.add(was.gang)
        if new is not None and now is not None:
            self._count(now, new.metadata.name, 1)
            changed.add(now.gang)
        return changed

    def _count(self, state: _State, name: str, number: int) -> None:
        counts = self._gangs.setdefault(state.gang, GangCounts())
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
            del self._gangs[state.gang]
        if state.bound:
            return
        jobset = state.gang.jobset
        names = self._open.setdefault(jobset, set())
        (names.add if number > 0 else names.discard)(name)
        if not names:
            del self._open[jobset]


@attrs.frozen
class _State:
    gang: GangKey
    bound: bool
    why: str
    priority: int | None


def _state(pod: ChildPod) -> _State | None:
    meta = pod.metadata
    if not meta.labels.pod_group or not pod.live:
        return None
    gang = GangKey(ObjectKey(meta.namespace, meta.labels.jobset_name), meta.labels.pod_group)
    bound = bool(pod.spec.node_name)
    return _State(gang, bound, "" if bound else pod.status.waiting, pod.spec.priority)
