"""What JobSets and pods are refused with."""

from __future__ import annotations

from collections.abc import Sequence

from jobsetpy.api import keys
from jobsetpy.domain.field_errors import FieldError
from jobsetpy.serving.review import Answer, failure


def invalid_jobset(name: str, problems: Sequence[FieldError]) -> Answer:
    """422 with one cause for each problem."""
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Answer(
        status={
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": f'JobSet.{keys.GROUP} "{name}" is invalid: {listed}',
            "details": {
                "group": keys.GROUP,
                "kind": "JobSet",
                "name": name,
                "causes": [
                    {"reason": problem.cause, "message": problem.message, "field": problem.field}
                    for problem in problems
                ],
            },
        }
    )


def node_not_found(name: str) -> Answer:
    """404 as the API server would answer for the node."""
    details = {"kind": "nodes", "name": name}
    return failure(404, "NotFound", f'nodes "{name}" not found', details=details)
