"""An annotation as it is read for one ReplicatedJob: of its pods, or else of the JobSet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


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
