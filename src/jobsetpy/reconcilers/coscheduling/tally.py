"""What of a pod counts for its gang.

Gangs are counted by the labels that pods carry, as schedulers do, so the counts are a tally of the
pod cache: an event changes one number of one gang, however large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.meta import ObjectKey

GATED: Final = "SchedulingGated"
"""Why a pod waits that some scheduling gate holds back."""
_UNSCHEDULABLE: Final = "Unschedulable"


class GangKey(NamedTuple):
    """A gang by its JobSet and the label of its pods."""

    jobset: ObjectKey
    name: str


class GangPodState(NamedTuple):
    """What counts of a pod: whether it has a node, why it has none, and its priority."""

    bound: bool
    why: str
    priority: int | None


@attrs.frozen
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
    priorities: Mapping[int, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, states: Mapping[GangPodState, int]) -> GangCounts:
        """The counts of a gang, by how many of its pods are in each state; O(states)."""
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
    """The gang that a pod counts for, and as what; ``None`` if it counts for none."""
    meta = pod.metadata
    if not meta.labels.pod_group or not pod.live:
        return None
    gang = GangKey(ObjectKey(meta.namespace, meta.labels.jobset_name), meta.labels.pod_group)
    bound = bool(pod.spec.node_name)
    return gang, GangPodState(bound, "" if bound else pod.status.waiting, pod.spec.priority)


def changed_gangs(old: ChildPod | None, new: ChildPod | None) -> set[GangKey]:
    """The gangs whose counts a pod's change changes."""
    before = None if old is None else gang_state(old)
    after = None if new is None else gang_state(new)
    return set() if before == after else {each[0] for each in (before, after) if each is not None}
