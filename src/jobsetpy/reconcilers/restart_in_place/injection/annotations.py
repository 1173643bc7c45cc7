"""Annotations of one ReplicatedJob, and the errors in them.

An annotation on a pod template overrides the same one on the JobSet, so that ReplicatedJobs may
differ.
"""

from __future__ import annotations

from typing import Any

import attrs

from jobsetpy.reconcilers.rules.annotations import note_field
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json


@attrs.frozen
class Annotations:
    """Annotations of one ReplicatedJob: on its pod template, or else on the JobSet.

    Args:
        shared: annotations of the JobSet.
        own: annotations of the pod template.
        path: field path of the pod template.
        problems: errors so far; functions that read annotations add to them.
    """

    shared: Json
    own: Json
    path: str
    problems: list[FieldError] = attrs.field(factory=list)

    def value(self, name: str) -> Any:
        """Return the value of an annotation; ``None`` if there is none."""
        return self.own[name] if self.is_own(name) else self.shared.get(name)

    def is_own(self, name: str) -> bool:
        """Return True if an annotation is on the pod template."""
        return self.own.get(name) is not None

    def text(self, name: str) -> str:
        """Return the value of an annotation as a text; "" if there is none."""
        return str(self.value(name) or "")

    def refuse(self, name: str, why: str) -> None:
        """Add the error that the value of an annotation is not allowed, if there is one."""
        field, value = note_field(name, self.path if self.is_own(name) else ""), self.value(name)
        if value is not None:
            self.problems.append(invalid(field, value, why))
