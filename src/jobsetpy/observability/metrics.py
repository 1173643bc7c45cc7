"""Every metric of jobsetpy and the functions that change them; nothing else touches a metric.

All are declared in the modules behind this one, in one registry, under these rules:

* Names, labels and buckets that client-go and controller-runtime have are kept.
* No label names an object. The exception is two counters that users of JobSet know.
* Series that an alert may ask for exist from the start with the value 0.
* Functions, not metric objects, are exported: a caller cannot get labels or units wrong.
"""

from jobsetpy.observability._framework_metrics import (
    EventMetrics,
    EventOutcome,
    QueueMetrics,
    ReconcileMetrics,
    Result,
    expectations_expired,
    informer_decode_error,
    informer_event,
    informer_failure,
    informer_listed,
    informer_relist,
    informer_stale_event,
    informer_watch_ended,
    leader,
    loop_lag,
    queue_gauges,
    request,
    throttled,
    watch_error,
)
from jobsetpy.observability._group_metrics import group_released, groups_waiting
from jobsetpy.observability._jobset_metrics import (
    MAX_JOBSET_SERIES,
    RestartCause,
    RestartKind,
    RestartPhase,
    failure_decided,
    failure_decisions,
    followers_placed,
    forget_jobset,
    in_place_missing_pods,
    in_place_restart_began,
    in_place_restart_ended,
    in_place_restart_phase,
    in_place_stalled,
    jobset_completed,
    jobset_failed,
    jobset_ready,
    restarted,
)
from jobsetpy.observability._process_metrics import cache_sizes, certificate_ends
from jobsetpy.observability._registry import REGISTRY
from jobsetpy.observability._webhook_metrics import WebhookMetrics

__all__ = [
    "MAX_JOBSET_SERIES",
    "REGISTRY",
    "EventMetrics",
    "EventOutcome",
    "QueueMetrics",
    "ReconcileMetrics",
    "RestartCause",
    "RestartKind",
    "RestartPhase",
    "Result",
    "WebhookMetrics",
    "cache_sizes",
    "certificate_ends",
    "expectations_expired",
    "failure_decided",
    "failure_decisions",
    "followers_placed",
    "forget_jobset",
    "group_released",
    "groups_waiting",
    "in_place_missing_pods",
    "in_place_restart_began",
    "in_place_restart_ended",
    "in_place_restart_phase",
    "in_place_stalled",
    "informer_decode_error",
    "informer_event",
    "informer_failure",
    "informer_listed",
    "informer_relist",
    "informer_stale_event",
    "informer_watch_ended",
    "jobset_completed",
    "jobset_failed",
    "jobset_ready",
    "leader",
    "loop_lag",
    "queue_gauges",
    "request",
    "restarted",
    "throttled",
    "watch_error",
]
