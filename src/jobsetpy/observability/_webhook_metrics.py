"""Metrics of the webhook server, named and labelled as controller-runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from jobsetpy.observability._registry import REGISTRY

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_requests = REGISTRY.counter(
    "controller_runtime_webhook_requests_total",
    "Total number of admission requests by HTTP status code.",
    "webhook",
    "code",
)
_latency = REGISTRY.histogram(
    "controller_runtime_webhook_latency_seconds",
    "Histogram of the latency of processing admission requests",
    "webhook",
    buckets=_BUCKETS,
)
_in_flight = REGISTRY.gauge(
    "controller_runtime_webhook_requests_in_flight",
    "Current number of admission requests being served.",
    "webhook",
)


class WebhookMetrics:
    """Counts the requests of one webhook.

    Args:
        path: its path; one of few, never taken from a client's request.
    """

    __slots__ = ("_in_flight", "_latency", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._latency = _latency.labels(path)
        self._in_flight = _in_flight.labels(path)
        for code in (200, 500):
            _requests.labels(path, str(code))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count a request in progress, and measure its time."""
        with self._in_flight.track_inprogress(), self._latency.time():
            yield

    def answered(self, status: int) -> None:
        """Count a response by its HTTP status."""
        _requests.labels(self._path, str(status)).inc()
