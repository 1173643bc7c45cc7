"""Failure responses of the API server, as exceptions that carry a Status object.

Texts and fields follow those of a real kube-apiserver (1.36); the contract suite compares them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.structural_schema import Cause

_OPTIONS_GROUP = "meta.k8s.io"


@attrs.define(eq=False)
class StatusError(Exception):
    """Failure of a request with this Status.

    Args:
        code: HTTP status code.
        reason: the machine-readable reason; "" for errors without one.
        message: the text for people.
        details: the Status object's ``details``, or ``None`` to leave them out.
        retry_after: seconds for the Retry-After header.
    """

    code: int
    reason: str
    message: str
    details: dict[str, Any] | None = None
    retry_after: int | None = attrs.field(default=None, kw_only=True)

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """Return the Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def qualified(info: ResourceInfo) -> str:
    """Return the name of a resource in messages: ``pods`` or ``jobs.batch``."""
    return f"{info.plural}.{info.group}" if info.group else info.plural


def details_of(info: ResourceInfo, name: str, *, kind: str | None = None) -> dict[str, Any]:
    """Return ``details`` that refer to one object; ``kind`` is the plural by default."""
    details: dict[str, Any] = {"name": name} if name else {}
    if info.group:
        details["group"] = info.group
    details["kind"] = kind or info.plural
    return details


def not_found(info: ResourceInfo, name: str) -> StatusError:
    """Return 404: no such object."""
    message = f"{qualified(info)} {json.dumps(name)} not found"
    return StatusError(404, "NotFound", message, details_of(info, name))


def no_such_path() -> StatusError:
    """Return 404 for a path that is not a resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(info: ResourceInfo, name: str) -> StatusError:
    """Return 409: the name of a create is taken."""
    message = f"{qualified(info)} {json.dumps(name)} already exists"
    return StatusError(409, "AlreadyExists", message, details_of(info, name))


def conflict(info: ResourceInfo, name: str, why: str = "") -> StatusError:
    """Return 409: the object is not in the state that the writer expected.

    Args:
        info: the resource.
        name: the object's name.
        why: the reason; the text about a newer resourceVersion when empty.
    """
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    message = f"Operation cannot be fulfilled on {qualified(info)} {json.dumps(name)}: {why}"
    return StatusError(409, "Conflict", message, details_of(info, name))


def bad_request(message: str) -> StatusError:
    """Return 400."""
    return StatusError(400, "BadRequest", message)


def invalid(
    info: ResourceInfo, name: str, causes: Sequence[Cause], *, kind: str = ""
) -> StatusError:
    """Return 422: validation found the given causes."""
    kind = kind or info.kind
    what = f"{kind}.{info.group}" if info.group else kind
    found = [f"{one['field']}: {one['message']}" for one in causes]
    text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
    details = {**details_of(info, name, kind=kind), "causes": list(causes)}
    return StatusError(422, "Invalid", f"{what} {json.dumps(name)} is invalid: {text}", details)


def invalid_options(kind: str, causes: Sequence[Cause]) -> StatusError:
    """Return 422 about query parameters or DeleteOptions; ``kind`` such as ``ListOptions``."""
    return invalid(ResourceInfo(_OPTIONS_GROUP, "v1", kind, kind), "", causes)


def patch_refused() -> StatusError:
    """Return 422: a JSON patch cannot be applied; the real server gives no more details."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, {})


def method_not_allowed() -> StatusError:
    """Return 405."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type() -> StatusError:
    """Return 415."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def expired(message: str) -> StatusError:
    """Return 410 with reason Expired."""
    return StatusError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> StatusError:
    """Return 504: a resourceVersion from the future."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
        retry_after=1,
    )


def internal(message: str) -> StatusError:
    """Return 500 without a reason, as the real server does for unclassified errors."""
    return StatusError(500, "", message)


def injected(code: int, retry_after: float | None, message: str) -> StatusError:
    """Return the failure of a fault rule, with the reason that a real server gives that code."""
    reason = {
        401: "Unauthorized",
        403: "Forbidden",
        404: "NotFound",
        409: "Conflict",
        410: "Expired",
        429: "TooManyRequests",
        500: "InternalError",
        503: "ServiceUnavailable",
        504: "Timeout",
    }.get(code, "")
    details = None if retry_after is None else {"retryAfterSeconds": int(retry_after)}
    return StatusError(
        code,
        reason,
        message or f"injected failure {code}",
        details,
        retry_after=None if retry_after is None else int(retry_after),
    )
