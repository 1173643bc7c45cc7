"""Decisions about the existing followers of one Job, once its leader is scheduled.

``admission`` decides once, when a pod is created. This module decides about existing pods, each
time one of them changes: held followers are released into the leader's domain, and if a follower is
in any other domain, all followers that are not held are recreated (JobSet's rule for violations).

The functions are pure, and linear in the number of the Job's pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.execution.kinds import ListedPod
from jobsetpy.reconcilers.placement.admission import LEADER_INDEX, NodeLabels

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
