"""Which pods of an unreachable node are given up now, and when to look at the others.

A pod that is being deleted waits for its kubelet to say that it has ended. That of a lost node
never will; the pod keeps its place for ever, and with ``podReplacementPolicy: Failed`` no other is
made. So once its grace period and the JobSet's deadline are over, it is marked as failed and
deleted by force.

What this rests on is read off the API's objects alone, so that a new manager continues where the
last one was. Each time is compared with the manager's wall clock once
(``reconcilers.rules.pinned_time``). Deleting by force cannot be taken back: the node is read again
before, past the cache, and the pod is named with the version that was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ENDED
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.pinned_time import PinnedTime, pin
from jobsetpy.reconcilers.rules.plan import EmitEvent, Now, Plan

LEAVING_S: Final = 10.0
"""A pod is being deleted for so long at least before it is given up, however short its grace is.

Its agent may still reach the API server where its kubelet does not. It starts no worker unless it
has just been told that its pod is there and stays (``FRESH_S`` of ``agent.epoch_reporter``, which
is less).
"""

MAX_NAMED: Final = 10
"""So many pods are named in an event; the others are only counted."""


@attrs.frozen
class LeavingPod:
    """A pod that is being deleted, of a JobSet that is there.

    Args:
        pod: the pod.
        jobset: whose it is, by UIDs.
    """

    pod: ChildPod
    jobset: JobSet


@attrs.frozen(kw_only=True)
class ObservedNode:
    """What is known of a node.

    Args:
        name: of the node.
        unreachable_since: as the API holds it; ``None`` if it is not, or if the node is gone: what
            is left of its pods then is the pod garbage collector's.
        pods: those that are being deleted on it.
        default_s: deadline of JobSets that say nothing; 0 for never.
        confirmed: whether the node was just read from the API server.
        due: ``LostNodePlan.due`` of the plan before.
    """

    name: str
    unreachable_since: datetime | None = None
    pods: Sequence[LeavingPod] = ()
    default_s: float = 0.0
    confirmed: bool = False
    due: Mapping[str, PinnedTime] = attrs.field(factory=dict)


@attrs.frozen
class LostPods:
    """Pods of one JobSet that are given up.

    Args:
        jobset: whose they are.
        pods: which.
        since: when their node was marked as unreachable.
        why: half a sentence, for their condition and the event.
    """

    jobset: JobSet
    pods: tuple[ChildPod, ...]
    since: datetime
    why: str

    def event(self, names: Sequence[str]) -> EmitEvent:
        """Return the event for when the pods of these names were deleted."""
        shown = ", ".join(repr(name) for name in names[:MAX_NAMED])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        what = "pod was" if len(names) == 1 else f"{len(names)} pods were"
        message = f"{what} deleted by force, {self.why}: {shown}{more}"
        return EmitEvent(WARNING, keys.NODE_LOST_REASON, message, pod=names[0])


@attrs.frozen(kw_only=True)
class LostNodePlan(Plan[None]):
    """Actions for a node.

    Args:
        confirm: whether to read the node from the API server and plan again, before anything is
            done.
        lost: which pods to give up.
        at: when that was decided.
        due: when pods are given up, by UID.
    """

    at: datetime
    confirm: bool = False
    lost: tuple[LostPods, ...] = ()
    due: Mapping[str, PinnedTime] = attrs.field(factory=dict)


def plan_lost_node(observed: ObservedNode, now: Now) -> LostNodePlan:
    """Plan one reconcile of a node; O(pods that are being deleted on it)."""
    since = observed.unreachable_since
    if since is None:
        return LostNodePlan(at=now.wall)
    given_up: dict[ObjectKey, tuple[JobSet, list[ChildPod]]] = {}
    due: dict[str, PinnedTime] = {}
    waits: list[float] = []
    for each in observed.pods:
        uid = each.pod.metadata.uid
        at = _due_at(each, since, observed.default_s, observed.due.get(uid), now)
        if at is None:
            continue
        due[uid] = at
        wait_s = at.left_s(now)
        if wait_s:
            waits.append(wait_s)
        else:
            jobset = each.jobset
            given_up.setdefault(jobset.metadata.key, (jobset, []))[1].append(each.pod)
    lost = tuple(
        LostPods(jobset, tuple(pods), since, _why(observed, since, jobset))
        for jobset, pods in given_up.values()
    )
    result = Result.done()
    if waits:
        result = Result.requeue_after(timedelta(seconds=min(waits)))
    if not observed.confirmed:
        return LostNodePlan(at=now.wall, confirm=bool(lost), result=result, due=due)
    if lost:
        count = sum(len(each.pods) for each in lost)
        result = attrs.evolve(result, summary=f"gave up {count} pods")
    return LostNodePlan(at=now.wall, lost=lost, result=result, due=due)


def is_leaving(pod: ChildPod) -> bool:
    """Tell if a pod waits for the kubelet of its node to end it.

    One that was deleted by force still does while it is not marked as failed: the Job controller's
    finalizer keeps it. One that is marked as well waits for others.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None or not pod.spec.node_name:
        return False
    return meta.deletion_grace_period_seconds != 0 or pod.status.phase not in ENDED


def _due_at(
    each: LeavingPod, since: datetime, default_s: float, known: PinnedTime | None, now: Now
) -> PinnedTime | None:
    """When a pod is given up; ``None`` if it never is."""
    deadline_s = deadline_of(each.jobset.metadata.annotations, default_s)
    meta = each.pod.metadata
    # The timestamp is when the grace period ends.
    end = meta.deletion_timestamp
    if not deadline_s or end is None or not is_leaving(each.pod):
        return None
    grace_s = meta.deletion_grace_period_seconds or 0
    told = end - timedelta(seconds=grace_s)
    at = max(since + timedelta(seconds=deadline_s), end, told + timedelta(seconds=LEAVING_S))
    # Neither the node nor the pod can have been given less time when this manager sees both.
    return pin(known, at, now, longest_s=max(deadline_s, grace_s, LEAVING_S))


def _why(observed: ObservedNode, since: datetime, jobset: JobSet) -> str:
    deadline_s = deadline_of(jobset.metadata.annotations, observed.default_s)
    return (
        f"since nothing was heard of node {observed.name!r} since "
        f"{seconds_text(since)}, longer than the deadline of {deadline_s:g} s"
    )
