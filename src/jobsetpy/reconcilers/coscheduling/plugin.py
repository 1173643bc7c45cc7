"""The coscheduling plugin as pure functions, under the names of the proposal's extension points.

The proposal is "Lightweight coscheduling based on back-to-back queue sorting" (Kubernetes
scheduler-plugins). Its plugin runs inside the scheduler; here the same decisions are taken outside
of it, by whoever lifts scheduling gates (PreFilter, QueueSort) and holds binds (Permit, Unreserve).

What a group is derives from its pods, so that it is the same after a restart and on every replica.
The one exception is the time of a group whose oldest pod was replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

SHORTEST_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 840.0
"""Enough for some 16,000 pods, which a small control plane takes minutes to find nodes for.

Has to be shorter than the scheduler waits for an answer (``httpTimeout``, 15 minutes).
"""
TIMEOUT_PER_POD_S: Final = 0.05


@attrs.frozen(order=True, slots=True)
class PodGroupKey:
    """Which group: groups of one name in two namespaces have nothing to do with each other."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@attrs.frozen(kw_only=True, slots=True)
class Member:
    """A pod of a group, as far as the group is concerned.

    Args:
        uid: of the pod.
        created: creation time of the pod, in seconds.
        min_available: value of its label; at least 1.
        priority: ``spec.priority``.
        timeout_s: how long its group's binds may be held, if the pod says so.
        bound: it has a node.
        needs_room: it is tried only where there may be room for its group.
        scheduler: ``spec.schedulerName``; "" for the default one.
        blocked: it has a scheduling gate of another controller, so no scheduler takes it yet.
    """

    uid: str
    created: float
    min_available: int = 1
    priority: int = 0
    timeout_s: float | None = None
    bound: bool = False
    needs_room: bool = True
    scheduler: str = ""
    blocked: bool = False


@attrs.frozen(kw_only=True, slots=True)
class PodGroupInfo:
    """What the proposal calls ``PodGroupInfo``.

    Args:
        key: namespace and name.
        initial_timestamp: of the group: creation of its first pod, by the API server's clock;
            seconds. A process that has not seen that pod takes the oldest one that is left.
        uid: tells groups of the same timestamp apart.
        min_available: so many pods have to be there at the same time.
        priority: the highest of its pods. They should all have the same; if they do not, the group
            still stays together.
        timeout_s: how long its binds may be held; ``None`` for :func:`permit_timeout`.
        needs_room: whether it is tried only where there may be room for it; else it is tried so
            that somebody makes room.
        scheduler: names of the schedulers of its pods; usually one.
    """

    key: PodGroupKey
    initial_timestamp: float
    uid: str
    min_available: int
    priority: int = 0
    timeout_s: float | None = None
    needs_room: bool = True
    scheduler: str = ""


def pod_group_info(key: PodGroupKey, members: Iterable[Member]) -> PodGroupInfo:
    """The group that pods make up.

    Members may have different labels while a group is being resized. What counts is what those ask
    for that have no node yet, and of that the most: the others got their node by an older value.

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
        # Unique, and the same whichever of its pods are left.
        uid=str(key),
        min_available=max(1, *(pod.min_available for pod in open_)),
        priority=max(pod.priority for pod in pods),
        timeout_s=max(timeouts) if timeouts else None,
        needs_room=all(pod.needs_room for pod in open_),
        scheduler=",".join(sorted({pod.scheduler for pod in pods})),
    )


# -- QueueSort ------------------------------------------------------------------------------------


class _Descending:
    """Turns the order of texts round."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _Descending) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


QueueKey = tuple[int, float, _Descending]


def queue_key(group: PodGroupInfo) -> QueueKey:
    """Sorts groups in the order of :func:`less`."""
    return -group.priority, group.initial_timestamp, _Descending(group.uid)


def less(a: PodGroupInfo, b: PodGroupInfo) -> bool:
    """QueueSort: whether ``a`` comes before ``b``.

    First by priority, higher first; then by time; of two groups of one timestamp, the one with the
    lexicographically greater UID is first, so that the order is total. Only groups are ordered
    here: pods of no group are not held back, so the scheduler takes them by its own queue.
    """
    return queue_key(a) < queue_key(b)


# -- PreFilter ------------------------------------------------------------------------------------


def pre_filter(group: PodGroupInfo, members: int) -> bool:
    """PreFilter: whether the group is large enough for the scheduler to look at any of its pods.

    Args:
        group: the group.
        members: its pods that are neither finished nor being deleted, nor held back by a scheduling
            gate of another controller.
    """
    return members >= group.min_available


# -- Permit ---------------------------------------------------------------------------------------


def permit(group: PodGroupInfo, *, running: int, waiting: int) -> bool:
    """Permit: whether a pod that has found a node may be bound, and all that wait with it.

    Args:
        group: the group.
        running: its pods that are bound, or on the way to be.
        waiting: its *other* pods that have found a node and wait.
    """
    return running + waiting + 1 >= group.min_available


def permit_timeout(
    group: PodGroupInfo,
    *,
    shortest_s: float = SHORTEST_TIMEOUT_S,
    per_pod_s: float = TIMEOUT_PER_POD_S,
    longest_s: float = LONGEST_TIMEOUT_S,
) -> float:
    """How many seconds after its first pod found a node a group gives up.

    Grows with the size of the group, within bounds; a group may set its own, within the upper one.
    """
    if group.timeout_s is not None:
        return min(max(group.timeout_s, 1.0), longest_s)
    return min(shortest_s + per_pod_s * group.min_available, longest_s)


# -- Unreserve ------------------------------------------------------------------------------------


def unreserve(group: PodGroupInfo, *, running: int, waiting: Iterable[str]) -> tuple[str, ...]:
    """Unreserve: the waiting pods that lose their reservation when one of the group loses its own.

    All of them, unless the group is complete without: then none has to go.

    Args:
        group: the group.
        running: its pods that are bound, or on the way to be.
        waiting: UIDs of its pods that hold a reservation.
    """
    if running >= group.min_available:
        return ()
    return tuple(waiting)
