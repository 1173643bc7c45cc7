"""Inputs, state and actions of the gang scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

from jobsetpy.reconcilers.coscheduling import plugin
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey


class PodState(Enum):
    """State of a pod in a gang."""

    PENDING = "pending"
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
        ended: it has finished, or is being deleted.
    """

    group: PodGroupKey
    name: str
    uid: str
    member: Member
    ended: bool = False


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


Action = Bind | Refuse


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of the gang scheduler.

    Args:
        turn_s: duration in seconds of the turn of a gang that lacks capacity, plus
            ``permit_per_pod_s`` for each of its pods; longer than kube-scheduler's back-off.
        permit_s: time in seconds for which binds of an incomplete gang are held, plus
            ``permit_per_pod_s`` for each required pod; see ``plugin.permit_timeout``.
        permit_per_pod_s: additional time for each required pod, in seconds.
        first_backoff_s: time in seconds for which binds of a refused gang are refused; doubled each
            time, at most ``longest_backoff_s``.
        longest_backoff_s: maximum back-off, in seconds.
        first_preemption_s: time in seconds for which a gang preempts no more pods after it was
            refused although it had preempted some; doubled each time, at most
            ``longest_preemption_s``.
        longest_preemption_s: maximum of that time, in seconds.
        held: maximum number of binds that can be held at a time; 0 for no limit.
    """

    turn_s: float = 15.0
    permit_s: float = plugin.SHORTEST_TIMEOUT_S
    permit_per_pod_s: float = plugin.TIMEOUT_PER_POD_S
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 10.0
    first_preemption_s: float = 60.0
    longest_preemption_s: float = 3600.0
    held: int = 0


class Stage(Enum):
    """Stage of a gang."""

    INCOMPLETE = "incomplete"
    """It has fewer pods than it needs."""
    PENDING = "pending"
    HOLDING = "holding"
    """Some of its pods have a node reserved."""
    BOUND = "bound"

    __hash__ = object.__hash__  # as of PodState


class Cause(Enum):
    """Reason for refusing a gang's held binds."""

    YIELDED = "yielded"
    """One of its pods found no node, and another gang has the turn."""
    TIMEOUT = "timeout"
    """It was not complete in time."""
    PREEMPTED = "preempted"
    """A pod of higher priority needs its capacity."""
    TOO_SMALL = "too_small"
    """Pods were deleted while it waited."""


class Outcome(Enum):
    """Outcome of a request to delete pods."""

    ALLOWED = "allowed"
    SPARED = "spared"
    """Waiting gangs give up their reservations in their place."""
    REFUSED = "refused"


@attrs.frozen
class Preemption:
    """Answer to the scheduler's request to delete pods for another one.

    Args:
        outcome: outcome of the request.
        nodes: remaining nodes, each with all its victims.
        actions: actions to execute.
    """

    outcome: Outcome
    nodes: dict[str, list[str]]
    actions: list[Action]


@attrs.frozen
class Counts:
    """Numbers of gangs and pods.

    Args:
        groups: number of gangs by their stage.
        pods: number of pods by their state.
    """

    groups: Mapping[Stage, int]
    pods: Mapping[PodState, int]
