"""Metrics and log lines of the client and the informers.

Those packages import neither: they call hooks, whose protocols they declare. The classes here
implement them structurally.
"""

from __future__ import annotations

import functools
from typing import Final

from prometheus_client import Counter, Histogram

from jobsetpy.observability.logging import get_logger
from jobsetpy.observability.metrics import REGISTRY

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15, 30, 60)

_requests = REGISTRY.counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, host and resource.",
    "code",
    "method",
    "host",
    "resource",
)
_request_seconds = REGISTRY.histogram(
    "rest_client_request_duration_seconds",
    "Request latency in seconds by verb; of a watch until its headers came",
    "verb",
    buckets=_BUCKETS,
)
_throttle_seconds = REGISTRY.histogram(
    "rest_client_rate_limiter_duration_seconds",
    "How long in seconds requests waited for the client's own rate limit",
    buckets=_BUCKETS,
)

_events = REGISTRY.counter("informer_events_total", "Watch events taken", "kind", "type")
_relists = REGISTRY.counter("informer_relists_total", "Lists after the first one", "kind")
_watch_ends = REGISTRY.counter(
    "informer_watch_ends_total",
    "Ends of watches: eof (in order), expired, error, broken, silence",
    "kind",
    "reason",
)
_failures = REGISTRY.counter(
    "informer_failures_total", "List and watch requests that failed", "kind"
)
_decode_errors = REGISTRY.counter(
    "informer_decode_errors_total",
    "Objects left out of the cache because they do not fit the model",
    "kind",
)

_function_errors = REGISTRY.counter(
    "informer_function_errors_total",
    "Objects for which an index or a transform began to fail",
    "kind",
)

_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": "PATCH",
    "delete": "DELETE",
}


# Finding a series by its labels costs more than counting.


@functools.cache
def _requests_of(verb: str, host: str, resource: str, status: int | None) -> Counter:
    code = "<error>" if status is None else str(status)
    return _requests.labels(code, _METHODS.get(verb, "OTHER"), host, resource)


@functools.cache
def _request_seconds_of(verb: str) -> Histogram:
    return _request_seconds.labels(verb)


@functools.cache
def _events_of(kind: str, type_: str) -> Counter:
    return _events.labels(kind, type_)


_ADVISED_LIMIT: Final = 1000
"""Maximum number of remembered pieces of advice, each of which is logged once."""


class ClientMetrics:
    """Counts the requests of a client, as its ``observer``."""

    __slots__ = ("host",)

    def __init__(self) -> None:
        self.host = ""
        """Host and port of the API server; set once they are known, for a label."""

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """Record an HTTP exchange."""
        _requests_of(verb, self.host, resource, status).inc()
        _request_seconds_of(verb).observe(seconds)

    def on_throttled(self, seconds: float) -> None:
        """Record the wait of a request for the client's own rate limit."""
        _throttle_seconds.observe(seconds)


class InformerMetrics:
    """Counts and logs events of informers; implements ``informers.InformerObserver``.

    Logged are: completed lists and relists (info), failures (warning), objects that cannot be
    decoded (error, once for each). Watches that end or fall silent are normal and logged at debug.
    """

    __slots__ = ("_advised", "_log")

    def __init__(self) -> None:
        self._log = get_logger("informers")
        self._advised: set[str] = set()

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        """Log a completed list."""
        self._log.info("listed", kind=kind, count=count, seconds=round(seconds, 3))

    def on_relist(self, kind: str, reason: str) -> None:
        """Record a list that starts although another had completed, or begun, before."""
        _relists.labels(kind).inc()
        self._log.info("listing again", kind=kind, reason=reason)

    def on_watch_open(self, kind: str, resource_version: str) -> None:
        """Log an open watch."""
        self._log.debug("watching", kind=kind, resource_version=resource_version)

    def on_watch_end(self, kind: str, reason: str) -> None:
        """Record the end of a watch."""
        _watch_ends.labels(kind, reason).inc()
        self._log.debug("watch ended", kind=kind, reason=reason)

    def on_silence(self, kind: str, seconds: float) -> None:
        """Log a watch that is replaced because nothing arrived."""
        # Normal for a collection without changes; the server has no other sign of life.
        self._log.debug("watch is silent, opening another", kind=kind, seconds=round(seconds, 1))

    def on_event(self, kind: str, type_: str) -> None:
        """Count a watch event that was processed."""
        _events_of(kind, type_).inc()

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """Record a failed list or watch request, which will be retried."""
        _failures.labels(kind).inc()
        advice = "\n".join(getattr(error, "__notes__", ()))
        more = {"advice": advice} if advice and advice not in self._advised else {}
        if more and len(self._advised) < _ADVISED_LIMIT:
            self._advised.add(advice)
        self._log.warning(
            "list or watch failed, trying again",
            kind=kind,
            error=str(error),
            retry_in_s=round(retry_in_s, 3),
            **more,
        )

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """Record an object that does not fit the model and is left out."""
        _decode_errors.labels(kind).inc()
        self._log.error(
            "object does not fit the model and is left out of the cache",
            kind=kind,
            namespace=namespace,
            name=name,
            error=str(error),
        )

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        """Record that an index or a transform failed for an object."""
        _function_errors.labels(kind).inc()
        self._log.error(
            f"{function.partition(' ')[0]} failed for an object, which is left out",
            kind=kind,
            function=function,
            namespace=namespace,
            name=name,
            error=str(error) or type(error).__name__,
            exc_info=error,
        )
