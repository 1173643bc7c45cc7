"""Where the pods of a JobSet may go: exclusive placement of each Job in one topology domain.

The first pod of a Job, its *leader*, gets affinity terms by which at most one Job of its priority
is in a domain; the others, *followers*, are sent to the domain where the leader landed, and are
refused until it has. Only leaders cost the scheduler the search among all pods.

Pure: what followers need to know of the cluster comes in as two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.domain.defaulting import Patch
from jobsetpy.domain.json_tree import Json, child, number, objects, text
from jobsetpy.domain.names import job_name

LEADER_INDEX = "0"
_ENDED = frozenset({"Failed", "Succeeded"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MIN_NAME_PARTS = 5
"""JobSet, ReplicatedJob, Job index, pod index and random characters, joined by dashes."""


@attrs.frozen
class PodPlace:
    """What is known of a pod that may be a leader.

    Args:
        node: where it runs or will; "" while it is not scheduled.
        phase: its phase.
        deleting: whether it has a deletion timestamp.
        controller_uid: UID of the Job that manages it; "" if none does.
    """

    node: str = ""
    phase: str = ""
    deleting: bool = False
    controller_uid: str = ""


class LeaderNotFoundError(Exception):
    """There is no one pod that is this follower's leader."""


LeaderLookup = Callable[[str], Iterable[PodPlace]]
"""Pods of the follower's namespace by :func:`base_name`."""

NodeLabels = Callable[[str], Mapping[str, str] | None]
"""A node's labels by its name; ``None`` if there is no such node."""


@attrs.frozen
class Mutation:
    """What becomes of a new pod.

    Args:
        patch: JSON patch; empty for no change.
        denied: if not "", the pod is refused with this text.
        missing_node: if not "", the pod is refused because the leader's node is not there.
    """

    patch: Patch = attrs.field(factory=list)
    denied: str = ""
    missing_node: str = ""


def base_name(pod_name: str) -> str:
    """A pod's name without the random characters: ``js-rj-0-0`` of ``js-rj-0-0-x7k2p``.

    "" for names that no Indexed Job of a JobSet gives.
    """
    parts = pod_name.split("-")
    return "-".join(parts[:-1]) if len(parts) >= MIN_NAME_PARTS else ""


def is_leader(pod: Json) -> bool:
    """Whether it has completion index 0; pods of NonIndexed Jobs have none and all follow."""
    return _annotations(pod).get(keys.COMPLETION_INDEX_ANNOTATION) == LEADER_INDEX


def mutate(pod: Json, leaders: LeaderLookup, nodes: NodeLabels) -> Mutation:
    """The place of a new pod, as far as it can be told by now.

    A follower whose leader is not found or not scheduled stays as it is: :func:`refusal` will
    refuse it, and the Job controller tries again later.

    Guarantees: existing terms and selectors are kept; the patch applies to ``pod`` as it is.
    """
    annotations = _annotations(pod)
    if keys.JOBSET_NAME not in annotations or keys.NODE_SELECTOR_ANNOTATION in annotations:
        return Mutation()
    patch, priority = _priority_label(pod)
    topology = annotations.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    if not isinstance(topology, str):
        return Mutation(patch)
    if is_leader(pod):
        return Mutation(patch + _exclusive_terms(pod, topology, priority))
    try:
        leader = find_leader(pod, leaders)
    except LeaderNotFoundError:
        return Mutation(patch)
    if not leader.node:
        return Mutation(patch)
    labels = nodes(leader.node)
    if labels is None:
        return Mutation(missing_node=leader.node)
    if topology not in labels:
        return Mutation(denied=f"node {leader.node} does not have the topology label {topology!r}")
    selector = {topology: labels[topology]}
    return Mutation([*patch, *_into_map(pod, ("spec", "nodeSelector"), selector)])


def refusal(pod: Json, leaders: LeaderLookup) -> str:
    """Why a new pod must not be created now; "" if it may."""
    annotations = _annotations(pod)
    topology = annotations.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    if (
        keys.JOBSET_NAME not in annotations
        or keys.NODE_SELECTOR_ANNOTATION in annotations
        or not isinstance(topology, str)
        or is_leader(pod)
    ):
        return ""
    selector = child(pod, "spec").get("nodeSelector")
    if not isinstance(selector, Mapping):
        return "follower pod node selector not set"
    if topology not in selector:
        return f"follower pod node selector is missing the topology key {topology!r}"
    try:
        leader = find_leader(pod, leaders)
    except LeaderNotFoundError as error:
        return str(error)
    if not leader.node:
        return (
            "leader pod not yet scheduled, not creating follower pod; this is an expected, "
            "transient error"
        )
    return ""


