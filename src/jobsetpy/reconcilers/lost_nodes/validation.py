"""Warnings about the annotation that sets a JobSet's deadline for pods on unreachable nodes."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of, tolerates_for_ever
from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects


def lost_node_warnings(jobset: Json) -> list[FieldWarning]:
    """Return warnings about pods that stay on a lost node although their JobSet sets a deadline."""
    if not deadline_of(child(jobset, "metadata", "annotations")):
        return []
    found = []
    for at, item in objects(child(jobset, "spec"), "replicatedJobs"):
        if tolerates_for_ever(child(item, "template", "spec", "template", "spec")):
            found.append(
                FieldWarning(
                    f"spec.replicatedJobs[{at}].template.spec.template.spec.tolerations",
                    f"pods tolerate {keys.NODE_UNREACHABLE_TAINT} without tolerationSeconds, so "
                    "Kubernetes does not delete them on an unreachable node and the annotation "
                    f"{keys.LOST_NODE_DEADLINE_ANNOTATION} has no effect: set tolerationSeconds "
                    "or remove the toleration",
                )
            )
    return found
