"""Validation of the annotation for the ring of heartbeats."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.annotations import note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, FieldWarning, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, objects, pod_notes
from jobsetpy.reconcilers.rules.spares import spares_in

_NAME = keys.IN_PLACE_HEARTBEAT_ANNOTATION


def heartbeats(jobset: Json) -> list[FieldError]:
    """Return errors for the annotation where it would have no effect."""
    spec, notes = child(jobset, "spec"), child(jobset, "metadata", "annotations")
    mode, problems = notes.get(keys.IN_PLACE_AGENT_ANNOTATION), []
    if _NAME in notes and mode != "supervisor":
        why = f"needs the annotation {keys.IN_PLACE_AGENT_ANNOTATION}: supervisor"
        problems.append(invalid(note_field(_NAME), notes[_NAME], why))
    for at, job in objects(spec, "replicatedJobs"):
        path = f"spec.replicatedJobs[{at}].template.spec"
        own = pod_notes(job)
        if _NAME in own:
            why = "the pods of all ReplicatedJobs have one ring: set it on the JobSet"
            problems.append(invalid(note_field(_NAME, f"{path}.template"), own[_NAME], why))
        completions = job_spec(job).get("completionMode")
        if _NAME in notes and completions not in (None, "Indexed"):
            why = "agents find each other by completion indexes: it must be Indexed, or left out"
            problems.append(invalid(f"{path}.completionMode", completions, why))
    return problems


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
