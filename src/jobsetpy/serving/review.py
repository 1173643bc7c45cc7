"""Envelope of the API server's requests to admission webhooks, v1."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.structural_schema import Cause

API_VERSION = "admission.k8s.io/v1"


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Admission request.

    ``object`` is ``None`` for deletions, ``old_object`` for creations; both may be any JSON.
    ``user_info`` is the requesting user, as in a TokenReview; a ``dry_run`` must have no effects.
    """

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    object: Any = None
    old_object: Any = None
    user_info: Mapping[str, Any] = {}
    dry_run: bool = False


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: ReviewRequest


@attrs.frozen
class Answer:
    """Admission response.

    Args:
        patch: JSON patch for the object; only with an allowed request.
        status: ``metav1.Status`` that refuses the request; ``None`` allows it.
        warnings: messages for the user of an allowed request; the API server may truncate each
            after 256 characters.
    """

    patch: Sequence[Mapping[str, Any]] = ()
    status: Mapping[str, Any] | None = None
    warnings: Sequence[str] = ()


ALLOWED = Answer()

_DECODER = msgspec.json.Decoder(_Review)


def decode(body: bytes | bytearray) -> ReviewRequest:
    """Return the request of an AdmissionReview.

    Raises:
        ValueError: the body is not an AdmissionReview; the message gives the reason.
    """
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not an AdmissionReview: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        found = f"{review.api_version} {review.kind}"
        raise ValueError(f"expected {API_VERSION} AdmissionReview, got {found}")
    return review.request


def encode(uid: str, answer: Answer) -> bytes:
    """Return an AdmissionReview that answers the request with this UID."""
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


def forbidden(message: str) -> Answer:
    """Return 403 with this text."""
    return failure(403, "Forbidden", message)


def undecodable(message: str) -> Answer:
    """Return 400 with this text."""
    return failure(400, "BadRequest", message)


def invalid(info: ResourceInfo, name: str, causes: Sequence[Cause]) -> Answer:
    """Return 422: an object of this kind and name has these problems."""
    texts = list(dict.fromkeys(f"{each['field']}: {each['message']}" for each in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    what = f"{info.kind}.{info.group}" if info.group else info.kind
    details = {"group": info.group, "kind": info.kind, "name": name, "causes": causes}
    return failure(422, "Invalid", f'{what} "{name}" is invalid: {listed}', details=details)


def failure(code: int, reason: str, message: str, **more: Any) -> Answer:
    """Return a refusal in the API server's form; ``more`` are further fields of the Status."""
    return Answer(
        status={"status": "Failure", "code": code, "reason": reason, "message": message, **more}
    )
