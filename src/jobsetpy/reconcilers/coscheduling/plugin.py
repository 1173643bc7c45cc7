"""Coscheduling plugin as pure functions, named after the extension points of the proposal.

The proposal is "Lightweight coscheduling based on back-to-back queue sorting" (Kubernetes
scheduler-plugins). Its plugin runs inside the scheduler; here the same decisions are made outside
of it, by the program that holds binds.

A gang is derived from its pods, so that it is the same after a restart and on every replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

SHORTEST_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 840.0
"""Maximum timeout in seconds; a small control plane can schedule some 16,000 pods within it.

It has to be shorter than the scheduler's timeout (``httpTimeout``, 15 minutes).
"""
TIMEOUT_PER_POD_S: Final = 0.05


@attrs.frozen(order=True, slots=True)
class PodGroupKey:
    """Namespace and name of a gang: gangs of one name in two namespaces are unrelated."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@attrs.frozen(kw_only=True, slots=True)
class Member:
    """Properties of a pod that matter to its gang.

    Args:
        created: creation time of the pod, in seconds.
        min_available: value of its label; at least 1.
        priority: ``spec.priority``.
        timeout_s: maximum time in seconds for which its gang's binds are held, if the pod sets it.
        bound: it has a node.
        blocked: it has a scheduling gate, so no scheduler takes it yet.
    """

    created: float
    min_available: int = 1
    priority: int = 0
    timeout_s: float | None = None
    bound: bool = False
    blocked: bool = False


@attrs.frozen(kw_only=True, slots=True)
class PodGroupInfo:
    """Gang, as ``PodGroupInfo`` of the proposal.

    Args:
        key: namespace and name.
        initial_timestamp: creation time of its first pod, by the API server's clock, in seconds.
        min_available: number of pods that must be present together.
        priority: highest priority of its pods. They should all be equal; if they are not, the gang
            still stays together.
        timeout_s: maximum time in seconds for which its binds are held; ``None`` for
            :func:`permit_timeout`.
    """

    key: PodGroupKey
    initial_timestamp: float
    min_available: int
    priority: int = 0
    timeout_s: float | None = None


def pod_group_info(key: PodGroupKey, members: Iterable[Member]) -> PodGroupInfo:
    """Return the gang that pods form.

    Members may have different labels while a gang is being resized. The maximum of the pods without
    a node counts: the others got their node with an older value.

    Raises:
        ValueError: there is no member.
    """
    pods = list(members)
    if not pods:
        msg = f"{key} has no pods"
        raise ValueError(msg)
    open_ = [pod for pod in pods if not pod.bound] or pods
    timeouts = [pod.timeout_s for pod in pods if pod.timeout_s is not None]
    return PodGroupInfo(
        key=key,
        initial_timestamp=min(pod.created for pod in pods),
        min_available=max(1, *(pod.min_available for pod in open_)),
        priority=max(pod.priority for pod in pods),
        timeout_s=max(timeouts, default=None),
    )


# -- QueueSort ------------------------------------------------------------------------------------


class _Descending(str):
    """Text in reversed order."""

    __slots__ = ()
    __lt__, __le__, __gt__, __ge__ = str.__gt__, str.__ge__, str.__lt__, str.__le__


QueueKey = tuple[int, float, _Descending]


def queue_key(group: PodGroupInfo) -> QueueKey:
    """QueueSort: return the key by which gangs are sorted.

    Higher priority first; then by time; of two gangs with the same timestamp, the one with the
    lexicographically greater key is first, so that the order is total. Only gangs are ordered here:
    other pods are not held back, so the scheduler takes them by its own queue.
    """
    return -group.priority, group.initial_timestamp, _Descending(str(group.key))


# -- PreFilter ------------------------------------------------------------------------------------


def pre_filter(group: PodGroupInfo, members: int) -> bool:
    """PreFilter: return whether the gang has enough pods for the scheduler to try any of them.

    Args:
        group: gang of the pods.
        members: number of its pods that are neither finished nor being deleted, nor held back by a
            scheduling gate.
    """
    return members >= group.min_available


# -- Permit ---------------------------------------------------------------------------------------


def permit(group: PodGroupInfo, *, running: int, waiting: int) -> bool:
    """Permit: return whether a pod with a node, and all that wait with it, may be bound.

    Args:
        group: gang of the pod.
        running: number of its pods that are bound, or being bound.
        waiting: number of its *other* pods that have a node and wait.
    """
    return running + waiting + 1 >= group.min_available


def permit_timeout(
    group: PodGroupInfo,
    *,
    shortest_s: float = SHORTEST_TIMEOUT_S,
    per_pod_s: float = TIMEOUT_PER_POD_S,
) -> float:
    """Return the timeout of a gang in seconds, counted from its first pod with a node.

    It grows with the size of the gang, within bounds; a gang may set its own, up to the upper one.
    """
    if group.timeout_s is not None:
        return min(max(group.timeout_s, 1.0), LONGEST_TIMEOUT_S)
    return min(shortest_s + per_pod_s * group.min_available, LONGEST_TIMEOUT_S)


# -- Unreserve ------------------------------------------------------------------------------------


def unreserve(group: PodGroupInfo, *, running: int, waiting: Iterable[str]) -> tuple[str, ...]:
    """Unreserve: return the waiting pods that lose their reservation with one of their gang.

    All of them, unless the gang is complete without them: then none.

    Args:
        group: gang of the pods.
        running: number of its pods that are bound, or being bound.
        waiting: UIDs of its pods that hold a reservation.
    """
    if running >= group.min_available:
        return ()
    return tuple(waiting)
