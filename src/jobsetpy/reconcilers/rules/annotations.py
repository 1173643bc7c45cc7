"""Annotations of a JobSet and of its pod templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, pod_notes

MAX_SECONDS: Final = 86400

_SECONDS: Final = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")


def note_field(name: str, path: str = "") -> str:
    """Return the field path of an annotation: on the JobSet, or on the object at ``path``."""
    return f"{path}{'.' if path else ''}metadata.annotations[{name}]"


def holders(jobset: Json) -> Iterator[tuple[str, Json]]:
    """Yield path and annotations of a JobSet, whose path is "", and of its pod templates."""
    yield "", child(jobset, "metadata", "annotations")
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        yield f"spec.replicatedJobs[{at}].template.spec.template", pod_notes(job)


def changed_notes(old: Json, new: Json, names: Iterable[str]) -> list[str]:
    """Return those of the given annotations of a JobSet that were changed or removed."""
    before, after = (child(each, "metadata", "annotations") for each in (old, new))
    return [name for name in names if before.get(name) != after.get(name)]


def is_seconds(value: object) -> bool:
    """Return True for a text with a number of seconds, at most a day."""
    return (
        isinstance(value, str)
        and _SECONDS.fullmatch(value) is not None
        and float(value) <= MAX_SECONDS
    )
