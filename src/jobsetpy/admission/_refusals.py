"""Answers that reject JobSets and pods."""

from __future__ import annotations

from collections.abc import Sequence

from jobsetpy.api.jobset import JobSet
from jobsetpy.api.structural_schema import cause
from jobsetpy.reconcilers.rules.field_errors import FieldError
from jobsetpy.serving.review import Answer, failure, invalid


def invalid_jobset(name: str, problems: Sequence[FieldError]) -> Answer:
    """Return a 422 with one cause per problem."""
    causes = [cause(each.cause, each.message, each.field) for each in problems]
    return invalid(JobSet.RESOURCE, name, causes)


def node_not_found(name: str) -> Answer:
    """Return the 404 that the API server gives for a missing node."""
    details = {"kind": "nodes", "name": name}
    return failure(404, "NotFound", f'nodes "{name}" not found', details=details)
