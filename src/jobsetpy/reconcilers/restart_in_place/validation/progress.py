"""Validation of annotations about hangs, restarts without progress, and restarts on request."""

from __future__ import annotations

from collections.abc import Iterable

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.options import HANG_SETTINGS
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import HEALTH_SETTINGS
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place, supervised
from jobsetpy.reconcilers.rules.annotations import changed_notes, holders, note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, pod_spec

MAX_WITHOUT_PROGRESS = 100_000

AFTER_SUCCESS = ("Continue", "Recreate")

_JUDGED = (
    keys.MAX_WITHOUT_PROGRESS_ANNOTATION,
    keys.RESTART_IN_PLACE_ANNOTATION,
    keys.AFTER_SUCCESS_ANNOTATION,
)


def progress(jobset: Json) -> list[FieldError]:
    """Return errors in the annotations of a new JobSet, after injection of its agents."""
    return [*_unserved(jobset), *_wrong(jobset, _JUDGED)]


def progress_update(old: Json, new: Json) -> list[FieldError]:
    """Return errors in changed annotations; unchanged ones are not checked again."""
    return _wrong(new, changed_notes(old, new, _JUDGED))


def _wrong(jobset: Json, names: Iterable[str]) -> list[FieldError]:
    notes = child(jobset, "metadata", "annotations")
    problems = []
    for name in names:
        value = notes.get(name)
        if value is None:
            continue
        progress = name == keys.MAX_WITHOUT_PROGRESS_ANNOTATION
        why = _why_unserved(jobset, needs_supervisor=progress)
        if not why and name == keys.MAX_WITHOUT_PROGRESS_ANNOTATION and not _is_count(value):
            why = f"must be a whole number from 1 to {MAX_WITHOUT_PROGRESS}"
        if not why and name == keys.AFTER_SUCCESS_ANNOTATION and value not in AFTER_SUCCESS:
            why = f"must be one of {', '.join(AFTER_SUCCESS)}"
        if why:
            problems.append(invalid(note_field(name), value, why))
    return problems


def _is_count(value: object) -> bool:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 6:
        return False
    return 1 <= int(value) <= MAX_WITHOUT_PROGRESS and not value.startswith("0")


def _why_unserved(jobset: Json, *, needs_supervisor: bool) -> str:
    """Return why the annotations would have no effect, or ""."""
    spec = child(jobset, "spec")
    if not restarts_in_place(spec):
        return f"has no effect unless restartStrategy is {keys.IN_PLACE_RESTART}"
    jobs = [job for _, job in objects(spec, "replicatedJobs")]
    if needs_supervisor and not any(supervised(pod_spec(job)) for job in jobs):
        return "has no effect: only supervisors report steps, and no container runs one"
    return ""


def _unserved(jobset: Json) -> list[FieldError]:
    """Return errors for annotations without effect: they configure only injected agents."""
    if keys.IN_PLACE_AGENT_ANNOTATION in child(jobset, "metadata", "annotations"):
        return []
    why = (
        f"has no effect without the annotation {keys.IN_PLACE_AGENT_ANNOTATION}: supervisor; an "
        "agent in the pod template is configured by its variables"
    )
    return [
        invalid(note_field(name, path), given[name], why)
        for path, given in holders(jobset)
        for name in (*HANG_SETTINGS, *HEALTH_SETTINGS)
        if name in given
    ]
