"""What becomes of the followers of one Job, now that its leader is where it is.

``admission`` decides for a pod that is being created, once. This decides for the pods that are
there, each time something about them changes: held followers are released into the leader's
domain, and if one is anywhere else, all that are loose start anew (JobSet's rule for violations).

Pure, and linear in the number of the Job's pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from jobsetpy.reconcilers.placement.admission import NodeLabels


@attrs.frozen(kw_only=True)
class PlacedPod:
    """What is known of a pod under exclusive placement.

    Args:
        name, uid: which pod.
        version: its resourceVersion when it was looked at.
        is_leader: whether it has completion index 0.
        live: whether it is neither ended nor being deleted.
        topology: node label that names domains.
        node: where it runs or will; "" while it is not scheduled.
        domain: the node selector's value for the topology, or ``None``.
        held: whether the gate of exclusive placement is on it.
        gates: names of all its gates.
        disrupted: whether it has the condition ``DisruptionTarget`` already.
    """

    name: str
    uid: str
    version: str = ""
    is_leader: bool = False
    live: bool = True
    topology: str
    node: str = ""
    domain: str | None = None
    held: bool = False
    gates: tuple[str, ...] = ()
    disrupted: bool = False


@attrs.frozen
class UnknownTopology:
    """A leader is on a node that does not tell its domain.

    Args:
        node: the node.
        topology: the label that it lacks; "" if the node itself is not known.
    """

    node: str
    topology: str = ""


@attrs.frozen
class FollowersPlan:
    """What to do with the followers of one Job.

    Args:
        domain: where they belong; ``None`` if that cannot be told.
        release: held ones to be sent there.
        evict: those to be deleted, so that their replacements are placed well.
        unknown: why the domain cannot be told, if something outside the Job has to change.
    """

    domain: str | None = None
    release: tuple[PlacedPod, ...] = ()
    evict: tuple[PlacedPod, ...] = ()
    unknown: UnknownTopology | None = None


WAIT = FollowersPlan()
"""Nothing to do until something changes."""


def plan_followers(pods: Sequence[PlacedPod], nodes: NodeLabels, *, over: bool) -> FollowersPlan:
    """What to do with the followers of one Job.

    The live leader's node decides. More than one live leader, or one without a node, decides
    nothing: the Job controller or the scheduler will change that. Without a live leader nothing
    happens either, unless the leader's part is over for good: the followers that are still held
    then join the rest of the Job, or go where the leader was.

    Held followers are no violation. One whose template chose another domain cannot be released,
    because a selector's entry cannot be changed: it starts anew alone.

    Args:
        pods: all pods of the Job (of one UID), of any phase.
        nodes: finds nodes.
        over: whether no pod will have completion index 0 any more.
    """
    followers = [pod for pod in pods if pod.live and not pod.is_leader]
    leaders = [pod for pod in pods if pod.live and pod.is_leader]
    if not leaders:
        return _without_leader(pods, followers, nodes) if over else WAIT
    domains: set[str] = set()
    for leader in leaders:
        if not leader.node:
            return WAIT
        found = _domain(leader, nodes)
        if isinstance(found, UnknownTopology):
            return FollowersPlan(unknown=found)
        domains.add(found)
    if len(domains) > 1:
        return WAIT
    (domain,) = domains
    topology = leaders[0].topology
    loose = [pod for pod in followers if not pod.held]
    plan = _release(domain, followers)
    if any(is_misplaced(pod, topology, domain) for pod in loose):
        return attrs.evolve(plan, evict=(*loose, *plan.evict))
    return plan


def is_misplaced(pod: PlacedPod, topology: str, domain: str) -> bool:
    """Whether a follower violates exclusive placement.

    Its node selector counts, not its node: labels of nodes change, and a pod stays where it is.

    Args:
        pod: any pod.
        topology: its leader's.
        domain: where its leader is.
    """
    if pod.is_leader or not pod.live or pod.held:
        return False
    return pod.topology != topology or pod.domain != domain


def is_due(follower: PlacedPod, leaders: Sequence[PlacedPod], nodes: NodeLabels) -> bool:
    """Whether a live follower has to be released or evicted, if its leader is not over; O(1).

    Args:
        follower: any.
        leaders: those of its Job.
        nodes: finds nodes.
    """
    live = [leader for leader in leaders if leader.live]
    if len(live) != 1 or not live[0].node:
        return False
    if follower.held:
        return True
    domain = _domain(live[0], nodes)
    return isinstance(domain, str) and is_misplaced(follower, live[0].topology, domain)


def _release(domain: str, followers: Iterable[PlacedPod]) -> FollowersPlan:
    held = [pod for pod in followers if pod.held]
    return FollowersPlan(
        domain,
        release=tuple(pod for pod in held if pod.domain in {None, domain}),
        evict=tuple(pod for pod in held if pod.domain not in {None, domain}),
    )


def _without_leader(
    pods: Iterable[PlacedPod], followers: Sequence[PlacedPod], nodes: NodeLabels
) -> FollowersPlan:
    """Held followers of a Job whose leader is over: to the others, or to where the leader was.

    Without any trace of a domain they start anew: their replacements get the leader's terms.
    """
    held = [pod for pod in followers if pod.held]
    if not held:
        return WAIT
    loose = [pod for pod in followers if not pod.held]
    wanted = {pod.domain for pod in loose} - {None}
    if len(wanted) == 1:
        return _release(str(wanted.pop()), held)
    ended_leaders = [pod for pod in pods if pod.is_leader]
    for pod in (*loose, *ended_leaders):
        found = _domain(pod, nodes)
        if isinstance(found, str):
            return _release(found, held)
    return FollowersPlan(evict=tuple(held))


def _domain(pod: PlacedPod, nodes: NodeLabels) -> str | UnknownTopology:
    labels = nodes(pod.node) if pod.node else None
    if labels is None:
        return UnknownTopology(pod.node)
    return labels.get(pod.topology) or UnknownTopology(pod.node, pod.topology)
