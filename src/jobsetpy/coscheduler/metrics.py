"""Metrics of the coscheduler; no label names a gang or a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from jobsetpy.coscheduler.gang_scheduler.state import Cause, Outcome, PodState, Stage
from jobsetpy.observability.metrics import MetricRegistry

REGISTRY: Final = MetricRegistry()
"""Registry served by a manager that runs the coscheduler."""

_FAST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)

VERBS: Final = ("bind", "preempt")

_groups = REGISTRY.gauge(
    "jobset_coscheduler_groups",
    "Groups by state: incomplete (fewer pods than needed), pending (no pod has a node yet), "
    "holding (some pods have a node reserved), bound",
    "state",
)
_pods = REGISTRY.gauge("jobset_coscheduler_pods", "Pods of groups by state", "state")
held = REGISTRY.gauge(
    "jobset_coscheduler_held_binds", "Requests of the scheduler that wait for their answer"
).set
held_limit = REGISTRY.gauge(
    "jobset_coscheduler_held_binds_limit",
    "Maximum number of requests that wait at a time, lower with a low limit on open files",
).set
_bind_seconds = REGISTRY.histogram(
    "jobset_coscheduler_bind_seconds", "Duration of binds at the API server", buckets=_FAST
)
_bind_failures = REGISTRY.counter(
    "jobset_coscheduler_bind_failures_total", "Binds that the API server did not carry out"
)
_rejections = REGISTRY.counter(
    "jobset_coscheduler_group_rejections_total",
    "Groups whose held binds were refused: yielded (a pod found no node, and another group has the "
    "turn), timeout, preempted (a pod of higher priority needs the capacity), too_small "
    "(pods were deleted)",
    "cause",
)
_quick_rejects = REGISTRY.counter(
    "jobset_coscheduler_quick_rejects_total",
    "Binds refused immediately: backoff (the group was refused a moment ago), limit (too many are "
    "held), other (such as a pod that is not known under its name)",
    "reason",
)
group_complete = REGISTRY.histogram(
    "jobset_coscheduler_group_bind_seconds",
    "From a group's first held bind until it was complete",
    buckets=_LONG,
).observe
group_bound = REGISTRY.histogram(
    "jobset_coscheduler_group_spread_seconds",
    "From a group's completeness until the last of its held binds was done",
    buckets=_FAST,
).observe
_requests = REGISTRY.counter(
    "jobset_coscheduler_requests_total",
    "Requests to the extender by verb and HTTP status code",
    "verb",
    "code",
)
client_refused = REGISTRY.counter(
    "jobset_coscheduler_refused_clients_total",
    "Requests of clients whose certificate has a name that is not allowed",
).inc
_preemptions = REGISTRY.counter(
    "jobset_coscheduler_preemptions_total",
    "The scheduler's questions about preemption: allowed, spared (waiting pods were kept from "
    "deletion, their group gave up its capacity), refused (a group that is too small, or for which "
    "pods were deleted in vain)",
    "outcome",
)

for _metric, _values in (
    (_groups, Stage),
    (_pods, PodState),
    (_rejections, Cause),
    (_preemptions, Outcome),
):
    for _value in _values:
        _metric.labels(_value.value)
for _reason in ("backoff", "limit", "other"):
    _quick_rejects.labels(_reason)
for _verb in VERBS:
    for _code in ("200", "503"):
        _requests.labels(_verb, _code)


def counts(groups: Mapping[Stage, int], pods: Mapping[PodState, int]) -> None:
    """Set the numbers of gangs and pods in each state."""
    for stage in Stage:
        _groups.labels(stage.value).set(groups.get(stage, 0))
    for state in PodState:
        _pods.labels(state.value).set(pods.get(state, 0))


def bound(seconds: float, *, ok: bool) -> None:
    """Record the API server's answer to a bind."""
    _bind_seconds.observe(seconds)
    if not ok:
        _bind_failures.inc()


def group_rejected(cause: Cause) -> None:
    """Record the refusal of a gang's held binds."""
    _rejections.labels(cause.value).inc()


def quick_reject(reason: Literal["backoff", "limit", "other"]) -> None:
    """Record a bind that was refused immediately."""
    _quick_rejects.labels(reason).inc()


def request(verb: str, code: int) -> None:
    """Record an answered request; ``verb`` is one of ``VERBS``."""
    _requests.labels(verb, str(code)).inc()


def preemption(outcome: Outcome) -> None:
    """Record an answer about preemption."""
    _preemptions.labels(outcome.value).inc()
