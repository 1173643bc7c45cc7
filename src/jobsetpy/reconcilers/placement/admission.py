"""Admission of pods with exclusive placement: each Job in one topology domain.

The first pod of a Job, its *leader*, gets affinity terms that allow at most one Job of its priority
per domain; the others, *followers*, are sent to the domain to which the leader was scheduled. A
follower that is created earlier is held by a scheduling gate, which ``plan`` removes. Only leaders
make the scheduler compare all pods.

The functions are pure: cluster state is passed in as functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.rules.json_tree import Json, Patch, child, number, objects, text
from jobsetpy.reconcilers.rules.names import job_name

LEADER_INDEX = "0"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MIN_NAME_PARTS = 5
"""JobSet, ReplicatedJob, Job index, pod index and random characters, joined by dashes."""


class LeaderNotFoundError(Exception):
    """No single pod is the leader of this follower."""


LeaderLookup = Callable[[str], Iterable[ChildPod]]
"""Return the pods of the follower's namespace by :func:`base_name`."""

NodeLabels = Callable[[str], Mapping[str, str] | None]
"""Return the labels of a node by its name; ``None`` if it does not exist."""

LeaderOver = Callable[[str, str], bool]
"""Return whether index 0 of a Job, by name and UID, has ended, so that no leader will come."""


@attrs.frozen
class Mutation:
    """Changes to a new pod, or its rejection.

    Args:
        patch: JSON patch; empty for no change.
        denied: if not "", the pod is rejected with this message.
    """

    patch: Patch = attrs.field(factory=list)
    denied: str = ""


def base_name(pod_name: str) -> str:
    """Return a pod's name without the random characters: ``js-rj-0-0`` of ``js-rj-0-0-x7k2p``.

    "" for names that do not belong to an Indexed Job of a JobSet.
    """
    parts = pod_name.split("-")
    return "-".join(parts[:-1]) if len(parts) >= MIN_NAME_PARTS else ""


def is_leader(pod: Json) -> bool:
    """Return whether the pod has completion index 0; all pods of NonIndexed Jobs are followers."""
    return _annotations(pod).get(keys.COMPLETION_INDEX_ANNOTATION) == LEADER_INDEX


def mutate(pod: Json, leaders: LeaderLookup, nodes: NodeLabels, over: LeaderOver) -> Mutation:
    """Return the placement of a new pod, as far as it is known.

    A follower whose leader is not found or not scheduled is held by a scheduling gate. One that
    could never be released (see :func:`_can_be_released`) stays unchanged: :func:`refusal` rejects
    it, and the Job controller retries later.

    If no leader will come, a follower gets the leader's terms: the scheduler places it with the
    other pods of its Job, or in a free domain if there are none.

    Args:
        pod: pod to be created.
        leaders: lookup of leaders.
        nodes: lookup of node labels.
        over: predicate for Jobs whose leader has ended.

    Guarantees: existing terms, selectors and gates are kept; the patch applies to ``pod``
    unchanged.
    """
    annotations = _annotations(pod)
    if not _is_placed(annotations):
        return Mutation()
    patch, priority = _priority_label(pod)
    topology = annotations.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    if not isinstance(topology, str):
        return Mutation(patch)
    if is_leader(pod):
        return Mutation(patch + _exclusive_terms(pod, topology, priority))
    try:
        node = find_leader(pod, leaders).spec.node_name
    except LeaderNotFoundError:
        if _can_be_released(pod) and over(*_controller(pod)):
            return Mutation(patch + _exclusive_terms(pod, topology, priority))
        node = ""
    labels = nodes(node) if node else None
    if labels is None:
        return Mutation(patch + _hold(pod))
    if topology not in labels:
        # Denied, not held: users rarely inspect a waiting pod, but see events of failed creations.
        return Mutation(denied=f"node {node} does not have the topology label {topology!r}")
    selector = {topology: labels[topology]}
    return Mutation([*patch, *_into_map(pod, ("spec", "nodeSelector"), selector)])


def refusal(pod: Json, leaders: LeaderLookup) -> str:
    """Return why a new pod must not be created now; "" if it may.

    Args:
        pod: pod after :func:`mutate`.
        leaders: lookup of leaders.
    """
    annotations = _annotations(pod)
    topology = annotations.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    if not _is_placed(annotations) or not isinstance(topology, str) or is_leader(pod):
        return ""
    if _can_be_released(pod) and (is_held(pod) or _places_itself(pod, topology)):
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
    if not leader.spec.node_name:
        return (
            "leader pod not yet scheduled, not creating follower pod; this is an expected, "
            "transient error"
        )
    return ""


def _is_placed(annotations: Json) -> bool:
    """Return whether a pod is of a JobSet, and not placed by its node selector strategy."""
    return keys.JOBSET_NAME in annotations and keys.NODE_SELECTOR_ANNOTATION not in annotations


