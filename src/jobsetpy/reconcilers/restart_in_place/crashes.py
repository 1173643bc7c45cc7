"""Containers that crash while the barrier is closed.

Those that the JobSet names and that the barrier waits for are charged to the budget: the workers,
containers that have to run before them, and the agent. Crashes of an injected container (of a
service mesh, for example) or of another sidecar do not count.
"""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.barrier import is_gathering, record_of
from jobsetpy.reconcilers.restart_in_place.budget import over_budget
from jobsetpy.reconcilers.restart_in_place.observed import Crash, Histogram
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.agent_containers import strangers
from jobsetpy.reconcilers.rules.backoff import UNPACED, Pace
from jobsetpy.reconcilers.rules.json_tree import child, objects, text


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


def has_crashed(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if there are crashes that the record does not have yet."""
    record, policy = record_of(jobset), jobset.spec.failure_policy
    if not pods.crashes and not record.crashes:
        return False
    allowed = 0 if policy is None else policy.max_restarts
    return worst_crash(jobset, pods).times > min(record.crashes, allowed) or any(
        crash.at[-1:] > record.crash_times[-1:] for crash in pods.crashes.values()
    )


def crash_loop(crash: Crash, epoch: int, pace: Pace) -> cond.DesiredCondition:
    """Return the failure of a JobSet of which a container crashes before each epoch."""
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"{over_budget(pace).message}: container {crash.container!r} of pod {crash.pod!r} was "
        f"restarted {crash.times} times before all pods had come to epoch {epoch}",
    )


def charged_containers(jobset: JobSet, replicated_job: str) -> frozenset[str]:
    """Return the names of the charged containers of a ReplicatedJob's pods."""
    for item in jobset.spec.replicated_jobs:
        if item.name == replicated_job:
            pod = child(item.template, "spec", "template", "spec")
            waited_for = [c for c in objects(pod, "initContainers") if c not in strangers(pod)]
            named = [*objects(pod, "containers"), *waited_for]
            return frozenset(text(container, "name") for _, container in named)
    return frozenset()
