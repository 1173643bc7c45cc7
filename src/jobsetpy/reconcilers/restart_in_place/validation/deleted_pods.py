"""Validation of the annotation about deleted pods of JobSets that do not restart in place."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import AFTER_BACKOFF, IMMEDIATELY
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place
from jobsetpy.reconcilers.rules.annotations import changed_notes, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child


def deleted_pods(jobset: Json) -> list[FieldError]:
    """Return errors in the annotation of a JobSet."""
    name = keys.REPLACE_DELETED_ANNOTATION
    value = child(jobset, "metadata", "annotations").get(name)
    if value is None:
        return []
    if value not in (IMMEDIATELY, AFTER_BACKOFF):
        why = f"must be {IMMEDIATELY}, or {AFTER_BACKOFF}, which is the default"
        return [invalid(note_field(name), value, why)]
    if restarts_in_place(child(jobset, "spec")):
        why = (
            f"has no effect with restartStrategy {keys.IN_PLACE_RESTART}, under which deleted pods "
            "are always replaced immediately: remove it"
        )
        return [invalid(note_field(name), value, why)]
    return []


def deleted_pods_update(old: Json, new: Json) -> list[FieldError]:
    """Return errors in a changed annotation; an unchanged one is not checked again."""
    return deleted_pods(new) if changed_notes(old, new, [keys.REPLACE_DELETED_ANNOTATION]) else []
