"""Plan of one reconcile of an exclusively placed Job: releases, evictions and events.

A deletion cannot be undone. So evictions that are based on the cache are confirmed first: the pods
are listed from the API server, and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.placement.admission import NodeLabels
from jobsetpy.reconcilers.placement.followers import (
    FollowersPlan,
    PlacedPod,
    UnknownTopology,
    plan_followers,
)
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan
from jobsetpy.reconcilers.rules.times import Now

LOOK_AGAIN_S: Final = 30.0
"""Time in seconds after writes until the next reconcile; the cache shows them by then."""


@attrs.frozen(kw_only=True)
class Incarnation:
    """Pods of a Job of one UID.

    Args:
        over: no further pod will have completion index 0.
        pods: pods in the cache, at least one.
        listed: pods just listed from the API server.
    """

    over: bool = False
    pods: Sequence[ChildPod]
    listed: Sequence[PlacedPod] | None = None

    @property
    def first(self) -> ChildPod:
        """Any of its pods, which events refer to."""
        return self.pods[0]

    @property
    def uid(self) -> str:
        """UID of the Job."""
        return self.first.metadata.controller_uid


@attrs.frozen(kw_only=True)
class ObservedPlacement:
    """Input of one plan.

    Args:
        job: namespace and name of the Job.
        incarnations: its pods, grouped by the UID of their Job.
        nodes: lookup of node labels.
        repair: evict misplaced followers.
    """

    job: ObjectKey
    incarnations: Sequence[Incarnation]
    nodes: NodeLabels
    repair: bool = True


@attrs.frozen(kw_only=True)
class PlacementMemory:
    """State kept of a Job between reconciles; all of it may be lost.

    Args:
        acted: resourceVersion of each pod at its last write, by UID, while the cache may still show
            it.
        reported: unknown topology that was last reported by an event.
    """

    acted: Mapping[str, str] = attrs.field(factory=dict)
    reported: UnknownTopology | None = None


@attrs.frozen
class Placement:
    """Actions for the pods of one incarnation.

    Args:
        of: pods that the actions are for.
        followers: followers still to be released, and those to be evicted.
        notices: events emitted before the actions.
    """

    of: Incarnation
    followers: FollowersPlan
    notices: tuple[EmitEvent, ...] = ()

    def evicted(self, job: str, count: int) -> EmitEvent:
        """Return the event about this number of evicted pods."""
        domain, first = self.followers.domain, self.of.first.metadata
        where = (
            f"they have to be where {first.annotations.placed_topology} is {domain!r}"
            if domain is not None
            else "no pod is left that shows where they belong"
        )
        message = f"{count} pods of Job {job!r} start again: {where}"
        return EmitEvent(WARNING, keys.PLACEMENT_VIOLATION_REASON, message, pod=first.name)


@attrs.frozen(kw_only=True)
class PlacementPlan(Plan[PlacementMemory]):
    """Actions for the pods of a Job.

    Args:
        unconfirmed: incarnations whose pods have to be listed, and the plan made again, before any
            other action.
        placements: actions by incarnation.
        at: time of the plan, for conditions of evicted pods.
    """

    at: datetime
    unconfirmed: tuple[Incarnation, ...] = ()
    placements: tuple[Placement, ...] = ()


def plan_placement(observed: ObservedPlacement, memory: PlacementMemory, now: Now) -> PlacementPlan:
    """Plan the release and, if necessary, the eviction of the followers of one Job."""
    acted = _not_shown(memory.acted, observed)
    reported = memory.reported if observed.incarnations else None
    unconfirmed, placements = [], []
    for each in observed.incarnations:
        plan = _followers(observed, each, acted)
        if plan.evict and each.listed is None:
            unconfirmed.append(each)
        placements.append(Placement(each, plan, _unknown(each, plan.unknown, reported)))
        reported = plan.unknown
    released = [pod for each in placements for pod in each.followers.release]
    evicted = [pod for each in placements for pod in each.followers.evict]
    acted |= _versions((*released, *evicted))
    result = Result.done()
    if acted:
        summary = f"released {len(released)}, evicted {len(evicted)}"
        summary = summary if released or evicted else ""
        result = Result.requeue_after(LOOK_AGAIN_S, summary=summary)
    kept = PlacementMemory(acted=acted, reported=reported)
    return PlacementPlan(
        at=now.wall,
        memory=None if kept == PlacementMemory() else kept,
        unconfirmed=tuple(unconfirmed),
        placements=tuple(placements),
        result=result,
    )


def _versions(pods: Iterable[PlacedPod]) -> dict[str, str]:
    """Return the resourceVersions of pods by UID."""
    return {pod.metadata.uid: pod.metadata.resource_version for pod in pods}


def _not_shown(acted: Mapping[str, str], observed: ObservedPlacement) -> dict[str, str]:
    """Return the writes that the cache does not show yet."""
    shown = _versions(pod for each in observed.incarnations for pod in each.pods)
    return {uid: at for uid, at in acted.items() if shown.get(uid) == at}


def _followers(
    observed: ObservedPlacement, of: Incarnation, acted: Mapping[str, str]
) -> FollowersPlan:
    """Return the actions for one incarnation, without releases that the cache does not show yet."""
    pods = of.pods if of.listed is None else of.listed
    plan = plan_followers(pods, observed.nodes, over=of.over)
    return attrs.evolve(
        plan,
        release=tuple(
            pod
            for pod in plan.release
            if acted.get(pod.metadata.uid) != pod.metadata.resource_version
        ),
        evict=plan.evict if observed.repair else tuple(p for p in plan.evict if p.spec.held),
    )


def _unknown(
    of: Incarnation, unknown: UnknownTopology | None, reported: UnknownTopology | None
) -> tuple[EmitEvent, ...]:
    if unknown is None or not unknown.topology or unknown == reported:
        return ()
    pod = of.first.metadata.name
    message = (
        f"the leader of pod {pod!r} is on node {unknown.node!r}, which does "
        f"not have the label {unknown.topology!r}: its followers wait"
    )
    return (EmitEvent(WARNING, keys.TOPOLOGY_UNKNOWN_REASON, message, pod=pod),)
