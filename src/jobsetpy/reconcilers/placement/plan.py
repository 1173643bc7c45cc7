"""What one reconcile of an exclusively placed Job does: release, evict, what is told, and when.

Deleting cannot be taken back. So evictions that were decided on the cache are only asked about: the
pods are listed, and the same plan is made of what the API server knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import attrs

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ENDED, ChildPodMeta, ChildPodSpec
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import Condition, ObjectKey, condition_true
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.placement.admission import LEADER_INDEX, NodeLabels
from jobsetpy.reconcilers.placement.followers import (
    FollowersPlan,
    PlacedPod,
    UnknownTopology,
    plan_followers,
)
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.plan import EmitEvent, Now, Plan


@attrs.frozen(kw_only=True)
class Incarnation:
    """The pods of a Job of one UID.

    Args:
        first: any of its pods; events name it.
        over: whether no pod will have completion index 0 any more.
        pods: as the cache shows them.
        listed: as the API server has just listed them.
    """

    first: ChildPod
    over: bool = False
    pods: Sequence[PlacedPod]
    listed: Sequence[PlacedPod] | None = None

    @property
    def uid(self) -> str:
        """UID of the Job."""
        return self.first.metadata.controller_uid


@attrs.frozen(kw_only=True)
class ObservedPlacement:
    """What is known of a Job's pods.

    Args:
        job: the Job.
        incarnations: its pods by their Jobs' UIDs.
        nodes: finds nodes.
        repair: whether misplaced followers are evicted.
        look_again_s: seconds after writes until the cache shows them.
    """

    job: ObjectKey
    incarnations: Sequence[Incarnation]
    nodes: NodeLabels
    repair: bool = True
    look_again_s: float = 30.0


@attrs.frozen(kw_only=True)
class PlacementMemory:
    """What is remembered of a Job between reconciles; nothing that could not be lost.

    Args:
        acted: by UID, the version of a pod that a write was made on and that the cache may still
            show.
        told: the topology that users were told is unknown.
    """

    acted: Mapping[str, str] = attrs.field(factory=dict)
    told: UnknownTopology | None = None


@attrs.frozen
class Placement:
    """What to do with the pods of one incarnation.

    Args:
        of: the incarnation.
        followers: its followers: those to be released that were not yet, and those to be evicted.
        notices: what is told first.
    """

    of: Incarnation
    followers: FollowersPlan
    notices: tuple[EmitEvent, ...] = ()

    def evicted(self, job: str, count: int) -> EmitEvent:
        """What is told when so many pods were evicted."""
        domain, first = self.followers.domain, self.of.first.metadata
        where = (
            f"they have to be where {first.annotations.placed_topology} is {domain!r}"
            if domain is not None
            else "there is no pod left that tells where they belong"
        )
        message = f"{count} pods of Job {job!r} start anew: {where}"
        return EmitEvent(WARNING, keys.PLACEMENT_VIOLATION_REASON, message, pod=first.name)


@attrs.frozen(kw_only=True)
class PlacementPlan(Plan[PlacementMemory]):
    """What to do with the pods of a Job.

    Args:
        unconfirmed: incarnations whose pods have to be listed, and the plan made again, before
            anything else of the plan is done.
        placements: what to do, by incarnation.
        at: when that was decided; conditions of evicted pods say so.
    """

    at: datetime
    unconfirmed: tuple[Incarnation, ...] = ()
    placements: tuple[Placement, ...] = ()


def plan_placement(observed: ObservedPlacement, memory: PlacementMemory, now: Now) -> PlacementPlan:
    """Release, and if need be evict, the followers of one Job."""
    shown = {p.uid: p.version for each in observed.incarnations for p in each.pods}
    # Without writes that the cache shows by now.
    acted = {uid: at for uid, at in memory.acted.items() if shown.get(uid) == at}
    told = memory.told if observed.incarnations else None
    unconfirmed, placements = [], []
    for each in observed.incarnations:
        pods = each.pods if each.listed is None else each.listed
        plan = plan_followers(pods, observed.nodes, over=each.over)
        evict = plan.evict if observed.repair else tuple(pod for pod in plan.evict if pod.held)
        if evict and each.listed is None:
            unconfirmed.append(each)
        release = tuple(pod for pod in plan.release if acted.get(pod.uid) != pod.version)
        plan = attrs.evolve(plan, release=release, evict=evict)
        placements.append(Placement(each, plan, _unknown(each, plan.unknown, told)))
        told = plan.unknown
    writes = [
        pod for each in placements for pod in (*each.followers.release, *each.followers.evict)
    ]
    acted |= {pod.uid: pod.version for pod in writes}
    result = Result.done()
    if acted:
        evicted = sum(len(each.followers.evict) for each in placements)
        summary = f"released {len(writes) - evicted}, evicted {evicted}" if writes else ""
        result = Result.requeue_after(timedelta(seconds=observed.look_again_s), summary=summary)
    return PlacementPlan(
        at=now.wall,
        memory=PlacementMemory(acted=acted, told=told) if acted or told is not None else None,
        unconfirmed=tuple(unconfirmed),
        placements=tuple(placements),
        result=result,
    )


def _unknown(
    of: Incarnation, unknown: UnknownTopology | None, told: UnknownTopology | None
) -> tuple[EmitEvent, ...]:
    if unknown is None or not unknown.topology or unknown == told:
        return ()
    pod = of.first.metadata.name
    message = (
        f"the leader of pod {pod!r} is on node {unknown.node!r}, which does "
        f"not have the label {unknown.topology!r}: its followers wait"
    )
    return (EmitEvent(WARNING, keys.TOPOLOGY_UNKNOWN_REASON, message, pod=pod),)


def placed_pod(
    meta: ChildPodMeta, spec: ChildPodSpec, phase: str, conditions: tuple[Condition, ...] = ()
) -> PlacedPod:
    """What is known of a pod under exclusive placement; the cache does not hold conditions."""
    topology = meta.annotations.placed_topology or ""
    return PlacedPod(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        is_leader=meta.annotations.completion_index == LEADER_INDEX,
        live=meta.deletion_timestamp is None and phase not in ENDED,
        topology=topology,
        node=spec.node_name,
        domain=(spec.node_selector or {}).get(topology),
        held=spec.held,
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        disrupted=condition_true(conditions, keys.DISRUPTION_TARGET_CONDITION) is not None,
    )
