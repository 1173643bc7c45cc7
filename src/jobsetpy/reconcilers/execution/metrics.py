"""Metrics of JobSets and of group scheduling.

No label names an object, since the number of objects over time is unlimited; the two compatible
counters that must (``jobset_failed_total``, ``jobset_completed_total``) are bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobsetpy.api import keys
from jobsetpy.observability.metrics import MetricRegistry
from jobsetpy.reconcilers.execution.owners import OWNERS, OwnedCounter
from jobsetpy.reconcilers.failure_policy.decision import DECISIONS
from jobsetpy.reconcilers.rules.time_accounting import ACTIVITIES, Owner, Total, Totals

REGISTRY: Final = MetricRegistry()
"""Registry served by a manager that runs these reconcilers."""

RestartKind = Literal["recreate", "replicated_job", "job", "in_place"]
RestartPhase = Literal["detect", "deprecate", "gather", "wait", "lift"]

_PHASES: Final[tuple[RestartPhase, ...]] = ("detect", "deprecate", "gather", "wait", "lift")

_STEP_BUCKETS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

_RESTART_BUCKETS: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600),
)

_GROUP_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)

_COST_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

MAX_JOBSET_SERIES: Final = 10_000
"""Maximum number of series that name a JobSet; the least recently changed one is dropped."""

_NAMED: Final = ("jobset_name", "namespace")
_finished: Final = {
    end: REGISTRY.counter(
        f"jobset_{end.lower()}_total", f"The total number of {end.lower()} JobSets", *_NAMED
    )
    for end in (keys.FAILED_CONDITION, keys.COMPLETED_CONDITION)
}
_named_series: OrderedDict[tuple[str, str], None] = OrderedDict()

deadline_exceeded = REGISTRY.counter(
    "jobset_active_deadline_exceeded_total",
    "JobSets that failed because a run exceeded their activeDeadlineSeconds",
).inc
_backend = REGISTRY.gauge(
    "jobset_coscheduling_backend",
    "Scheduler of groups that new Jobs are created for: podgroup (of kube-scheduler), coscheduler, "
    "labels (none that is known); 1 for the current one",
    "backend",
)
_restarts = REGISTRY.counter(
    "jobset_restarts_total",
    "Restarts decided: recreate (all Jobs), replicated_job (all Jobs of one ReplicatedJob), job "
    "(one Job), in_place (all pods keep their place)",
    "kind",
)
_restart_seconds = REGISTRY.histogram(
    "jobset_restart_seconds",
    "Restarts that led to running workers, from the first sign of the failure until they ran",
    "kind",
    buckets=_COST_BUCKETS,
)
_restart_phases = REGISTRY.counter(
    "jobset_restart_phase_seconds_total",
    "The seconds of jobset_restart_seconds by phase: detect (until it was decided to restart), "
    "gather (until all pods were there again); of restarts in place, deprecate (until no pod of an "
    "older epoch ran) before, wait (until the back-off was over) and lift (of the barrier) after",
    "kind",
    "phase",
)
_restart_pod_seconds = OwnedCounter(
    "jobset_restart_pod_seconds",
    "What restarts cost: their seconds times the pods that started over; those included that "
    "another restart, a suspension or the end of the JobSet came before",
    "kind",
    ("recreate", "replicated_job", "job", "in_place"),
)
REGISTRY.register(_restart_pod_seconds)
_failure_decisions = REGISTRY.counter(
    "jobset_failure_policy_decisions_total",
    "What failure policies decided: the action applied (once for each Job or ReplicatedJob that "
    "it is applied to), ReachedMaxRestarts in place of one that would exceed maxRestarts, or "
    "NoFailurePolicy",
    "action",
)
failure_decided: Final = {each: _failure_decisions.labels(each).inc for each in DECISIONS}
"""Functions by decision of a failure policy; called once the status was written."""
_in_place_causes = REGISTRY.counter(
    "jobset_in_place_restart_causes_total",
    "In-place restarts by what was seen first: container_failed, pod_failed, pod_deleted, "
    "pods_missing (for some seconds), worker_failed, worker_hung or log_rule (as its supervisor "
    "says), or "
    "pod_restarted (a pod at a new epoch); with the exit code, where it is known",
    "cause",
    "exit_code",
)
in_place_lost_steps = REGISTRY.histogram(
    "jobset_in_place_restart_lost_steps",
    "Steps that a run did again because the checkpoint was older than the failure; known when the "
    "run is over, and only of workers that write their step (JOBSET_PROGRESS_FILE)",
    buckets=_STEP_BUCKETS,
).observe
in_place_first_step = REGISTRY.histogram(
    "jobset_in_place_restart_first_step_seconds",
    "From the first sign of a failure to the first step after it, of the same workers",
    buckets=_RESTART_BUCKETS,
).observe
_in_place_run_seconds = OwnedCounter(
    "jobset_in_place_run_seconds",
    "The time of runs that a restart in place has ended, and of that restart, by what it went "
    "into: missing (the share of seats without a pod), and of the others starting (until the first "
    "step), repeating (steps that a run before had done), training (new steps); restarting (from "
    "the first sign of the failure until workers ran again); only of workers that write their step "
    "(JOBSET_PROGRESS_FILE)",
    "use",
    ("missing", "starting", "repeating", "training", "restarting"),
)
REGISTRY.register(_in_place_run_seconds)
in_place_missing_pods = REGISTRY.gauge(
    "jobset_in_place_restart_missing_pods", "Pods that barriers wait for, over all JobSets"
).set
_ready_spares = REGISTRY.gauge(
    "jobset_in_place_restart_ready_spares", "Spares that could take a seat, over all JobSets"
)
_exhausted_jobs = REGISTRY.gauge(
    "jobset_in_place_restart_jobs_without_spare",
    "Jobs with spares of which none is ready, over all JobSets",
)
_missing_seats = REGISTRY.gauge(
    "jobset_in_place_restart_missing_seats",
    "Seats that groups do without because their pods are missing, over all JobSets",
)
in_place_seats_taken = REGISTRY.counter(
    "jobset_in_place_restart_seats_taken_total", "Seats of lost pods that spares have taken over"
).inc
in_place_stalled = REGISTRY.gauge(
    "jobset_in_place_restarts_stalled",
    "JobSets whose barrier has been closed for longer than inPlaceRestart.stalledAfter",
).set
jobset_ready = REGISTRY.histogram(
    "jobset_time_to_ready_seconds",
    "From the creation, or the latest restart or resume, of a JobSet until all its Jobs are ready",
    buckets=_RESTART_BUCKETS,
).observe
_followers = REGISTRY.counter(
    "jobset_exclusive_placement_followers_total",
    "Followers under exclusive placement: released (sent to their leader's domain), evicted "
    "(deleted because they were elsewhere)",
    "action",
)
followers_released = _followers.labels("released").inc
followers_evicted = _followers.labels("evicted").inc
group_released = REGISTRY.histogram(
    "jobset_group_gather_seconds",
    "From the first Job of a group's attempt until all its pods had started and were released",
    buckets=_GROUP_BUCKETS,
).observe
groups_waiting = REGISTRY.gauge(
    "jobset_groups_waiting", "Groups of which some pod has not started, so that all others wait"
).set

lost_pods_deleted = REGISTRY.counter(
    "jobset_lost_node_pods_deleted_total",
    "Pods deleted by force because their node was unreachable for longer than the deadline",
).inc

_successors = REGISTRY.counter(
    "jobset_successor_pods_total",
    "Pods that the manager creates in place of failed ones, by result: created, or refused by the "
    "API server",
    "result",
)
successor_created = _successors.labels("created").inc
successor_refused = _successors.labels("refused").inc

silent_pods = REGISTRY.counter(
    "jobset_in_place_silent_pods_total",
    "Pods whose heartbeats the agents on two other nodes no longer received",
).inc


class _Activities(Collector):
    """Collector of JobSets' activities, computed when scraped: time continues without changes."""

    def __init__(self, totals: Callable[[], Totals]) -> None:
        self._totals = totals

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield one sample for each activity, and each owner if they are labelled."""
        jobsets, seconds, pod_seconds = self._families()
        totals: dict[tuple[Owner, str], Total]
        totals = {} if OWNERS.labels else {((), name): _NOTHING for name in ACTIVITIES}
        totals.update(self._totals())
        for (owner, name), total in totals.items():
            labels = [*owner, name]
            jobsets.add_metric(labels, total.jobsets)
            seconds.add_metric(labels, total.seconds)
            pod_seconds.add_metric(labels, total.pod_seconds)
        yield from (jobsets, seconds, pod_seconds)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, CounterMetricFamily, CounterMetricFamily]:
        return (
            GaugeMetricFamily(
                "jobset_activity_jobsets",
                "JobSets that have not ended, by what they do: running (all their pods are "
                "ready), restarting, or wait for: suspended (to be resumed), queue (Kueue's), "
                "gates (of coscheduling), barrier (pods that hold it for long, or have not "
                "started), backoff, dependencies (other ReplicatedJobs), lost_node (pods that are "
                "deleted on a node that does not answer), missing_pods (that a quota or a webhook "
                "refuses, or that are not replaced yet), not_ready (pods that are scheduled or "
                "start)",
                labels=[*OWNERS.labels, "activity"],
            ),
            CounterMetricFamily(
                "jobset_activity_seconds",
                "Seconds that JobSets have spent, by what they did (jobset_activity_jobsets)",
                labels=[*OWNERS.labels, "activity"],
            ),
            CounterMetricFamily(
                "jobset_activity_pod_seconds",
                "The same, times the pods that each of them asks for",
                labels=[*OWNERS.labels, "activity"],
            ),
        )


_NOTHING: Final = Total()

for _kind in ("recreate", "replicated_job", "job", "in_place"):
    _restarts.labels(_kind)
    _restart_seconds.labels(_kind)
    for _phase in _PHASES if _kind == "in_place" else ("detect", "gather"):
        _restart_phases.labels(_kind, _phase)
_in_place_causes.labels("pod_restarted", "")


def jobset_finished(end: str, namespace: str, name: str) -> None:
    """Count a JobSet that has ended. Call it after the status was written: each counts once.

    Args:
        end: ``Completed`` or ``Failed``.
        namespace: namespace of the JobSet.
        name: its name.
    """
    series = (name, namespace)
    _named_series[series] = None
    _named_series.move_to_end(series)
    if len(_named_series) > MAX_JOBSET_SERIES:
        _drop(*_named_series.popitem(last=False)[0])
    _finished[end].labels(*series).inc()


def forget_jobset(namespace: str, name: str) -> None:
    """Drop the series that name a deleted JobSet. O(1), and harmless for unknown ones."""
    if (name, namespace) in _named_series:
        del _named_series[name, namespace]
        _drop(name, namespace)


def _drop(name: str, namespace: str) -> None:
    for counter in _finished.values():
        with suppress(KeyError):  # it may have neither; older releases then raise
            counter.remove(name, namespace)


def restarted(kind: RestartKind, count: int = 1) -> None:
    """Count restarts whose status was written."""
    _restarts.labels(kind).inc(count)


def restart_over(
    kind: RestartKind,
    seconds: float,
    pods: int,
    phases: Mapping[RestartPhase, float] | None,
    owner: Owner = (),
) -> None:
    """Record a completed restart whose status was written.

    Args:
        kind: kind of the restart.
        seconds: seconds from the first sign of the failure to the end.
        pods: number of restarted pods.
        phases: parts of the seconds by phase; ``None`` if workers do not run now.
        owner: owner of the JobSet.
    """
    _restart_pod_seconds.inc(owner, kind, seconds * pods)
    if phases is None:
        return
    _restart_seconds.labels(kind).observe(seconds)
    for phase, each in phases.items():
        _restart_phases.labels(kind, phase).inc(each)


def activity_registry(totals: Callable[[], Totals]) -> MetricRegistry:
    """Return a registry of JobSets' activities and their durations.

    Args:
        totals: returns the totals by owner and activity; called at each scrape.
    """
    registry = MetricRegistry()
    registry.register(_Activities(totals))
    return registry


def in_place_restart_began(cause: str = "pod_restarted", exit_code: int | None = None) -> None:
    """Count the beginning of a restart in place; also in ``jobset_restarts_total``.

    Args:
        cause: first detected cause, a value of ``restart_in_place.failures.cause.FailureKind``.
        exit_code: exit code of the failed container, ``None`` if unknown.
    """
    # Kubelets report 0 to 255; any other value in a status shares one series.
    known = "" if exit_code is None else str(exit_code) if 0 <= exit_code <= 255 else "other"
    _in_place_causes.labels(cause, known).inc()
    restarted("in_place")


def in_place_time_spent(use: str, seconds: float, owner: Owner) -> None:
    """Record the seconds of one use of time in a completed run, or the restart after it."""
    _in_place_run_seconds.inc(owner, use, seconds)


def in_place_spares(ready: int, exhausted: int, missing: int) -> None:
    """Set the numbers of ready spares, of Jobs that have none left, and of missing seats."""
    _ready_spares.set(ready)
    _exhausted_jobs.set(exhausted)
    _missing_seats.set(missing)


def coscheduling_backend(current: str) -> None:
    """Record the backend of coscheduling."""
    for each in keys.COSCHEDULING_BACKENDS[1:]:
        _backend.labels(each).set(each == current)
