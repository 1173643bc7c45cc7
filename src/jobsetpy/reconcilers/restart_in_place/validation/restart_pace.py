"""Validation of annotations about the back-off of restarts, and their window."""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.api import keys
from jobsetpy.api.durations import parse_duration
from jobsetpy.reconcilers.rules.annotations import changed_notes, note_field
from jobsetpy.reconcilers.rules.backoff import LONGEST_S, MAX_IN_WINDOW
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, number

_MAY_BE_ZERO = keys.RESTART_BACKOFF_ANNOTATION


def restart_pace(jobset: Json) -> Iterator[FieldError]:
    """Return errors in a JobSet's annotations of this kind."""
    notes = child(jobset, "metadata", "annotations")
    for name in keys.RESTART_PACE_ANNOTATIONS:
        why = _duration_problem(name, notes[name]) if name in notes else ""
        if why:
            yield invalid(note_field(name), notes[name], why)
    allowed = number(child(jobset, "spec", "failurePolicy"), "maxRestarts") or 0
    window = keys.MAX_RESTARTS_WINDOW_ANNOTATION
    if window in notes and allowed > MAX_IN_WINDOW:
        why = (
            f"must be at most {MAX_IN_WINDOW} with the annotation {window}, since the times of "
            "restarts within the window are kept in the status"
        )
        yield invalid("spec.failurePolicy.maxRestarts", allowed, why)


def restart_pace_update(old: Json, new: Json) -> list[FieldError]:
    """Return errors in changed annotations; unchanged ones are not checked again."""
    changed = changed_notes(old, new, keys.RESTART_PACE_ANNOTATIONS)
    return list(restart_pace(new)) if changed else []


def _duration_problem(name: str, value: object) -> str:
    zero = ", or 0 for none" if name == _MAY_BE_ZERO else ""
    try:
        seconds = parse_duration(value) if isinstance(value, str) else -1.0
    except ValueError:
        seconds = -1.0
    if seconds < 0 or (seconds == 0 and not zero):
        return f"must be a duration such as 90s, 5m or 24h{zero}"
    return "" if seconds <= LONGEST_S else f"must be at most {LONGEST_S / 3600:.0f}h (366 days)"
