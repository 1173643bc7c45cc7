"""Conversion of HTTP responses to exceptions, done only here.

Callers receive only the classes of ``jobsetpy.errors``. The rules follow the Kubernetes API
conventions ("Response Status Kind" and "HTTP Status codes").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from jobsetpy.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    DecodeError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RetryableApiError,
    UnauthorizedError,
)

MAX_BODY = 4096
"""Maximum number of bytes of an error response that are kept in ``ApiError.body``."""

_MAX_TEXT = 500
MAX_RETRY_AFTER_S = 30.0
"""Maximum wait that a server can request. An API server requests seconds. A proxy or load balancer
in front of it may request an hour; a manager or agent that waited would miss all changes for that
hour, although the API server may be back within seconds."""

_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: RetryableApiError,
}


class _Details(msgspec.Struct, frozen=True):
    retry_after_seconds: int | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct, frozen=True):
    """Slice of metav1.Status."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def parse_retry_after(value: str) -> float | None:
    """Return the whole seconds of a Retry-After header, at most :data:`MAX_RETRY_AFTER_S`.

    ``None`` for any other form: API servers send seconds, and the client has its own back-off.
    """
    text = value.strip()
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else None


def _class_for(code: int, reason: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExistsError
    found = _BY_STATUS.get(code)
    if found is not None:
        return found
    return RetryableApiError if code >= 500 else ApiError


def _make(status: _Status, code: int, verb: str, target: str, body: bytes) -> ApiError:
    error = _class_for(code, status.reason)(
        code, status.reason, status.message, verb=verb, target=target, body=body[:MAX_BODY]
    )
    if isinstance(error, RetryableApiError) and status.details is not None:
        seconds = status.details.retry_after_seconds
        if seconds:  # the field has no "unset" on the wire: 0 is left out or means nothing
            error.retry_after = min(float(seconds), MAX_RETRY_AFTER_S)
    return error


def error_from_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    verb: str,
    target: str,
) -> ApiError:
    """Return the exception for a response that is not a success.

    The body may be a Status object, any other text, or empty, since proxies answer too. A
    Retry-After header has precedence over ``details.retryAfterSeconds``.

    Args:
        status: HTTP status code.
        headers: response headers with lower-case names.
        body: response body; may be truncated.
        verb: verb in the message, such as ``create``.
        target: target in the message, such as ``jobs default/a``.
    """
    try:
        parsed = _decode_status(body)
    except msgspec.DecodeError:
        parsed = _Status(message=body[:_MAX_TEXT].decode("utf-8", "replace").strip())
    error = _make(parsed, status, verb, target, body)
    if isinstance(error, RetryableApiError):
        header = headers.get("retry-after")
        if header is not None:
            seconds = parse_retry_after(header)
            if seconds is not None:
                error.retry_after = seconds
    return error


UNDECODABLE: Final = (msgspec.DecodeError, RecursionError)
"""Exceptions of decoding; the latter for JSON that is nested too deeply."""


def decode_error(
    kind: str, problem: msgspec.DecodeError | RecursionError, prefix: str = "$", **identity: str
) -> DecodeError:
    """Return msgspec's error as a ``DecodeError``, with the path separated from the text.

    Args:
        kind: the model's name.
        problem: exception of msgspec.
        prefix: path of the decoded part in the whole response, such as ``$.items[3]``.
        identity: identity of the object, in the arguments of ``DecodeError``.
    """
    where = "" if prefix == "$" else prefix
    if isinstance(problem, RecursionError):
        return DecodeError(kind, where, "it is nested too deeply", **identity)
    message, found, path = str(problem).rpartition(" - at `")
    if not found:
        return DecodeError(kind, where, str(problem), **identity)
    path = prefix + path.removesuffix("`").removeprefix("$")
    return DecodeError(kind, path, message, **identity)
