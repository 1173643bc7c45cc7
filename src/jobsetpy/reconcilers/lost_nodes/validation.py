"""Rules for the annotation that sets a JobSet's deadline for pods on unreachable nodes."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of, read_deadline, tolerates_for_ever
from jobsetpy.reconcilers.rules.annotations import changed_notes, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects


def lost_node_deadline(jobset: Json) -> list[FieldError]:
    """Validate the deadline of a JobSet."""
    value = child(jobset, "metadata", "annotations").get(keys.LOST_NODE_DEADLINE_ANNOTATION)
    if value is None:
        return []
    try:
        read_deadline(value)
    except ValueError as problem:
        return [invalid(note_field(keys.LOST_NODE_DEADLINE_ANNOTATION), value, str(problem))]
    return []


def lost_node_deadline_update(old: Json, new: Json) -> list[FieldError]:
    """Validate a changed deadline; an unchanged one is not validated again."""
    changed = changed_notes(old, new, [keys.LOST_NODE_DEADLINE_ANNOTATION])
    return lost_node_deadline(new) if changed else []


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
