"""Plan of one reconcile of an exclusively placed Job: releases, evictions and events.

``admission`` decides once, when a pod is created. This module decides about existing pods, each
time one of them changes: held followers are released into the leader's domain, and if a follower is
in any other domain, all followers that are not held are recreated (JobSet's rule for violations).
It is linear in the number of the Job's pods.

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
from jobsetpy.reconcilers.execution.kinds import ListedPod
from jobsetpy.reconcilers.placement.admission import LEADER_INDEX, NodeLabels
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan
from jobsetpy.reconcilers.rules.times import Now

LOOK_AGAIN_S: Final = 30.0
"""Time in seconds after writes until the next reconcile; the cache shows them by then."""


PlacedPod = ChildPod | ListedPod
"""Pod with exclusive placement: from the cache, or just listed from the API server."""


@attrs.frozen
class UnknownTopology:
    """Leader on a node whose domain is unknown.

    Args:
        node: name of the node.
        topology: key of the missing label; "" if the node itself is not known.
    """

    node: str
    topology: str = ""


@attrs.frozen
class FollowersPlan:
    """Actions for the followers of one Job.

    Args:
        domain: domain of the followers; ``None`` if it is unknown.
        release: held followers to be sent to the domain.
        evict: followers to be deleted, so that their replacements are placed correctly.
        unknown: reason for an unknown domain, if something outside the Job has to change.
    """

    domain: str | None = None
    release: tuple[PlacedPod, ...] = ()
    evict: tuple[PlacedPod, ...] = ()
    unknown: UnknownTopology | None = None


WAIT = FollowersPlan()
"""Plan without actions, until something changes."""


def is_leader(pod: PlacedPod) -> bool:
    """Return True for a pod with completion index 0."""
    return pod.metadata.annotations.completion_index == LEADER_INDEX


def topology_of(pod: PlacedPod) -> str:
    """Return the key of the node label that names domains."""
    return pod.metadata.annotations.placed_topology or ""


def selected_domain(pod: PlacedPod) -> str | None:
    """Return the domain in the node selector, if it has one."""
    return (pod.spec.node_selector or {}).get(topology_of(pod))


def plan_followers(pods: Sequence[PlacedPod], nodes: NodeLabels, *, over: bool) -> FollowersPlan:
    """Return the actions for the followers of one Job.

    The node of the live leader decides. With several live leaders, or a leader without a node, the
    plan is empty: the Job controller or the scheduler will change that. Without a live leader it is
    empty as well, unless the leader has ended for good: the followers that are still held then join
    the other pods of the Job, or go to the leader's former domain.

    Held followers are not a violation. One whose template selects another domain cannot be
    released, because an entry of a node selector cannot be changed: it alone is recreated.

    Args:
        pods: all pods of the Job (of one UID), in any phase.
        nodes: lookup of node labels.
        over: no further pod will have completion index 0.
    """
    followers = [pod for pod in pods if pod.live and not is_leader(pod)]
    leaders = [pod for pod in pods if pod.live and is_leader(pod)]
    if not leaders:
        return _without_leader(pods, followers, nodes) if over else WAIT
    domain = _common_domain(leaders, nodes)
    if not isinstance(domain, str):
        return WAIT if domain is None else FollowersPlan(unknown=domain)
    topology = topology_of(leaders[0])
    loose = [pod for pod in followers if not pod.spec.held]
    plan = _release(domain, followers)
    if any(is_misplaced(pod, topology, domain) for pod in loose):
        return attrs.evolve(plan, evict=(*loose, *plan.evict))
    return plan


def _common_domain(leaders: Sequence[PlacedPod], nodes: NodeLabels) -> str | UnknownTopology | None:
    """Return the domain of all leaders; ``None`` if they have no node, or several domains."""
    if not all(leader.spec.node_name for leader in leaders):
        return None
    domains = [_domain(leader, nodes) for leader in leaders]
    unknown = next((each for each in domains if isinstance(each, UnknownTopology)), None)
    if unknown is not None:
        return unknown
    return domains[0] if len(set(domains)) == 1 else None


def is_misplaced(pod: PlacedPod, topology: str, domain: str) -> bool:
    """Return whether a follower violates exclusive placement.

    Its node selector counts, not its node: labels of nodes change, and a pod stays where it is.

    Args:
        pod: any pod.
        topology: topology key of its leader.
        domain: domain of its leader.
    """
    if is_leader(pod) or not pod.live or pod.spec.held:
        return False
    return topology_of(pod) != topology or selected_domain(pod) != domain


def is_due(follower: PlacedPod, leaders: Sequence[PlacedPod], nodes: NodeLabels) -> bool:
    """Return whether a follower must be released or evicted, if its leader has not ended; O(1).

    Args:
        follower: live follower.
        leaders: leaders of its Job.
        nodes: lookup of node labels.
    """
    live = [leader for leader in leaders if leader.live]
    if len(live) != 1 or not live[0].spec.node_name:
        return False
    if follower.spec.held:
        return True
    domain = _domain(live[0], nodes)
    return isinstance(domain, str) and is_misplaced(follower, topology_of(live[0]), domain)


def _release(domain: str, followers: Iterable[PlacedPod]) -> FollowersPlan:
    held = [pod for pod in followers if pod.spec.held]
    return FollowersPlan(
        domain,
        release=tuple(pod for pod in held if selected_domain(pod) in {None, domain}),
        evict=tuple(pod for pod in held if selected_domain(pod) not in {None, domain}),
    )


def _without_leader(
    pods: Iterable[PlacedPod], followers: Sequence[PlacedPod], nodes: NodeLabels
) -> FollowersPlan:
    """Release held followers after their leader has ended, to the other pods or its former domain.

    If no domain is known they are recreated: their replacements get the leader's terms.
    """
    held = [pod for pod in followers if pod.spec.held]
    if not held:
        return WAIT
    loose = [pod for pod in followers if not pod.spec.held]
    wanted = {selected_domain(pod) for pod in loose} - {None}
    if len(wanted) == 1:
        return _release(str(wanted.pop()), held)
    ended_leaders = [pod for pod in pods if is_leader(pod)]
    for pod in (*loose, *ended_leaders):
        found = _domain(pod, nodes)
        if isinstance(found, str):
            return _release(found, held)
    return FollowersPlan(evict=tuple(held))


def _domain(pod: PlacedPod, nodes: NodeLabels) -> str | UnknownTopology:
    node, topology = pod.spec.node_name, topology_of(pod)
    labels = nodes(node) if node else None
    if labels is None:
        return UnknownTopology(node)
    return labels.get(topology) or UnknownTopology(node, topology)


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
