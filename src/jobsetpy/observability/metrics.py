"""Metrics of the framework and the functions that change them; nothing else touches a metric.

They are declared here and in ``hooks``, in one registry. Metrics of JobSets and of the coscheduler
are declared next to the counted code, each in its own registry. All follow these rules:

* Names, labels and buckets that client-go and controller-runtime have are kept: those of
  ``workqueue_*``, ``controller_runtime_*``, ``certwatcher_*``, ``rest_client_*`` (with
  ``resource`` in addition) and ``leader_election_*``, so that dashboards made for Go controllers
  work.
* No label names an object. The exception is two counters that users of JobSet know.
* Series that alerts may query exist from the start with the value 0.
* Functions, not metric objects, are exported: a caller cannot get labels or units wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Result = Literal["success", "error", "requeue", "requeue_after"]
Problem = Literal["terminal", "panic", "timeout", "conflict", "blocked"]

# controller-runtime's: 10 ns to 1,000 s by powers of ten, and 5 ms to a minute.
_QUEUE_BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 4))
_RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25),
    *(30, 40, 50, 60),
)

# A "_created" series for each counter would double their number for no reader.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricRegistry(CollectorRegistry):
    """Metrics of one package; served by managers that were given it (``add_metrics``)."""

    def __init__(self) -> None:
        super().__init__(auto_describe=True)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare a counter."""
        return Counter(name, text, labels, registry=self)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Declare a gauge."""
        return Gauge(name, text, labels, registry=self)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        """Declare a histogram."""
        return Histogram(name, text, labels, registry=self, buckets=buckets)


REGISTRY: Final = MetricRegistry()
"""Metrics of the framework, which every manager serves."""

prometheus_client.ProcessCollector(registry=REGISTRY)
prometheus_client.PlatformCollector(registry=REGISTRY)
prometheus_client.GCCollector(registry=REGISTRY)


class _Scraped(Collector):
    """Gauge that is computed when scraped, at no cost in between; its sources add up.

    Args:
        name: name of the metric.
        text: its description.
        labels: names of its labels.
    """

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._declared = (name, text, None, labels)
        self._sources: list[Callable[[], Mapping[tuple[str, ...], float]]] = []
        REGISTRY.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric with the samples of all sources."""
        family = GaugeMetricFamily(*self._declared)
        samples: dict[tuple[str, ...], float] = {}
        for source in self._sources:
            for labels, value in source().items():
                samples[labels] = samples.get(labels, 0.0) + value
        for labels, value in sorted(samples.items()):
            family.add_metric(labels, value)
        yield family

    @contextmanager
    def showing(self, source: Callable[[], Mapping[tuple[str, ...], float]]) -> Iterator[None]:
        """Export the samples that ``source`` returns, by their labels, within the block."""
        self._sources.append(source)
        try:
            yield
        finally:
            self._sources.remove(source)


# Work queues

_queue_adds = REGISTRY.counter(
    "workqueue_adds_total", "Total number of adds handled by workqueue", "name", "controller"
)
_queue_retries = REGISTRY.counter(
    "workqueue_retries_total", "Total number of retries handled by workqueue", "name", "controller"
)
_queue_wait = REGISTRY.histogram(
    "workqueue_queue_duration_seconds",
    "How long in seconds an item stays in workqueue before being requested",
    "name",
    "controller",
    buckets=_QUEUE_BUCKETS,
)
_queue_work = REGISTRY.histogram(
    "workqueue_work_duration_seconds",
    "How long in seconds processing an item from workqueue takes.",
    "name",
    "controller",
    buckets=_QUEUE_BUCKETS,
)


class QueueMetrics:
    """Metrics of one work queue.

    Args:
        name: name of the controller; label ``name`` and ``controller``.
    """

    __slots__ = ("_adds", "_retries", "_wait", "_work")

    def __init__(self, name: str) -> None:
        self._adds = _queue_adds.labels(name, name)
        self._retries = _queue_retries.labels(name, name)
        self._wait = _queue_wait.labels(name, name)
        self._work = _queue_work.labels(name, name)

    def on_add(self) -> None:
        """Count an item that was queued and was not queued before."""
        self._adds.inc()

    def on_get(self, waited_s: float) -> None:
        """Record that a worker took an item that had been queued for ``waited_s`` seconds."""
        self._wait.observe(waited_s)

    def on_done(self, worked_s: float) -> None:
        """Record that a worker gave an item back after ``worked_s`` seconds."""
        self._work.observe(worked_s)

    def on_retry(self) -> None:
        """Count an item that was added with the rate limiter's delay."""
        self._retries.inc()


_queue_depth: Final = _Scraped(
    "workqueue_depth",
    "Current depth of workqueue by workqueue and priority",
    "name",
    "controller",
    "priority",
)
_queue_unfinished: Final = _Scraped(
    "workqueue_unfinished_work_seconds",
    "How many seconds of work is in progress and not yet observed as done, summed",
    "name",
    "controller",
)
_queue_longest: Final = _Scraped(
    "workqueue_longest_running_processor_seconds",
    "How many seconds has the longest running processor for workqueue been running.",
    "name",
    "controller",
)


