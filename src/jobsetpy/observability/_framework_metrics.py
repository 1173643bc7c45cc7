"""Metrics of the framework: queues, controllers, events, the process.

Names, labels and buckets of ``workqueue_*``, ``controller_runtime_*``, ``rest_client_*`` and
``leader_election_*`` are those of client-go and controller-runtime (with ``resource`` in place of
``host``), so that dashboards made for Go controllers work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobsetpy.observability._registry import REGISTRY

Result = Literal["success", "error", "requeue", "requeue_after"]
Problem = Literal["terminal", "panic", "timeout", "conflict", "blocked"]

# controller-runtime's: 10 ns to 1,000 s by powers of ten, and 5 ms to a minute.
_QUEUE_BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 4))
_RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25),
    *(30, 40, 50, 60),
)

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
    """Observer of one work queue; implements ``workqueue.QueueObserver``.

    Args:
        name: name of the controller; label ``name`` and ``controller``.
    """

    __slots__ = ("_adds", "_retries", "_wait", "_work")

    def __init__(self, name: str) -> None:
        self._adds = _queue_adds.labels(name, name)
        self._retries = _queue_retries.labels(name, name)
        self._wait = _queue_wait.labels(name, name)
        self._work = _queue_work.labels(name, name)

    def on_add(self, priority: int) -> None:  # noqa: ARG002 - adds carry no priority label
        """Count an add."""
        self._adds.inc()

    def on_get(self, waited_s: float) -> None:
        """Record the wait in the histogram."""
        self._wait.observe(waited_s)

    def on_done(self, worked_s: float) -> None:
        """Record the duration in the histogram."""
        self._work.observe(worked_s)

    def on_retry(self) -> None:
        """Count a retry."""
        self._retries.inc()


class _Queues(Collector):
    """Gauges of work queues, read when scraped: counting each add and get would cost more."""

    def __init__(self) -> None:
        self.sources: dict[
            str, tuple[Callable[[], Mapping[int, int]], Callable[[], Sequence[float]]]
        ] = {}

    def describe(self) -> Iterator[Metric]:
        """Yield the metric families without samples."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield one sample for each queue, and its depth for each priority."""
        depth, unfinished, longest = self._families()
        for name, (depths, working_seconds) in self.sources.items():
            for priority, count in ({0: 0} | dict(depths())).items():
                depth.add_metric([name, name, str(priority)], count)
            seconds = working_seconds()
            unfinished.add_metric([name, name], sum(seconds))
            longest.add_metric([name, name], max(seconds, default=0.0))
        yield from (depth, unfinished, longest)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "workqueue_depth",
                "Current depth of workqueue by workqueue and priority",
                labels=["name", "controller", "priority"],
            ),
            GaugeMetricFamily(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work is in progress and not yet observed as done, summed",
                labels=["name", "controller"],
            ),
            GaugeMetricFamily(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
                labels=["name", "controller"],
            ),
        )


_queues = _Queues()
REGISTRY.register(_queues)


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
    _queues.sources[name] = (depths, working_seconds)
    try:
        yield
    finally:
        _queues.sources.pop(name, None)


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
            result: _reconciles.labels(controller, result)
            for result in ("success", "error", "requeue", "requeue_after")
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
            outcome: _events.labels(controller, outcome)
            for outcome in ("created", "patched", "failed", "overflow", "rate_limited")
        }

    def count(self, outcome: EventOutcome) -> None:
        """Count one event."""
        self._outcomes[outcome].inc()


# The process

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
