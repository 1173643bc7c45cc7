"""Every exception jobsetpy raises on purpose, in one tree.

::

    JobSetPyError
    ├── ApiError(status, reason, message, verb, target)   the server answered with a failure
    │   ├── NotFoundError            404
    │   ├── AlreadyExistsError       409, reason AlreadyExists
    │   ├── ConflictError            409, any other reason
    │   ├── ExpiredError             410: the resourceVersion is too old, list again
    │   ├── InvalidError             400, 422
    │   ├── UnauthorizedError        401
    │   ├── ForbiddenError           403
    │   └── RetryableApiError        429 and 5xx; ``retry_after`` in seconds, if the server set it
    ├── TransportError               the server never answered, or the stream broke
    │   ├── ConnectFailedError
    │   ├── StreamBrokenError
    │   └── ApiTimeoutError          a deadline of ours passed
    ├── DecodeError(kind, path)      the returned data does not fit the model
    ├── CacheError
    │   ├── NotSyncedError           the first list is not complete: absent does not mean deleted
    │   ├── UnknownIndexError
    │   └── IndexConflictError
    ├── TerminalError                raised by a reconciler: do not retry until the object changes
    └── LifecycleError
        ├── AlreadyStartedError
        ├── LeadershipLostError
        └── StopTimedOutError

HTTP status codes are translated once, in ``jobsetpy.client``; nothing above it sees one.
Absence is a value (``Store.get`` returns ``None``), not an exception.
"""

from __future__ import annotations


class JobSetPyError(Exception):
    """Base of all exceptions of this module."""


class ApiError(JobSetPyError):
    """The API server answered a request with a failure.

    Args:
        status: HTTP status code.
        reason: machine-readable ``reason`` of the returned Status object; "" when it had none.
        message: the server's text.
        verb: operation that failed: ``get``, ``list``, ``watch``, ``create``, ``patch``, ...
        target: resource and object, such as ``pods default/a``.
        body: the Status object as received, for callers that need its ``details``; bytes, possibly
            truncated.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        verb: str = "",
        target: str = "",
        body: bytes = b"",
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.verb = verb
        self.target = target
        self.body = body
        what = f"{verb} {target}".strip() or "request"
        super().__init__(f"{what}: the API server answered {status} {reason}: {message}")


class NotFoundError(ApiError):
    """404: no such object, or no such kind of object."""


class AlreadyExistsError(ApiError):
    """409 with reason AlreadyExists: an object of that name already exists."""


class ConflictError(ApiError):
    """409: the object changed since it was read, or a field is owned by another applier."""


class ExpiredError(ApiError):
    """410: the resourceVersion or continue token is too old; list again from the start."""


class InvalidError(ApiError):
    """400 or 422: the server refuses the content; sending it again cannot help."""


class UnauthorizedError(ApiError):
    """401: the credentials are not accepted (perhaps no longer)."""


class ForbiddenError(ApiError):
    """403: authorization or admission refuses the request."""


class RetryableApiError(ApiError):
    """429 or 5xx: the same request may succeed later.

    ``retry_after`` is the value of the server's Retry-After header in seconds, at most 30, or
    ``None``.
    """

    retry_after: float | None = None


class TransportError(JobSetPyError):
    """The server did not answer, or the connection broke during the response."""


class ConnectFailedError(TransportError):
    """No connection: refused, unreachable, TLS or name resolution failed."""


class StreamBrokenError(TransportError):
    """A connection ended in the middle of a response."""


class ApiTimeoutError(TransportError):
    """A deadline set by the caller passed before the server answered."""


class DecodeError(JobSetPyError):
    """JSON from the server does not fit the model.

    Args:
        kind: the model's name.
        path: location in the JSON, in msgspec's ``$.a.b`` form; "" when unknown.
        message: description of the mismatch.
        namespace, name, uid: identity of the object, as far as it could be read; else "".
    """

    def __init__(
        self,
        kind: str,
        path: str,
        message: str,
        *,
        namespace: str = "",
        name: str = "",
        uid: str = "",
    ) -> None:
        self.kind = kind
        self.path = path
        self.namespace = namespace
        self.name = name
        self.uid = uid
        super().__init__(f"cannot decode {kind} at {path or '$'}: {message}")


class CacheError(JobSetPyError):
    """Base of the informer cache's errors."""


class NotSyncedError(CacheError):
    """A Store was read before its first list completed."""


class UnknownIndexError(CacheError):
    """An index was read that was never declared."""


class IndexConflictError(CacheError):
    """Two different functions were declared under one index name, or one was declared too late."""


class TerminalError(JobSetPyError):
    """Raised by a reconciler when a retry cannot help until the object changes."""


class LifecycleError(JobSetPyError):
    """Base of start and stop errors."""


class AlreadyStartedError(LifecycleError):
    """A component was changed or started while it was already running."""


class LeadershipLostError(LifecycleError):
    """Another process acquired the lease, or it could not be renewed in time."""


class NotLeadingError(LifecycleError):
    """Another replica is the leader; send the request to that one."""


class StartTimedOutError(LifecycleError, TimeoutError):
    """Caches did not sync, or a component of the manager did not start, within the time limit."""


class StopTimedOutError(LifecycleError):
    """A graceful stop took longer than its time limit."""