def find_leader(pod: Json, leaders: LeaderLookup) -> PodPlace:
    """The leader of a follower's own Job, in its present incarnation.

    Raises:
        LeaderNotFoundError: there is none, or no single one, or it belongs to another Job.
    """
    base = leader_name(pod)
    found = [place for place in leaders(base) if not place.deleting and place.phase not in _ENDED]
    if len(found) != 1:
        msg = f"expected 1 leader pod ({base}), but got {len(found)}"
        raise LeaderNotFoundError(msg)
    owner = _controller_uid(pod)
    if not owner:
        msg = "follower pod has no controller owner reference"
        raise LeaderNotFoundError(msg)
    if not found[0].controller_uid:
        msg = f"leader pod ({base}) has no controller owner reference"
        raise LeaderNotFoundError(msg)
    if owner != found[0].controller_uid:
        msg = f"follower pod and leader pod ({base}) have different owners"
        raise LeaderNotFoundError(msg)
    return found[0]


def leader_name(pod: Json) -> str:
    """Base name of a follower's leader.

    Raises:
        LeaderNotFoundError: a label that it is made from is missing.
    """
    labels = child(pod, "metadata", "labels")
    for key in (keys.JOBSET_NAME, keys.REPLICATED_JOB_NAME, keys.JOB_INDEX):
        if not isinstance(labels.get(key), str):
            msg = f"pod missing label: {key}"
            raise LeaderNotFoundError(msg)
    job = job_name(
        labels[keys.JOBSET_NAME], labels[keys.REPLICATED_JOB_NAME], labels[keys.JOB_INDEX]
    )
    return f"{job}-{LEADER_INDEX}"


def _priority_label(pod: Json) -> tuple[Patch, str]:
    """Show the priority to the affinity terms of other pods; the patch, and the label's value."""
    priority = number(child(pod, "spec"), "priority")
    if priority is None:
        return [], text(child(pod, "metadata", "labels"), keys.PRIORITY_LABEL)
    value = str(priority)
    return _into_map(pod, ("metadata", "labels"), {keys.PRIORITY_LABEL: value}), value


def _exclusive_terms(pod: Json, topology: str, priority: str) -> Patch:
    """With the own Job, and without any other Job of the same priority, in the same domain."""
    job = text(child(pod, "metadata", "labels"), keys.JOB_KEY)
    own = {"key": keys.JOB_KEY, "operator": "In", "values": [job]}
    others = [
        {"key": keys.JOB_KEY, "operator": "Exists"},
        {"key": keys.JOB_KEY, "operator": "NotIn", "values": [job]},
        {"key": keys.PRIORITY_LABEL, "operator": "In", "values": [priority]},
    ]
    affinity: dict[str, Any] = dict(child(pod, "spec", "affinity"))
    for kind, expressions in (("podAffinity", [own]), ("podAntiAffinity", others)):
        terms = [term for _, term in objects(child(affinity, kind), _REQUIRED)]
        term = {
            "labelSelector": {"matchExpressions": expressions},
            "topologyKey": topology,
            "namespaceSelector": {},
        }
        affinity[kind] = {**child(affinity, kind), _REQUIRED: [*terms, term]}
    return [{"op": "add", "path": "/spec/affinity", "value": affinity}]


def _into_map(pod: Json, path: tuple[str, ...], entry: Mapping[str, str]) -> Patch:
    """Set entries of a map, which is made if it is missing."""
    where = "/" + "/".join(path)
    parent = child(pod, *path[:-1]).get(path[-1])
    if not isinstance(parent, Mapping):
        return [{"op": "add", "path": where, "value": dict(entry)}]
    return [
        {
            "op": "add",
            "path": f"{where}/{key.replace('~', '~0').replace('/', '~1')}",
            "value": value,
        }
        for key, value in entry.items()
    ]


def _annotations(pod: Json) -> Json:
    return child(pod, "metadata", "annotations")


def _controller_uid(pod: Json) -> str:
    for _, owner in objects(child(pod, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            return text(owner, "uid")
    return ""
