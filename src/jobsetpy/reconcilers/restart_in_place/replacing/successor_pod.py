"""Pod of a Job as the Job controller of Kubernetes 1.36 creates it.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/ (completion mode, finalizers,
``backoffLimitPerIndex``) and the pods that it creates. Admission completes the pod as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.replacing.successors import Successor
from jobsetpy.reconcilers.rules.json_tree import Json, child, copied, items, objects, text

INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
PREFERENCE: Final = 100
"""Weight of the preference for other nodes, the highest there is."""
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NOWHERE: Final = {
    "topologyKey": "kubernetes.io/hostname",
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/no-pod": ""}},
}
"""Constraint that rates all nodes alike. A pod without any gets the scheduler's default ones."""


def successor_body(
    name: str,
    uid: str,
    template: Json,
    one: Successor,
    *,
    index_failures: int | None = None,
    avoid: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a pod to create.

    Args:
        name: name of the Job.
        uid: UID of the Job.
        template: the Job's pod template.
        one: index and name of the pod.
        index_failures: failures of the index so far, for a Job with ``backoffLimitPerIndex``.
        avoid: names of nodes that the pod runs on only if there is no other.
    """
    spec = copied(child(template, "spec"))
    spec["hostname"] = f"{name}-{one.index}"
    for kind in ("initContainers", "containers"):
        for _, container in objects(spec, kind):
            _add_index(container)
    if avoid:
        _avoid(spec, avoid)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = _metadata(child(template, "metadata"), one, index_failures)
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec}


def _metadata(template: Json, one: Successor, index_failures: int | None) -> dict[str, Any]:
    index, tracking = str(one.index), keys.JOB_TRACKING_FINALIZER
    annotations = {**child(template, "annotations"), keys.COMPLETION_INDEX_ANNOTATION: index}
    if one.early:
        annotations[keys.REPLACED_EARLY_ANNOTATION] = str(one.early)
    if index_failures is not None:
        annotations[keys.INDEX_FAILURES_ANNOTATION] = str(index_failures)
    return {
        "name": one.name,
        "labels": {**child(template, "labels"), keys.COMPLETION_INDEX_LABEL: index},
        "annotations": annotations,
        "finalizers": [
            *(each for each in items(template, "finalizers") if each != tracking),
            tracking,
        ],
    }


def failures_after(annotations: Mapping[str, str]) -> int:
    """Return the failures of an index, after that of a pod with these annotations."""
    before = annotations.get(keys.INDEX_FAILURES_ANNOTATION, "")
    return (int(before) if before.isascii() and before.isdigit() else 0) + 1


def _add_index(container: Json) -> None:
    assert isinstance(container, dict), "the pod is a copy that may be changed"
    variables = items(container, "env")
    if any(isinstance(each, dict) and text(each, "name") == INDEX_VARIABLE for each in variables):
        return
    field = {"fieldPath": f"metadata.labels['{keys.COMPLETION_INDEX_LABEL}']"}
    container["env"] = [*variables, {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": field}}]


def _avoid(spec: dict[str, Any], nodes: Sequence[str]) -> None:
    """Add nodes to a pod's node affinity; each term accepts one name for each requirement.

    The node that a pod has left is the one that spreading prefers, by a score that is as high as
    that of the affinity. So a pod that prefers other nodes has no other preferences about pods.
    """
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(nodes)
    ]
    affinities = spec.setdefault("affinity", {})
    affinity = affinities.setdefault("nodeAffinity", {})
    preferred = affinity.setdefault(_PREFERRED, [])
    preferred.append({"weight": PREFERENCE, "preference": {"matchFields": fields}})
    for kind in ("podAffinity", "podAntiAffinity"):
        affinities.get(kind, {}).pop(_PREFERRED, None)
    hard = [
        each
        for each in spec.get("topologySpreadConstraints", ())
        if each.get("whenUnsatisfiable") != _NOWHERE["whenUnsatisfiable"]
    ]
    spec["topologySpreadConstraints"] = hard or [_NOWHERE]
