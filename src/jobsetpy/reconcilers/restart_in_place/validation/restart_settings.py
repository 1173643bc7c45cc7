"""Validation of annotations about restarts that the restart strategy or its budget has to fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place, supervised
from jobsetpy.reconcilers.rules.annotations import changed_notes, note_field
from jobsetpy.reconcilers.rules.backoff import MAX_IN_WINDOW
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, number, objects, pod_spec

_WINDOW = keys.MAX_RESTARTS_WINDOW_ANNOTATION
_JUDGED = (
    keys.MAX_WITHOUT_PROGRESS_ANNOTATION,
    keys.RESTART_IN_PLACE_ANNOTATION,
    keys.AFTER_SUCCESS_ANNOTATION,
    _WINDOW,
)


def restart_settings(jobset: Json, names: Iterable[str] = _JUDGED) -> Iterator[FieldError]:
    """Return errors in these annotations of a new JobSet, after injection of its agents."""
    notes = child(jobset, "metadata", "annotations")
    for name in names:
        if name in notes and name != _WINDOW and (why := _why_unserved(jobset, name)):
            yield invalid(note_field(name), notes[name], why)
    allowed = number(child(jobset, "spec", "failurePolicy"), "maxRestarts") or 0
    if _WINDOW in names and _WINDOW in notes and allowed > MAX_IN_WINDOW:
        why = (
            f"must be at most {MAX_IN_WINDOW} with the annotation {_WINDOW}, since the times of "
            "restarts within the window are kept in the status"
        )
        yield invalid("spec.failurePolicy.maxRestarts", allowed, why)


def restart_settings_update(old: Json, new: Json) -> Iterator[FieldError]:
    """Return errors in changed annotations; unchanged ones are not checked again."""
    return restart_settings(new, changed_notes(old, new, _JUDGED))


def _why_unserved(jobset: Json, name: str) -> str:
    """Return why an annotation would have no effect, or ""."""
    spec = child(jobset, "spec")
    if not restarts_in_place(spec):
        return f"has no effect unless restartStrategy is {keys.IN_PLACE_RESTART}"
    jobs = [job for _, job in objects(spec, "replicatedJobs")]
    reports = any(supervised(pod_spec(job)) for job in jobs)
    if name == keys.MAX_WITHOUT_PROGRESS_ANNOTATION and not reports:
        return "has no effect: only supervisors report steps, and no container runs one"
    return ""
