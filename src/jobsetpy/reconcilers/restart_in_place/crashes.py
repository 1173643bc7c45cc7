"""Containers that crash while the barrier is closed."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.barrier import is_gathering
from jobsetpy.reconcilers.restart_in_place.budget import over_budget
from jobsetpy.reconcilers.restart_in_place.containers import charged_containers
from jobsetpy.reconcilers.restart_in_place.group import record_of
from jobsetpy.reconcilers.restart_in_place.observed import Crash, Histogram
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.backoff import UNPACED, Pace


def worst_crash(jobset: JobSet, pods: Histogram, pace: Pace = UNPACED) -> Crash:
    """Return the charged container that has crashed most since the barrier closed."""
    record = record_of(jobset)
    known = Crash(
        record.crashes, record.crashing_pod, record.crashing_container, record.crash_times
    )
    if not is_gathering(jobset, pods):
        return Crash(0, "", "")
    worst = _recent(known, pace)
    for (replicated_job, container), noted in pods.crashes.items():
        crash = _recent(noted, pace)
        worse = (crash.times, crash.at[-1:]) > (worst.times, worst.at[-1:])
        if worse and container in charged_containers(jobset, replicated_job):
            worst = crash
    return worst


def _recent(crash: Crash, pace: Pace) -> Crash:
    """Return the crashes of a container that count now."""
    if not pace.window_s:
        return crash._replace(at=())
    at = pace.recent(crash.at)
    return crash._replace(times=len(at), at=at)


def crash_loop(crash: Crash, epoch: int, pace: Pace) -> cond.DesiredCondition:
    """Return the failure of a JobSet of which a container crashes before each epoch."""
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"{over_budget(pace).message}: container {crash.container!r} of pod {crash.pod!r} was "
        f"restarted {crash.times} times before all pods had come to epoch {epoch}",
    )