@contextmanager
def queue_gauges(
    name: str,
    depths: Callable[[], Mapping[int, int]],
    working_seconds: Callable[[], Sequence[float]],
) -> Iterator[None]:
    """Export depth, unfinished work and longest work of a queue within the block.

    Args:
        name: name of the controller.
        depths: returns the number of queued items by priority.
        working_seconds: returns the processing time so far of each item in progress.
    """

    def by_priority() -> dict[tuple[str, ...], float]:
        return {(name, name, str(at)): count for at, count in ({0: 0} | dict(depths())).items()}

    with (
        _queue_depth.showing(by_priority),
        _queue_unfinished.showing(lambda: {(name, name): sum(working_seconds())}),
        _queue_longest.showing(lambda: {(name, name): max(working_seconds(), default=0.0)}),
    ):
        yield


# Controllers

_reconciles = REGISTRY.counter(
    "controller_runtime_reconcile_total",
    "Total number of reconciliations per controller",
    "controller",
    "result",
)
_reconcile_errors = REGISTRY.counter(
    "controller_runtime_reconcile_errors_total",
    "Total number of reconciliation errors per controller",
    "controller",
)
_problems: Final = {
    "terminal": REGISTRY.counter(
        "controller_runtime_terminal_reconcile_errors_total",
        "Total number of terminal reconciliation errors per controller",
        "controller",
    ),
    "panic": REGISTRY.counter(
        "controller_runtime_reconcile_panics_total",
        "Total number of reconciliations that ended in an unexpected exception",
        "controller",
    ),
    "timeout": REGISTRY.counter(
        "controller_runtime_reconcile_timeouts_total",
        "Total number of reconciliation timeouts per controller",
        "controller",
    ),
    "conflict": REGISTRY.counter(
        "controller_reconcile_conflicts_total",
        "Total number of reconciliations retried because the object had changed meanwhile",
        "controller",
    ),
    "blocked": REGISTRY.counter(
        "controller_reconcile_blocked_total",
        "Reconciliations that held the event loop for more than half a second without a wait",
        "controller",
    ),
}
_reconcile_seconds = REGISTRY.histogram(
    "controller_runtime_reconcile_time_seconds",
    "Length of time per reconciliation per controller",
    "controller",
    buckets=_RECONCILE_BUCKETS,
)
_workers = REGISTRY.gauge(
    "controller_runtime_max_concurrent_reconciles",
    "Maximum number of concurrent reconciles per controller",
    "controller",
)
_active_workers = REGISTRY.gauge(
    "controller_runtime_active_workers",
    "Number of currently used workers per controller",
    "controller",
)
_watch_errors = REGISTRY.counter(
    "controller_watch_errors_total",
    "Events whose handler or predicate raised an exception",
    "controller",
)
_expectations_expired = REGISTRY.counter(
    "controller_expectations_expired_total",
    "Own writes that the cache did not show in time, so that the reconciler went on without",
    "name",
)


class ReconcileMetrics:
    """Metrics of one controller; all series exist from the start with the value 0."""

    __slots__ = ("_active", "_errors", "_problems", "_results", "_seconds", "_workers")

    def __init__(self, controller: str) -> None:
        self._results = {
            result: _reconciles.labels(controller, result) for result in get_args(Result)
        }
        self._errors = _reconcile_errors.labels(controller)
        self._problems = {name: each.labels(controller) for name, each in _problems.items()}
        self._seconds = _reconcile_seconds.labels(controller)
        self._workers = _workers.labels(controller)
        self._active = _active_workers.labels(controller)
        _watch_errors.labels(controller)

    def workers(self, count: int) -> None:
        """Set the number of workers of the controller."""
        self._workers.set(count)

    def started(self) -> None:
        """Record that a worker began a reconcile."""
        self._active.inc()

    def ended(self, seconds: float) -> None:
        """Record that a worker ended a reconcile, with any outcome."""
        self._active.dec()
        self._seconds.observe(seconds)

    def result(self, result: Result) -> None:
        """Count the outcome of a reconcile; an ``error`` counts in both counters."""
        self._results[result].inc()
        if result == "error":
            self._errors.inc()

    def problem(self, kind: Problem) -> None:
        """Count a problem of a reconcile, in addition to its result.

        Args:
            kind: an error that will not be retried, an unexpected exception, a timeout, an object
                that had changed meanwhile, or an event loop that was held for too long.
        """
        self._problems[kind].inc()


def watch_error(controller: str) -> None:
    """Count an exception of a watch's handler or predicate."""
    _watch_errors.labels(controller).inc()


def expectations_expired(name: str, count: int = 1) -> None:
    """Count own writes that never appeared in the cache; ``count=0`` creates the series."""
    _expectations_expired.labels(name).inc(count)


# Event recorder

