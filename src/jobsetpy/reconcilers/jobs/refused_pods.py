"""Condition ``PodsRefused``: pods that the API server rejects, and the reason.

A quota, a LimitRange or an admission policy rejects a pod; the Job controller reports it by an
event ``FailedCreate`` of the Job and retries with growing delays. The JobSet only waits. So when a
Job has been missing pods for a while, its events are read and the last one is repeated in a
condition of the JobSet.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.jobs.counters import lacks_pods
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import is_handled
from jobsetpy.reconcilers.rules.plan import Plan, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now

GRACE_S: Final = 10.0
"""Time in seconds for which a Job may be missing pods before its events are read."""
LOOK_EVERY_S: Final = 30.0
"""Interval in seconds between reads of events, doubled each time up to ``LONGEST_S``."""
LONGEST_S: Final = 300.0
RECENT: Final = timedelta(minutes=15)
"""Maximum age of an event: the Job controller retries more often than this."""
MESSAGE_MAX: Final = 1024

_POD: Final = re.compile(r'pods? "[^"]*"')


@attrs.frozen
class RefusalMemory:
    """State kept of a JobSet that is missing pods; all of it may be lost.

    Args:
        uid: UID of the JobSet.
        looks: number of times its Jobs' events were read.
        not_before: time of the next read, on the monotonic clock.
    """

    uid: str = ""
    looks: int = 0
    not_before: float = 0.0


@attrs.frozen(kw_only=True)
class ObservedRefusals:
    """Input of one plan: a JobSet and its Jobs.

    Args:
        jobset: the JobSet; ``None`` if it is gone.
        jobs: its Jobs.
        events: events ``FailedCreate`` of the Job that the plan named; ``None`` if not read.
    """

    jobset: JobSet | None
    jobs: tuple[Job, ...] = ()
    events: tuple[Event, ...] | None = None


@attrs.frozen(kw_only=True)
class RefusalPlan(Plan[RefusalMemory]):
    """Result of one plan.

    Args:
        look_at: Job whose events are to be read before planning again; ``None`` for none.
    """

    look_at: Job | None = None


def plan_refusals(observed: ObservedRefusals, memory: RefusalMemory, now: Now) -> RefusalPlan:
    """Return the change of the condition, or the Job whose events have to be read first."""
    jobset = observed.jobset
    if not is_handled(jobset) or cond.finished(jobset.status.conditions) is not None:
        return RefusalPlan()
    missing = sorted((job for job in observed.jobs if lacks_pods(job)), key=_name)
    if not missing:
        over = cond.DesiredCondition(
            keys.PODS_REFUSED_CONDITION, False, keys.PODS_CREATED_REASON, "all pods were created"
        )
        return RefusalPlan(status=_change(jobset, over, now))
    if memory.uid != jobset.metadata.uid:
        memory = RefusalMemory(jobset.metadata.uid, not_before=now.monotonic + GRACE_S)
    if now.monotonic < memory.not_before:
        return RefusalPlan(memory=memory, result=_again(memory, now))
    if observed.events is None:
        return RefusalPlan(memory=memory, look_at=missing[0])
    pause_s = min(LONGEST_S, LOOK_EVERY_S * 2 ** min(memory.looks, 10))
    memory = attrs.evolve(memory, looks=memory.looks + 1, not_before=now.monotonic + pause_s)
    recent = [
        each
        for each in observed.events
        if each.last_seen is not None and each.last_seen > now.wall - RECENT
    ]
    if not recent:
        return RefusalPlan(memory=memory, result=_again(memory, now))
    last = max(recent, key=lambda each: each.last_seen or now.wall)
    # Each attempt has another pod name, which would change the condition every time.
    reason = _POD.sub("a pod", last.note)[:MESSAGE_MAX]
    refused = cond.DesiredCondition(
        keys.PODS_REFUSED_CONDITION,
        True,
        keys.PODS_REFUSED_REASON,
        f"pods of job {_name(missing[0])} are refused: {reason}",
        cond.WARNING,
    )
    return RefusalPlan(
        memory=memory, status=_change(jobset, refused, now), result=_again(memory, now)
    )


def _name(job: Job) -> str:
    return job.metadata.name


def _again(memory: RefusalMemory, now: Now) -> Result:
    return Result.requeue_after(memory.not_before - now.monotonic)


def _change(jobset: JobSet, wanted: cond.DesiredCondition, now: Now) -> StatusChange:
    draft = StatusDraft(jobset.status, now.wall)
    if draft.set(wanted, announce=False) and wanted.status:
        draft.event(wanted.event_type, wanted.type, wanted.message)
    return draft.change()
