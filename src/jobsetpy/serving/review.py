"""Envelopes of the API server's requests to webhooks: admission and conversion, both v1."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs
import msgspec

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.structural_schema import Cause

API_VERSION = "admission.k8s.io/v1"
CONVERSION_API_VERSION = "apiextensions.k8s.io/v1"


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


class ConversionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Conversion request: objects of one kind, as JSON, and the desired version."""

    uid: str
    desired_api_version: str = msgspec.field(default="", name="desiredAPIVersion")
    objects: list[dict[str, Any]] = []


R = TypeVar("R")


class _Review(msgspec.Struct, Generic[R], frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: R


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

_DECODER = msgspec.json.Decoder(_Review[ReviewRequest])
_CONVERSION_DECODER = msgspec.json.Decoder(_Review[ConversionRequest])


def decode(body: bytes | bytearray) -> ReviewRequest:
    """Return the request of an AdmissionReview.

    Raises:
        ValueError: the body is not an AdmissionReview; the message gives the reason.
    """
    return _decode(_DECODER, body, API_VERSION, "AdmissionReview", "an")


def _decode(
    decoder: msgspec.json.Decoder[_Review[R]],
    body: bytes | bytearray,
    api_version: str,
    kind: str,
    a: str,
) -> R:
    try:
        review = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not {a} {kind}: {error}") from None
    if (review.api_version, review.kind) != (api_version, kind):
        raise ValueError(f"expected {api_version} {kind}, got {review.api_version} {review.kind}")
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


def decode_conversion(body: bytes | bytearray) -> ConversionRequest:
    """Return the request of a ConversionReview.

    Raises:
        ValueError: the body is not a ConversionReview; the message gives the reason.
    """
    return _decode(_CONVERSION_DECODER, body, CONVERSION_API_VERSION, "ConversionReview", "a")


def encode_conversion(uid: str, converted: Sequence[Mapping[str, Any]], problem: str = "") -> bytes:
    """Return a ConversionReview for the request with this UID: all objects, or the problem."""
    result = {"status": "Failure", "message": problem} if problem else {"status": "Success"}
    response = {"uid": uid, "result": result, "convertedObjects": [] if problem else converted}
    review = {
        "apiVersion": CONVERSION_API_VERSION,
        "kind": "ConversionReview",
        "response": response,
    }
    return msgspec.json.encode(review)
