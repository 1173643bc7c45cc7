"""Rules for the annotation by which a JobSet gives up its pods on unreachable nodes."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.domain.field_errors import FieldError, invalid
from jobsetpy.domain.injection.notes import changed_notes, note_field
from jobsetpy.domain.json_tree import Json, child
from jobsetpy.domain.lost_nodes.deadline import read_deadline


def lost_node_deadline(jobset: Json) -> list[FieldError]:
    """What is wrong with the deadline of a JobSet."""
    value = child(jobset, "metadata", "annotations").get(keys.LOST_NODE_DEADLINE_ANNOTATION)
    if value is None:
        return []
    try:
        read_deadline(value)
    except ValueError as problem:
        return [invalid(note_field(keys.LOST_NODE_DEADLINE_ANNOTATION), value, str(problem))]
    return []


def lost_node_deadline_update(old: Json, new: Json) -> list[FieldError]:
    """What is wrong with a changed deadline; what is stored already is not judged again."""
    changed = changed_notes(old, new, [keys.LOST_NODE_DEADLINE_ANNOTATION])
    return lost_node_deadline(new) if changed else []
