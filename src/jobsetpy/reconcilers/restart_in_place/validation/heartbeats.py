"""Validation of the annotation for the ring of heartbeats."""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.annotations import note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, objects
from jobsetpy.reconcilers.rules.spares import spares_in

_NAME = keys.IN_PLACE_HEARTBEAT_ANNOTATION


def heartbeats(jobset: Json) -> Iterator[FieldError]:
    """Yield errors for the annotation where it would have no effect."""
    if _NAME not in child(jobset, "metadata", "annotations"):
        return
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        mode = job_spec(job).get("completionMode")
        if mode not in (None, "Indexed"):
            field = f"spec.replicatedJobs[{at}].template.spec.completionMode"
            why = "agents find each other by completion indexes: it must be Indexed, or left out"
            yield invalid(field, mode, why)


def warnings(jobset: Json) -> list[FieldWarning]:
    """Return a warning about heartbeats of which only events can follow."""
    spec, notes = child(jobset, "spec"), child(jobset, "metadata", "annotations")
    jobs = objects(spec, "replicatedJobs")
    if _NAME not in notes or any(any(spares_in(job, notes)) for _, job in jobs):
        return []
    why = (
        "without spares a silent pod is reported by an event and nothing else: set the annotation "
        f"{keys.IN_PLACE_SPARES_ANNOTATION} as well"
    )
    return [FieldWarning(note_field(_NAME), why)]
