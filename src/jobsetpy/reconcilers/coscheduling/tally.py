"""Per-gang pod counters.

Gangs are counted by the labels of pods, as schedulers do it, so the counters are an index of the
pod cache: an event changes entries of one gang, at a cost independent of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.meta import ObjectKey

GATED: Final = "SchedulingGated"
"""Reason for which a pod with a scheduling gate waits."""
_UNSCHEDULABLE: Final = "Unschedulable"
_BOUND: Final = "bound"


class GangKey(NamedTuple):
    """Gang, identified by its JobSet and the label of its pods."""

    jobset: ObjectKey
    name: str

    def __str__(self) -> str:
        """Text for an index; no label has a slash, so that no two gangs have the same."""
        return f"{self.jobset}/{self.name}/"


@attrs.frozen
class GangCounts:
    """Pods of one gang that have not ended and are not being deleted.

    Args:
        members: number of pods.
        bound: number of pods with a node.
        gated: number of pods that a scheduling gate keeps from the scheduler.
        unschedulable: number of pods for which the scheduler has found no node.
    """

    members: int = 0
    bound: int = 0
    gated: int = 0
    unschedulable: int = 0

    @property
    def open(self) -> int:
        """Number of pods without a node."""
        return self.members - self.bound

    @classmethod
    def of(cls, gang: GangKey, count: Callable[[str], int]) -> GangCounts:
        """Return the counters of a gang from the number of pods with a value of :func:`gang_state`.

        O(1).
        """
        return cls(*(count(f"{gang}{why}") for why in ("", _BOUND, GATED, _UNSCHEDULABLE)))


def gang_state(pod: ChildPod) -> tuple[str, ...]:
    """Return the gang of a pod, and the gang with its state; nothing if it does not count."""
    state = _state_of(pod)
    return () if state is None else (f"{state[0]}", f"{state[0]}{state[1]}")


def changed_gangs(old: ChildPod | None, new: ChildPod | None) -> set[GangKey]:
    """Return the gangs whose counters are affected by a change of a pod."""
    before, after = (None if pod is None else _state_of(pod) for pod in (old, new))
    return set() if before == after else {state[0] for state in (before, after) if state}


def _state_of(pod: ChildPod) -> tuple[GangKey, str] | None:
    """Return the gang of a pod and its state in it; ``None`` if it does not count."""
    meta = pod.metadata
    if not meta.labels.pod_group or not pod.live:
        return None
    gang = GangKey(ObjectKey(meta.namespace, meta.labels.jobset_name), meta.labels.pod_group)
    return gang, _BOUND if pod.spec.node_name else pod.status.waiting
