"""Plan for the pods of an unreachable node: which are given up now, and when to check the others.

A pod that is being deleted waits for its kubelet to confirm that it has ended. The kubelet of a
lost node never does; the pod keeps its name and index forever, and with ``podReplacementPolicy:
Failed`` no replacement is created. So once its grace period and the JobSet's deadline are over, it
is marked as failed and deleted by force.

The plan depends only on objects of the API, so that a new manager continues where the last one
stopped. Each time is compared with the manager's wall clock once
(``reconcilers.rules.times``). A forced deletion cannot be undone: before it, the node is read
from the API server, and the deletion names the version of the pod that the plan saw.
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
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan
from jobsetpy.reconcilers.rules.times import Now, PinnedTime, pin

LEAVING_S: Final = 10.0
"""Minimum time in seconds between the deletion of a pod and its forced deletion.

Its agent may still reach the API server when its kubelet does not. It starts no worker unless it
has recently confirmed that its pod exists and is not being deleted (``FRESH_S`` of
``agent.protocol.epoch_reporter``, which is less).
"""

MAX_NAMED: Final = 10
"""Maximum number of pods named in an event; the others are only counted."""


@attrs.frozen
class LeavingPod:
    """Pod that is being deleted, of an existing JobSet.

    Args:
        pod: the pod.
        jobset: JobSet that owns it, by UIDs.
    """

    pod: ChildPod
    jobset: JobSet


@attrs.frozen(kw_only=True)
class ObservedNode:
    """Input of one plan.

    Args:
        name: name of the node.
        unreachable_since: time of its taint in the API; ``None`` if it is reachable or does not
            exist: the pod garbage collector then deletes the remaining pods.
        pods: pods that are being deleted on it.
        default_s: deadline in seconds of JobSets without the annotation; 0 for never.
        confirmed: the node was just read from the API server.
    """

    name: str
    unreachable_since: datetime | None = None
    pods: Sequence[LeavingPod] = ()
    default_s: float = 0.0
    confirmed: bool = False


DueTimes = Mapping[str, PinnedTime]
"""Times at which pods are given up, by UID; remembered from plan to plan."""


@attrs.frozen
class LostPods:
    """Pods of one JobSet that are given up.

    Args:
        jobset: JobSet that owns the pods.
        pods: pods to be deleted by force.
        since: time at which their node was marked as unreachable.
        why: clause that explains the deletion in their condition and the event.
    """

    jobset: JobSet
    pods: tuple[ChildPod, ...]
    since: datetime
    why: str

    def event(self, names: Sequence[str]) -> EmitEvent:
        """Return the event about the forced deletion of the pods of these names."""
        shown = ", ".join(repr(name) for name in names[:MAX_NAMED])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        what = "pod was" if len(names) == 1 else f"{len(names)} pods were"
        message = f"{what} deleted by force, {self.why}: {shown}{more}"
        return EmitEvent(WARNING, keys.NODE_LOST_REASON, message, pod=names[0])


@attrs.frozen(kw_only=True)
class LostNodePlan(Plan[DueTimes]):
    """Actions for a node.

    Args:
        confirm: the node has to be read from the API server and the plan made again, before any
            action.
        lost: pods to give up.
        at: time of the plan.
    """

    at: datetime
    confirm: bool = False
    lost: tuple[LostPods, ...] = ()


def plan_lost_node(observed: ObservedNode, memory: DueTimes, now: Now) -> LostNodePlan:
    """Plan one reconcile of a node; O(pods that are being deleted on it)."""
    since = observed.unreachable_since
    if since is None:
        return LostNodePlan(at=now.wall)
    given_up: dict[ObjectKey, tuple[JobSet, list[ChildPod]]] = {}
    due: dict[str, PinnedTime] = {}
    waits: list[float] = []
    for each in observed.pods:
        uid = each.pod.metadata.uid
        at = _due_at(each, since, observed.default_s, memory.get(uid), now)
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
    result = Result.requeue_after(min(waits)) if waits else Result.done()
    if not observed.confirmed:
        return LostNodePlan(at=now.wall, confirm=bool(lost), result=result, memory=due)
    if lost:
        count = sum(len(each.pods) for each in lost)
        result = attrs.evolve(result, summary=f"gave up {count} pods")
    return LostNodePlan(at=now.wall, lost=lost, result=result, memory=due)


def is_leaving(pod: ChildPod) -> bool:
    """Return whether a pod waits for the kubelet of its node to end it.

    A pod that was deleted by force still waits while it is not marked as failed: the finalizer of
    the Job controller keeps it. Once marked, it no longer waits for the kubelet.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None or not pod.spec.node_name:
        return False
    return meta.deletion_grace_period_seconds != 0 or pod.status.phase not in ENDED


def _due_at(
    each: LeavingPod, since: datetime, default_s: float, known: PinnedTime | None, now: Now
) -> PinnedTime | None:
    """Return the time at which a pod is given up; ``None`` for never."""
    deadline_s = deadline_of(each.jobset.metadata.annotations, default_s)
    meta = each.pod.metadata
    # The deletion timestamp is the end of the grace period.
    end = meta.deletion_timestamp
    if not deadline_s or end is None or not is_leaving(each.pod):
        return None
    grace_s = meta.deletion_grace_period_seconds or 0
    asked = end - timedelta(seconds=grace_s)
    at = max(since + timedelta(seconds=deadline_s), end, asked + timedelta(seconds=LEAVING_S))
    # When this manager first sees both, no more than the full time can be left.
    return pin(known, at, now, longest_s=max(deadline_s, grace_s, LEAVING_S))


def _why(observed: ObservedNode, since: datetime, jobset: JobSet) -> str:
    deadline_s = deadline_of(jobset.metadata.annotations, observed.default_s)
    return (
        f"since nothing was heard of node {observed.name!r} since "
        f"{seconds_text(since)}, longer than the deadline of {deadline_s:g} s"
    )