EventOutcome = Literal["created", "patched", "failed", "overflow", "rate_limited"]

_events = REGISTRY.counter(
    "event_recorder_events_total",
    "Kubernetes Events by what became of them: created and patched are requests that succeeded, "
    "failed ones that did not; overflow and rate_limited were dropped unsent",
    "controller",
    "outcome",
)


class EventMetrics:
    """Counters of one event recorder; all series exist from the start with the value 0."""

    __slots__ = ("_outcomes",)

    def __init__(self, controller: str) -> None:
        self._outcomes = {
            outcome: _events.labels(controller, outcome) for outcome in get_args(EventOutcome)
        }

    def count(self, outcome: EventOutcome) -> None:
        """Count one event."""
        self._outcomes[outcome].inc()


# The process: a leak shows here, or in process_resident_memory_bytes and process_open_fds

_leader = REGISTRY.gauge(
    "leader_election_master_status",
    "1 if this process is the leader of the named lease, else 0",
    "name",
)
_loop_lag = REGISTRY.gauge(
    "event_loop_lag_seconds",
    "The latest the event loop was in calling back, of the last 15 measurements",
)
_loop_stalls = REGISTRY.counter(
    "event_loop_stalls_total", "How often the event loop was more than 100 ms late in calling back"
)
_STALL_S: Final = 0.1
_lags: deque[float] = deque([0.0], maxlen=15)


def leader(name: str, *, leading: bool) -> None:
    """Set whether this process leads the Lease ``name``."""
    _leader.labels(name).set(int(leading))


def loop_lag(seconds: float) -> None:
    """Record the event loop's lag in one measurement; the gauge shows the maximum of the last 15.

    A scrape every 15 s with a measurement every second therefore misses none.
    """
    _lags.append(seconds)
    _loop_lag.set(max(_lags))
    if seconds > _STALL_S:
        _loop_stalls.inc()


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # scraped outside of an event loop
        return 0


REGISTRY.gauge("asyncio_tasks", "Tasks of the event loop that have not ended").set_function(_tasks)
_objects: Final = _Scraped("informer_objects", "Objects in caches by kind", "kind")
_certificate_end = REGISTRY.gauge(
    "server_certificate_expiration_timestamp_seconds",
    "When the certificate ends that a server of this process shows now, in Unix time",
    "server",
)


_certificate_reads = REGISTRY.counter(
    "certwatcher_read_certificate_total", "Total number of certificate reads"
)
_certificate_read_errors = REGISTRY.counter(
    "certwatcher_read_certificate_errors_total", "Total number of certificate read errors"
)


def certificate_read(*, failed: bool = False) -> None:
    """Count a read of a server's certificate from its source, or the failure of one."""
    (_certificate_read_errors if failed else _certificate_reads).inc()


@contextmanager
def cache_sizes(sizes: Callable[[], Mapping[str, int]]) -> Iterator[None]:
    """Export the number of objects in a cache within the block.

    Args:
        sizes: returns the number of objects by kind.
    """
    with _objects.showing(lambda: {(kind,): count for kind, count in sizes().items()}):
        yield


def certificate_ends(server: str, end: datetime) -> None:
    """Record that a server uses a certificate that expires at ``end``."""
    _certificate_end.labels(server).set(end.timestamp())


# Webhooks

_WEBHOOK_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_webhook_requests = REGISTRY.counter(
    "controller_runtime_webhook_requests_total",
    "Total number of admission requests by HTTP status code.",
    "webhook",
    "code",
)
_webhook_latency = REGISTRY.histogram(
    "controller_runtime_webhook_latency_seconds",
    "Histogram of the latency of processing admission requests",
    "webhook",
    buckets=_WEBHOOK_BUCKETS,
)
_webhook_in_flight = REGISTRY.gauge(
    "controller_runtime_webhook_requests_in_flight",
    "Current number of admission requests being served.",
    "webhook",
)


_webhook_panics = REGISTRY.counter(
    "controller_runtime_webhook_panics_total",
    "Total number of admission requests whose handler raised an unexpected exception",
)
# Always 0, as in the Go controller: dashboards of controller-runtime show both.
REGISTRY.counter(
    "controller_runtime_conversion_webhook_panics_total",
    "Total number of conversions that raised an unexpected exception; none are served",
)


def webhook_panic() -> None:
    """Count an unexpected exception of a webhook's handler."""
    _webhook_panics.inc()


class WebhookMetrics:
    """Counts the requests of one webhook.

    Args:
        path: its path; one of few, never taken from a client's request.
    """

    __slots__ = ("_in_flight", "_latency", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._latency = _webhook_latency.labels(path)
        self._in_flight = _webhook_in_flight.labels(path)
        for code in (200, 500):
            _webhook_requests.labels(path, str(code))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count a request in progress, and measure its time."""
        with self._in_flight.track_inprogress(), self._latency.time():
            yield

    def answered(self, status: int) -> None:
        """Count a response by its HTTP status."""
        _webhook_requests.labels(self._path, str(status)).inc()
