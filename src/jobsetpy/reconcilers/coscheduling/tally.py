"""Per-gang pod counters.

Gangs are counted by the labels of pods, as schedulers do it, so the counters are a tally of the pod
cache: an event changes one number of one gang, at a cost independent of its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.meta import ObjectKey

GATED: Final = "SchedulingGated"
"""Reason for which a pod with a scheduling gate waits."""
_UNSCHEDULABLE: Final = "Unschedulable"


class GangKey(NamedTuple):
    """Gang, identified by its JobSet and the label of its pods."""

    jobset: ObjectKey
    name: str


class GangPodState(NamedTuple):
    """Counted properties of a pod: bound or not, reason for waiting, and priority."""

    bound: bool
    why: str
    priority: int | None


@attrs.frozen
class GangCounts:
    """Pods of one gang that have not ended and are not being deleted.

    Args:
        members: number of pods.
        bound: number of pods with a node.
        gated: number of pods that a scheduling gate keeps from the scheduler.
        unschedulable: number of pods for which the scheduler has found no node.
        priorities: number of pods by priority.
    """

    members: int = 0
    bound: int = 0
    gated: int = 0
    unschedulable: int = 0
    priorities: Mapping[int, int] = attrs.field(factory=dict)

    @property
    def open(self) -> int:
        """Number of pods without a node."""
        return self.members - self.bound

    @classmethod
    def of(cls, states: Mapping[GangPodState, int]) -> GangCounts:
        """Return the counters of a gang from the numbers of its pods by state; O(states)."""
        priorities: dict[int, int] = {}
        for state, number in states.items():
            if state.priority is not None:
                priorities[state.priority] = priorities.get(state.priority, 0) + number
        return cls(
            sum(states.values()),
            sum(number for state, number in states.items() if state.bound),
            sum(number for state, number in states.items() if state.why == GATED),
            sum(number for state, number in states.items() if state.why == _UNSCHEDULABLE),
            priorities,
        )


def gang_state(pod: ChildPod) -> tuple[GangKey, GangPodState] | None:
    """Return the gang of a pod and its counted state; ``None`` if it does not count."""
    meta = pod.metadata
    if not meta.labels.pod_group or not pod.live:
        return None
    gang = GangKey(ObjectKey(meta.namespace, meta.labels.jobset_name), meta.labels.pod_group)
    bound = bool(pod.spec.node_name)
    return gang, GangPodState(bound, "" if bound else pod.status.waiting, pod.spec.priority)


def changed_gangs(old: ChildPod | None, new: ChildPod | None) -> set[GangKey]:
    """Return the gangs whose counters are affected by a change of a pod."""
    before = None if old is None else gang_state(old)
    after = None if new is None else gang_state(new)
    return set() if before == after else {each[0] for each in (before, after) if each is not None}
