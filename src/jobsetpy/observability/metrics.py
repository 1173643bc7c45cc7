"""Metrics of the framework and the functions that change them; nothing else touches a metric.

They are declared in the modules behind this one and in ``hooks``, in one registry. Metrics of
JobSets and of the coscheduler are declared next to the counted code, each in its own registry.
All follow these rules:

* Names, labels and buckets that client-go and controller-runtime have are kept.
* No label names an object. The exception is two counters that users of JobSet know.
* Series that alerts may query exist from the start with the value 0.
* Functions, not metric objects, are exported: a caller cannot get labels or units wrong.
"""

from jobsetpy.observability._framework_metrics import (
    EventMetrics,
    EventOutcome,
    QueueMetrics,
    ReconcileMetrics,
    Result,
    expectations_expired,
    leader,
    loop_lag,
    queue_gauges,
    watch_error,
)
from jobsetpy.observability._process_metrics import cache_sizes, certificate_ends
from jobsetpy.observability._registry import REGISTRY, MetricRegistry
from jobsetpy.observability._webhook_metrics import WebhookMetrics

__all__ = [
    "REGISTRY",
    "EventMetrics",
    "EventOutcome",
    "MetricRegistry",
    "QueueMetrics",
    "ReconcileMetrics",
    "Result",
    "WebhookMetrics",
    "cache_sizes",
    "certificate_ends",
    "expectations_expired",
    "leader",
    "loop_lag",
    "queue_gauges",
    "watch_error",
]
