"""Plan of one reconcile of a startup group: release, progress and reports (KEP-498).

Pod events do not cause reconciles by themselves: the ledger's counts show when the last pod has
started (:func:`needs_reconcile`). A gathering group is also checked at intervals, to report its
progress, and as a safety net.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.group_signal import (
    STARTED,
    WAITING,
    Progress,
    lifted_attempt,
    started_value,
    waiting_value,
)
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import AttemptKey, is_handled
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan, StatusChange
from jobsetpy.reconcilers.rules.status_draft import condition_change
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.startup_groups import release as decision
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.spec import attempt, startup_group_size

SAFETY_NET_S: Final = 30.0
"""Interval in seconds between checks of a gathering group without any event."""


@attrs.frozen(kw_only=True)
class ObservedGroup:
    """Observed state of a JobSet's startup group.

    Args:
        key: key of the JobSet.
        jobset: the JobSet; ``None`` if it is deleted.
        config_map: the ConfigMap with the group's name, if there is one.
        ledger: counts of started pods.
        jobs: returns all Jobs that the JobSet controls; called when the decision needs them.
        pods: returns pods with the JobSet's label; called when missing ones are reported.
        features: the feature gates.
    """

    key: ObjectKey
    jobset: JobSet | None
    config_map: ConfigMap | None = None
    ledger: StartLedger
    jobs: Callable[[], Iterable[Job]] = tuple
    pods: Callable[[], Iterable[ChildPod]] = tuple
    features: Features = attrs.field(factory=Features)


@attrs.frozen(kw_only=True)
class GroupMemory:
    """State of a group between reconciles; it may be lost.

    Args:
        uid: UID of the JobSet.
        attempt: the newest attempt of the group's Jobs.
        began: monotonic time at which it began to wait.
        released: the attempt up to which pods may continue.
        lagging: the version of the cached ConfigMap on which ``released`` was written.
        generation: generation of the JobSet for which ``size`` was computed; a spec may have
            thousands of templates.
        size: number of pods in the group.
        next_progress: next time to write the number of started pods, in seconds since ``began``;
            ``None`` if not computed yet.
        next_complaint: the same for reporting missing pods.
        reported: True if the JobSet's condition shows that the group gathers.
        foreign: True if a foreign ConfigMap was reported.
    """

    uid: str = ""
    attempt: int = 0
    began: float = 0.0
    released: int = 0
    lagging: str = ""
    generation: int = 0
    size: int = 0
    next_progress: float | None = None
    next_complaint: float = decision.COMPLAIN_AFTER_S
    reported: bool = False
    foreign: bool = False


@attrs.frozen
class SetSignal:
    """Write a value of the group's ConfigMap.

    Args:
        config_map: the ConfigMap on which this was decided.
        data: the value by key.
        memory: state to keep once it is written, regardless of the status write.
        released: the attempt that it releases; 0 if it only serves messages, and its write may
            fail.
    """

    config_map: ConfigMap
    data: Mapping[str, str]
    memory: GroupMemory
    released: int = 0


@attrs.frozen(kw_only=True)
class StartupGroupPlan(Plan[GroupMemory]):
    """Actions for a startup group.

    Args:
        signal: value to write before the status.
        waits: True if the group gathers.
    """

    signal: SetSignal | None = None
    waits: bool = False


def needs_reconcile(
    group: AttemptKey, jobset: JobSet | None, ledger: StartLedger, memory: GroupMemory | None
) -> bool:
    """Return True if enough pods have started for the group to be complete; O(1).

    The JobSet's own events cause reconciles too, which detect changes that are not visible here.

    Args:
        group: group with changed counts.
        jobset: JobSet of that name, if there is one.
        ledger: counts of started pods.
        memory: remembered state of the JobSet, if any.
    """
    if jobset is None or AttemptKey.of(jobset) != group:
        return False
    if memory is None:
        return ledger.started(group) >= startup_group_size(jobset)
    if memory.released >= ledger.attempt(group):
        return False
    stale = memory.generation != jobset.metadata.generation
    return stale or ledger.started(group) >= memory.size


def is_leader(pod: ChildPod) -> bool:
    """Return True for the first pod of a target's first Job (without indexes, every pod of it)."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if annotations.group_attempt is None or labels.job_index != "0":
        return False
    return annotations.completion_index in {None, "0"}


def plan_startup_group(observed: ObservedGroup, memory: GroupMemory, now: Now) -> StartupGroupPlan:
    """Release the group if all its pods have started; otherwise report its progress."""
    jobset, config_map = observed.jobset, observed.config_map
    if not is_handled(jobset):
        return StartupGroupPlan()
    group = AttemptKey.of(jobset)
    newest = observed.ledger.attempt(group)
    if not newest:
        return StartupGroupPlan()
    finished = cond.finished(jobset.status.conditions) is not None
    if finished or jobset.spec.suspend is True:
        # A group that gathered no longer does; others have no such condition to change.
        over = [decision.FINISHED] if finished else [decision.SUSPENDED, decision.GONE]
        return StartupGroupPlan(status=condition_change(jobset, now, *over))
    memory = _recall(observed, jobset, newest, memory, now)
    if memory.released >= newest:
        reported = cond.is_true(jobset.status.conditions, keys.GROUP_COMPLETED_CONDITION)
        # Right after a resumption, the Jobs are still of the attempt before it, and suspended.
        reported = reported or any(job.spec.suspend is True for job in observed.jobs())
        status = None if reported else _completed(jobset, memory, now)
        return StartupGroupPlan(memory=memory, status=status)
    started = observed.ledger.started(group)
    release = _release(observed, jobset) if started >= memory.size else 0
    if not release or config_map is None or not _is_own(jobset, config_map):
        return _wait(observed, jobset, memory, min(started, memory.size), now)
    version = config_map.metadata.resource_version
    memory = attrs.evolve(memory, released=release, lagging=version)
    data = {STARTED: started_value(jobset.metadata.uid, release)}
    return StartupGroupPlan(
        signal=SetSignal(config_map, data, memory, release),
        memory=memory,
        status=_completed(jobset, memory, now),
        result=Result.done(summary=f"released attempt {release}"),
    )


