"""Inputs, state and actions of the gang scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

from jobsetpy.reconcilers.coscheduling import plugin
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey


class PodState(Enum):
    """State of a pod in a gang."""

    GATED = "gated"
    UNGATED = "lifted"  # published in metrics
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"

    # Hash by identity: that of Enum is a Python function, called for each lookup.
    __hash__ = object.__hash__


@attrs.frozen(kw_only=True)
class SeenPod:
    """Pod of a gang, as observed in the cache.

    Args:
        group: gang of the pod.
        name: name of the pod.
        uid: UID of the pod.
        member: properties that matter to its gang; ``bound`` if it has a node.
        gated: it has our scheduling gate.
        ended: it has finished, or is being deleted.
    """

    group: PodGroupKey
    name: str
    uid: str
    member: Member
    gated: bool = False
    ended: bool = False


@attrs.frozen
class Ungate:
    """Remove the scheduling gate of a pod."""

    group: PodGroupKey
    name: str
    uid: str


@attrs.frozen
class Bind:
    """Bind the pod of a held request; then report the result, and answer."""

    ticket: int
    uid: str


@attrs.frozen
class Refuse:
    """Answer a held request with an error."""

    ticket: int
    uid: str
    reason: str


@attrs.frozen
class KeepTime:
    """Write the time from which a gang has waited into the status of a pod.

    Its oldest pod was replaced. Another process would see only the remaining pods, and the gang
    would lose its place in the queue.
    """

    group: PodGroupKey
    uid: str
    since: float


Action = Ungate | Bind | Refuse | KeepTime


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of the gang scheduler.

    Args:
        in_flight: maximum number of incomplete gangs ungated at a time.
        stuck: additional maximum for gangs that have failed ``stuck_after`` times.
        stuck_after: number of failures after which a gang counts as stuck.
        settle_s: time in seconds after which an ungated gang counts as settled, plus
            ``settle_per_pod_s`` for each pod.
        settle_per_pod_s: additional settling time for each pod, in seconds.
        patience_s: time in seconds for which an incomplete gang with an unschedulable pod keeps its
            reservations before other gangs get them; applies to its first attempt only.
        permit_s: time in seconds for which binds of an incomplete gang are held, plus
            ``permit_per_pod_s`` for each required pod; see ``plugin.permit_timeout``.
        permit_per_pod_s: additional time for each required pod, in seconds.
        gather_s: interval in seconds within which new pods have to appear for the binds of a gang
            with too few pods to be held; 0 refuses them.
        first_backoff_s: time in seconds for which binds of a refused gang are refused; doubled each
            time, at most ``longest_backoff_s``.
        longest_backoff_s: maximum back-off, in seconds.
        reserve_after_s: waiting time in seconds after which capacity that becomes free is reserved
            for a gang, if it may fit into the empty cluster; 0 for never.
        held: maximum number of binds that can be held at a time; 0 for no limit.
    """

    in_flight: int = 4
    stuck: int = 32
    stuck_after: int = 3
    settle_s: float = 5.0
    settle_per_pod_s: float = 0.02
    patience_s: float = 5.0
    permit_s: float = plugin.SHORTEST_TIMEOUT_S
    permit_per_pod_s: float = plugin.TIMEOUT_PER_POD_S
    gather_s: float = 3.0
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 10.0
    reserve_after_s: float = 60.0
    held: int = 0

    def round_s(self, pods: int) -> float:
        """Return the time in which this number of pods returns from the scheduler's back-off."""
        return self.longest_backoff_s + self.settle_s + self.settle_per_pod_s * pods


class Cause(Enum):
    """Reason for refusing a gang's held binds."""

    UNSCHEDULABLE = "unschedulable"
    """One of its pods found no node."""
    YIELDED = "yielded"
    """An older gang found no node, and this one held capacity."""
    TIMEOUT = "timeout"
    """It was not complete in time."""
    PREEMPTED = "preempted"
    """A pod of higher priority needs its capacity."""
    TOO_SMALL = "too_small"
    """Pods were deleted while it waited."""


@attrs.frozen
class Progress:
    """Progress of a gang, as its parts review it.

    Args:
        ready: it has gated pods that may be ungated.
        in_flight: it is at least partly ungated, and not complete.
        waits: it waits for capacity: behind its gates, or while it is being placed.
    """

    ready: bool
    in_flight: bool
    waits: bool


@attrs.frozen
class Preemption:
    """Answer to the scheduler's request to delete pods for another one.

    Args:
        outcome: ``allowed``, ``spared`` (waiting gangs give up their reservations) or ``refused``.
        nodes: remaining nodes, each with all its victims.
        actions: actions to execute.
    """

    outcome: str
    nodes: dict[str, list[str]]
    actions: list[Action]


@attrs.frozen
class Counts:
    """Numbers of gangs and pods.

    Args:
        groups: number by stage: ``incomplete``, ``queued``, ``lifted``, ``holding``, ``bound``.
        pods: number by values of :class:`PodState`.
    """

    groups: Mapping[str, int]
    pods: Mapping[str, int]
