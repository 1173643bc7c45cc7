"""An annotation as it is read for one ReplicatedJob: of its pods, or else of the JobSet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from jobsetpy.reconcilers.rules.json_tree import Json, child

MAX_SECONDS: Final = 86400

_SECONDS: Final = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")


@attrs.frozen
class Note:
    """One annotation: its value (``None`` if there is none), and where it stands."""

    value: Any
    field: str
    own: bool


NoteReader = Callable[[str], Note]


def note_field(name: str, path: str = "") -> str:
    """The field path of an annotation: of the JobSet, or of what is at ``path``."""
    return f"{path}{'.' if path else ''}metadata.annotations[{name}]"


def changed_notes(old: Json, new: Json, names: Iterable[str]) -> list[str]:
    """Which of these annotations of a JobSet another value is set for, or none any more."""
    before, after = (child(each, "metadata", "annotations") for each in (old, new))
    return [name for name in names if before.get(name) != after.get(name)]


def is_seconds(value: object) -> bool:
    """Whether it is a text with a number of seconds, at most a day."""
    return (
        isinstance(value, str)
        and _SECONDS.fullmatch(value) is not None
        and float(value) <= MAX_SECONDS
    )
