"""The AdmissionReview envelope (admission.k8s.io/v1)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from jobsetpy.api import keys
from jobsetpy.domain.field_errors import FieldError

API_VERSION = "admission.k8s.io/v1"


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An admission request.

    ``object`` is ``None`` for deletions, ``old_object`` for creations; both may be anything that
    is JSON.
    """

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    object: Any = None
    old_object: Any = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: ReviewRequest


@attrs.frozen
class Answer:
    """An admission response.

    Args:
        patch: JSON patch for the object; only with an allowed request.
        status: ``metav1.Status`` that refuses the request; ``None`` allows it.
        warnings: what the user is told of an allowed request; the API server may cut each after
            256 characters.
    """

    patch: Sequence[Mapping[str, Any]] = ()
    status: Mapping[str, Any] | None = None
    warnings: Sequence[str] = ()


ALLOWED = Answer()

_DECODER = msgspec.json.Decoder(_Review)


def decode(body: bytes | bytearray) -> ReviewRequest:
    """The request of an AdmissionReview.

    Raises:
        ValueError: the body is none; the message says what is wrong.
    """
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"not an AdmissionReview: {error}"
        raise ValueError(msg) from None
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        msg = f"expected {API_VERSION} AdmissionReview, got {review.api_version} {review.kind}"
        raise ValueError(msg)
    return review.request


def encode(uid: str, answer: Answer) -> bytes:
    """An AdmissionReview that answers the request of this UID."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.status is None}
    if answer.status is not None:
        response["status"] = answer.status
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = answer.warnings
    review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(review)


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


def forbidden(message: str) -> Answer:
    """403 with this text."""
    return _failure(403, "Forbidden", message)


def undecodable(message: str) -> Answer:
    """400 with this text."""
    return _failure(400, "BadRequest", message)


def node_not_found(name: str) -> Answer:
    """404 as the API server would answer for the node."""
    details = {"kind": "nodes", "name": name}
    return _failure(404, "NotFound", f'nodes "{name}" not found', details=details)


def _failure(code: int, reason: str, message: str, **more: Any) -> Answer:
    return Answer(
        status={"status": "Failure", "code": code, "reason": reason, "message": message, **more}
    )