def is_held(pod: Json) -> bool:
    """Return whether a pod has the scheduling gate of exclusive placement."""
    gates = objects(child(pod, "spec"), "schedulingGates")
    return any(gate.get("name") == keys.PLACEMENT_GATE for _, gate in gates)


def _can_be_released(pod: Json) -> bool:
    """Return whether a held follower would be found when its leader is scheduled.

    Pods without a controller are not found. Those of a NonIndexed Job never have a leader: they are
    rejected, so that the Job's events report it. The API server allows no gate on a pod with a
    node.
    """
    indexed = isinstance(_annotations(pod).get(keys.COMPLETION_INDEX_ANNOTATION), str)
    return indexed and bool(_controller_uid(pod)) and not child(pod, "spec").get("nodeName")


def _hold(pod: Json) -> Patch:
    """Return a patch that adds the scheduling gate, if it could be removed again."""
    if is_held(pod) or not _can_be_released(pod):
        return []
    gate = {"name": keys.PLACEMENT_GATE}
    if child(pod, "spec").get("schedulingGates"):
        return [{"op": "add", "path": "/spec/schedulingGates/-", "value": gate}]
    return [{"op": "add", "path": "/spec/schedulingGates", "value": [gate]}]


def find_leader(pod: Json, leaders: LeaderLookup) -> ChildPod:
    """Return the leader of a follower's own Job, of the same Job UID.

    Raises:
        LeaderNotFoundError: there is none, more than one, or it belongs to another Job.
    """
    base = leader_name(pod)
    found = [each for each in leaders(base) if each.live]
    if len(found) != 1:
        msg = f"expected 1 leader pod ({base}), but got {len(found)}"
        raise LeaderNotFoundError(msg)
    owner = _controller_uid(pod)
    if not owner:
        msg = "follower pod has no controller owner reference"
        raise LeaderNotFoundError(msg)
    if not found[0].metadata.controller_uid:
        msg = f"leader pod ({base}) has no controller owner reference"
        raise LeaderNotFoundError(msg)
    if owner != found[0].metadata.controller_uid:
        msg = f"follower pod and leader pod ({base}) have different owners"
        raise LeaderNotFoundError(msg)
    return found[0]


def leader_name(pod: Json) -> str:
    """Return the base name of a follower's leader.

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
    """Return a patch that copies the priority to a label, for affinity terms, and its value."""
    priority = number(child(pod, "spec"), "priority")
    if priority is None:
        return [], text(child(pod, "metadata", "labels"), keys.PRIORITY_LABEL)
    value = str(priority)
    return _into_map(pod, ("metadata", "labels"), {keys.PRIORITY_LABEL: value}), value


def _exclusive_terms(pod: Json, topology: str, priority: str) -> Patch:
    """Return affinity terms: with its own Job, and without any other Job of the same priority."""
    affinity: dict[str, Any] = dict(child(pod, "spec", "affinity"))
    for kind, term in _terms(pod, topology, priority).items():
        terms = [each for _, each in objects(child(affinity, kind), _REQUIRED)]
        affinity[kind] = {**child(affinity, kind), _REQUIRED: [*terms, term]}
    return [{"op": "add", "path": "/spec/affinity", "value": affinity}]


def _places_itself(pod: Json, topology: str) -> bool:
    """Return whether a pod has the terms of :func:`_exclusive_terms`."""
    priority = text(child(pod, "metadata", "labels"), keys.PRIORITY_LABEL)
    return all(
        any(each == term for _, each in objects(child(pod, "spec", "affinity", kind), _REQUIRED))
        for kind, term in _terms(pod, topology, priority).items()
    )


def _terms(pod: Json, topology: str, priority: str) -> dict[str, Json]:
    job = text(child(pod, "metadata", "labels"), keys.JOB_KEY)
    own = {"key": keys.JOB_KEY, "operator": "In", "values": [job]}
    others = [
        {"key": keys.JOB_KEY, "operator": "Exists"},
        {"key": keys.JOB_KEY, "operator": "NotIn", "values": [job]},
        {"key": keys.PRIORITY_LABEL, "operator": "In", "values": [priority]},
    ]
    return {
        kind: {
            "labelSelector": {"matchExpressions": expressions},
            "topologyKey": topology,
            "namespaceSelector": {},
        }
        for kind, expressions in (("podAffinity", [own]), ("podAntiAffinity", others))
    }


def _into_map(pod: Json, path: tuple[str, ...], entry: Mapping[str, str]) -> Patch:
    """Return a patch that sets entries of a map, which is created if missing."""
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


def _controller(pod: Json) -> tuple[str, str]:
    """Return name and UID of the owner that manages a pod."""
    for _, owner in objects(child(pod, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            return text(owner, "name"), text(owner, "uid")
    return "", ""


def _controller_uid(pod: Json) -> str:
    return _controller(pod)[1]