def lifted(jobset: JobSet, config_map: ConfigMap | None) -> int:
    """Return the attempt up to which a ConfigMap releases pods of the JobSet; 0 for none."""
    data = None if config_map is None else config_map.data
    return lifted_attempt((data or {}).get(STARTED), jobset.metadata.uid)


def _recall(
    observed: ObservedGroup, jobset: JobSet, newest: int, memory: GroupMemory, now: Now
) -> GroupMemory:
    """Return the state for the newest attempt, with the current value of the ConfigMap."""
    meta, config_map = jobset.metadata, observed.config_map
    if memory.uid != meta.uid:
        memory = GroupMemory(uid=meta.uid, attempt=newest, began=now.monotonic)
    elif memory.attempt != newest:
        fresh = GroupMemory(uid=meta.uid, attempt=newest, began=now.monotonic)
        memory = attrs.evolve(fresh, released=memory.released, lagging=memory.lagging)
    if config_map is None or config_map.metadata.resource_version != memory.lagging:
        memory = attrs.evolve(memory, released=lifted(jobset, config_map))
    if memory.generation != meta.generation or not meta.generation:
        size = decision.pods_to_start(jobset, observed.jobs())
        memory = attrs.evolve(memory, generation=meta.generation, size=size)
    return memory


def _release(observed: ObservedGroup, jobset: JobSet) -> int:
    """Return the attempt to release; 0 for none."""
    if jobset.spec.group_scheduling_config is None:
        # It was removed from the spec: no pod has to wait any longer.
        return attempt(jobset)
    return decision.released_attempt(jobset, observed.jobs(), observed.ledger, observed.features)


def _completed(jobset: JobSet, memory: GroupMemory, now: Now) -> StatusChange | None:
    if jobset.spec.group_scheduling_config is None:
        return None
    return condition_change(jobset, now, decision.completed(memory.size))


def _wait(
    observed: ObservedGroup, jobset: JobSet, memory: GroupMemory, started: int, now: Now
) -> StartupGroupPlan:
    """Report the progress of the group, and check again later."""
    elapsed, config_map = now.monotonic - memory.began, observed.config_map
    own = config_map is not None and _is_own(jobset, config_map)
    notices = () if config_map is None or own or memory.foreign else _foreign(config_map)
    memory = attrs.evolve(memory, foreign=memory.foreign or bool(notices))
    memory, data = _next_progress(jobset, memory, started, elapsed, now)
    at = memory.next_progress
    signal = (
        SetSignal(config_map, data, memory) if config_map is not None and own and data else None
    )
    status = None
    if elapsed >= memory.next_complaint:
        missing = decision.missing_pods(jobset, observed.jobs(), observed.pods())
        reported = decision.complaint(started, memory.size, missing, elapsed)
        status = condition_change(jobset, now, reported)
        memory = attrs.evolve(
            memory, reported=True, next_complaint=decision.next_complaint(elapsed)
        )
    elif not memory.reported and elapsed >= decision.TELL_AFTER_S:
        status = condition_change(jobset, now, decision.starting(started, memory.size))
        memory = attrs.evolve(memory, reported=True)
    tell = inf if memory.reported else decision.TELL_AFTER_S
    again = min(memory.next_complaint, elapsed + SAFETY_NET_S, tell, inf if at is None else at)
    return StartupGroupPlan(
        signal=signal,
        memory=memory,
        status=status,
        notices=notices,
        waits=True,
        result=Result.requeue_after(max(0.01, again - elapsed)),
    )


def _next_progress(
    jobset: JobSet, memory: GroupMemory, started: int, elapsed: float, now: Now
) -> tuple[GroupMemory, dict[str, str]]:
    """Return the value of the ConfigMap that reports the progress, if it is due, by key."""
    config = jobset.spec.group_scheduling_config
    timeout_s = None if config is None else config.timeout_after_seconds
    at = memory.next_progress
    at = decision.next_progress(0.0, timeout_s) if at is None else at
    if at is None or elapsed < at:
        return attrs.evolve(memory, next_progress=at), {}
    progress = Progress(started, memory.size, seconds_text(now.wall))
    value = waiting_value(jobset.metadata.uid, memory.attempt, progress)
    at = decision.next_progress(elapsed, timeout_s) or inf
    return attrs.evolve(memory, next_progress=at), {WAITING: value}


def _is_own(jobset: JobSet, config_map: ConfigMap) -> bool:
    """Return True if the ConfigMap is this JobSet's; others are not changed."""
    owner = config_map.metadata.controller
    return owner is not None and owner.uid == jobset.metadata.uid


def _foreign(config_map: ConfigMap) -> tuple[EmitEvent, ...]:
    owner = config_map.metadata.controller
    if owner is not None and owner.kind == JobSet.RESOURCE.kind:
        return ()  # That of a deleted JobSet of the same name is garbage-collected.
    message = (
        f"pods wait for the ConfigMap {config_map.metadata.name}, which belongs to "
        "something else; delete it, and it is recreated"
    )
    return (EmitEvent(cond.WARNING, keys.GROUP_FOREIGN_REASON, message),)
