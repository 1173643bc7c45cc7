"""When a group restarts in place, and when its barrier lifts (KEP-467).

Every pod of the group carries the epoch it has come to. When all are at one epoch, that epoch is
*synced* and its workers may run. Otherwise all epochs before the newest are *deprecated*, and pods
at one of those restart. The synced epoch itself is deprecated as soon as a failure is seen, before
the failed pod has come to the next one: an agent that starts joins one above both numbers. The
decision needs only a histogram of epochs, never the pods themselves.

Epochs start at 1. Both numbers only ever grow. What restarts cost is in ``epoch_accounts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.durations import in_words
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, RestartPacing
from jobsetpy.reconcilers.restart_in_place.barrier_state import (
    INVALID,
    is_waiting,
    next_epoch,
    parse_epoch,
)
from jobsetpy.reconcilers.restart_in_place.containers import charged_containers
from jobsetpy.reconcilers.restart_in_place.epoch_charges import (
    EpochCharge,
    account,
    on_crash,
    on_deprecate,
    on_sync,
    record_of,
    renewed,
)
from jobsetpy.reconcilers.restart_in_place.failures import Cause, FailureSignal
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.actions import FAIL_JOB
from jobsetpy.reconcilers.rules.backoff import (
    UNPACED,
    Pace,
    restarts_in_place,
    within,
)
from jobsetpy.reconcilers.rules.history import History
from jobsetpy.reconcilers.rules.membership import is_ours, parse_count
from jobsetpy.reconcilers.rules.plan import EmitEvent

LEAVE_OFTEN: Final = 3
"""Minimum number of restarts for leaving pods within :data:`LEAVE_OFTEN_S` that is reported."""

LEAVE_OFTEN_S: Final = 3600.0


@lru_cache(maxsize=256)  # asked several times for each event of a pod; a group is at two or three
def parse_report(text: str | None, is_attempt: bool) -> int:
    """What an agent reports as an epoch; an attempt of the Go project's counts from 0."""
    if not is_attempt:
        return parse_epoch(text)
    epoch = INVALID if text is None or parse_count(text) is None else int(text) + 1
    return epoch if epoch <= keys.MAX_EPOCH else INVALID


@attrs.frozen
class InvalidEpoch:
    """A pod whose annotation is no epoch, or no attempt."""

    pod_name: str
    pod_uid: str
    text: str
    is_attempt: bool = False


class Crash(NamedTuple):
    """A container of a pod that failed so often before the barrier lifted.

    The one restart of every container that belongs to a restart of the group is not counted. ``at``
    is when, of those within the window, if there is one.
    """

    times: int
    pod: str
    container: str
    at: tuple[datetime, ...] = ()


@attrs.frozen
class Histogram:
    """The pods of a JobSet's current Jobs, counted.

    Args:
        epochs: how many live pods are at each epoch; no zero counts.
        succeeded: how many pods have left the group by succeeding.
        first: a pod that was seen early at each epoch, as far as that is known.
        restarts: how many live pods have had a container restarted so often, whatever for, for
            each number above 0.
        lost: how many pods failed Jobs have taken with them, besides those that succeeded.
        leaving: how many of those that are at an epoch are being deleted.
        crashes: the worst crash since the barrier closed, by ReplicatedJob and container; those of
            containers that the JobSet does not name as well.
        attempts: how many live pods have an agent of the Go project, which reports attempts.
        progress: the newest epoch with which a pod has reported progress before it, and the
            highest step; -1 if it has told of no number.
        ended: the newest epoch with which a pod has reported the end of its worker.
        joined: the epoch that was synced when the latest pod came that had reported none; 0 if that
            is not known.
    """

    epochs: Mapping[int, int] = attrs.field(factory=dict)
    succeeded: int = 0
    first: Mapping[int, str] = attrs.field(factory=dict)
    restarts: Mapping[int, int] = attrs.field(factory=dict)
    lost: int = 0
    leaving: int = 0
    crashes: Mapping[tuple[str, str], Crash] = attrs.field(factory=dict)
    attempts: int = 0
    progress: tuple[int, int] = (0, -1)
    ended: int = 0
    joined: int = 0


@attrs.frozen
class EpochDecision:
    """What the status has to become.

    Args:
        synced: new ``syncedEpoch``, or ``None`` to leave it.
        deprecated: new ``deprecatedEpoch``, or ``None`` to leave it.
        record: new ``inPlaceRestart``, or ``None`` to leave it.
        conditions: to be set, by the update rule of conditions, without events.
        failed: the condition that ends the JobSet: its budget of restarts is spent. Setting it
            has an event of its own.
        restart: a restart in place begins or ends with this, rather than a gathering of new pods.
        renewed: what begins or ends with it otherwise, and makes running pods restart as well.
        events: what else to tell once the change is stored.
        pacing: new ``restartPacing``, or ``None`` to leave it.
        wait_s: all pods have come, and their workers have to wait so long.
    """

    synced: int | None = None
    deprecated: int | None = None
    record: InPlaceRestartStatus | None = None
    conditions: tuple[cond.DesiredCondition, ...] = ()
    failed: cond.DesiredCondition | None = None
    restart: bool = False
    renewed: str = ""
    events: tuple[EmitEvent, ...] = ()
    pacing: RestartPacing | None = None
    wait_s: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether nothing has to be written."""
        return (
            self.synced is None
            and self.deprecated is None
            and self.failed is None
            and self.record is None
        )


NOTHING: Final = EpochDecision()


def takes_part(jobset: JobSet) -> bool:
    """Whether restarts in place are on for a JobSet that is alive and running."""
    return (
        jobset.spec.restarts_in_place
        and jobset.metadata.deletion_timestamp is None
        and jobset.spec.suspend is not True
        and is_ours(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def expected_pods(jobset: JobSet) -> int:
    """How many pods the group has: replicas times parallelism, over all ReplicatedJobs."""
    total = 0
    for item in jobset.spec.replicated_jobs:
        spec = item.template.get("spec")
        parallelism = spec.get("parallelism") if isinstance(spec, Mapping) else None
        # The API server's default is 1.
        total += item.replicas * (parallelism if isinstance(parallelism, int) else 1)
    return total


def group_size(jobset: JobSet, pods: Histogram) -> int:
    """How many pods the group has to have now, those that succeeded included.

    A failed Job is recreated as a rule, and the group waits for its new pods. Only where a rule of
    the failure policy may leave Jobs failed, the group goes on without their pods.
    """
    if pods.lost and leaves_jobs_failed(jobset):
        return expected_pods(jobset) - pods.lost
    return expected_pods(jobset)


def leaves_jobs_failed(jobset: JobSet) -> bool:
    """Whether a rule of the failure policy may leave Jobs failed, instead of making them anew."""
    policy = jobset.spec.failure_policy
    return policy is not None and any(rule.action == FAIL_JOB for rule in policy.rules)


def needs_decision(jobset: JobSet, pods: Histogram, cause: Cause | None = None) -> bool:
    """Whether the counts of a group that takes part ask for another status, asked at each event.

    A budget spent by others than the pods shows in the JobSet, whose own events lead to a decision.
    """
    expected = group_size(jobset, pods)
    synced, deprecated = _move(jobset, pods, cause, expected)
    if synced is not None or deprecated is not None:
        return True
    record, policy = record_of(jobset), jobset.spec.failure_policy
    if pods.crashes or record.crashes:
        allowed = 0 if policy is None else policy.max_restarts
        if _worst_crash(jobset, pods).times > min(record.crashes, allowed):
            return True
        if any(crash.at[-1:] > record.crash_times[-1:] for crash in pods.crashes.values()):
            return True
    return _has_shrunk(jobset, pods, expected)


def decide_epochs(
    jobset: JobSet, pods: Histogram, cause: Cause | None = None, pace: Pace = UNPACED
) -> EpochDecision:
    """The rule of restarts in place.

    * All expected pods, less those that succeeded, at one epoch, and none of them being deleted:
      that epoch is synced.
    * Otherwise every epoch before the newest is deprecated, and the synced one after a failure.
    * More restarts that count than ``maxRestarts``: the JobSet fails.
    * After restarts in quick succession an epoch is synced only after a pause.

    Args:
        jobset: with the numbers decided so far.
        pods: of the current attempt's Jobs; pods of other Jobs, failed ones, and those without a
            usable annotation are not in its epochs.
        cause: a failure that was seen before the failed pod's agent told of it.
        pace: how restarts are delayed, and within what time they are counted.
    """
    policy = jobset.spec.failure_policy
    if policy is None or not takes_part(jobset):
        return NOTHING
    status = jobset.status
    expected = group_size(jobset, pods)
    newest = max(pods.epochs, default=0)
    synced, deprecated = _move(jobset, pods, cause, expected)
    opened = synced or (deprecated or 0) + 1
    early = opened > max(newest, status.synced_epoch)
    remade = cause is not None and cause.epoch + 1 == opened and not cause.counted
    charged = account(jobset, max(newest, opened, status.synced_epoch), expected, remade=remade)
    if pace.used(status, charged.spent) > policy.max_restarts:
        before = account(jobset, status.synced_epoch, expected).spent
        if early and pace.used(status, before) <= policy.max_restarts:
            # Ending the JobSet is not a matter of tenths of a second: its agent will tell.
            return NOTHING
        return EpochDecision(failed=_over_budget(pace))
    crash = _worst_crash(jobset, pods, pace)
    if crash.times > policy.max_restarts:
        return EpochDecision(
            failed=_crash_loop(crash, next_epoch(jobset.status, pods.epochs), pace)
        )
    if synced is not None:
        stuck = _stuck(jobset, charged, pods)
        if stuck is not None:
            return stuck
        begun = _begun(jobset, charged, pace)
        if pace.wait_s(begun):
            if restarts_in_place(status):
                return EpochDecision(wait_s=pace.wait_s(begun))
            # All have come at once. That they wait, and until when, is written down.
            return _deprecate(jobset, charged, synced - 1, pods, cause, pace=pace)
        return _sync(jobset, charged, expected, pods, begun, pace)
    if deprecated is not None:
        return _deprecate(jobset, charged, deprecated, pods, cause, pace=pace)
    record = record_of(jobset)
    if crash.times > record.crashes or crash.at[-1:] > record.crash_times[-1:]:
        # The next manager must not begin to count anew.
        return EpochDecision(record=on_crash(jobset, *crash))
    if _has_shrunk(jobset, pods, expected):
        return EpochDecision(record=evolve(record, pods=expected))
    return NOTHING


def _stuck(jobset: JobSet, charged: EpochCharge, pods: Histogram) -> EpochDecision | None:
    """The end of a JobSet whose restarts, so many in a row, have led to no new step."""
    allowed = max_without_progress(jobset)
    record = with_progress(jobset, record_of(jobset), charged, pods)
    without = record.restarts_without_progress
    if not allowed or without < allowed or not charged.counts:
        return None
    highest = record.highest_step
    reached = "no step was ever reached" if highest is None else f"step {highest} was the highest"
    restarts = f"{without} {'restart' if without == 1 else 'restarts'} in a row"
    message = f"jobset failed due to {restarts} without a new step: {reached}"
    return EpochDecision(record=record, failed=cond.failed(keys.NO_PROGRESS_REASON, message))


def with_progress(
    jobset: JobSet, record: InPlaceRestartStatus, charged: EpochCharge, pods: Histogram
) -> InPlaceRestartStatus:
    """The record to store with an epoch that is about to be synced, with its pods' progress.

    Touches count as progress until there has been a step: a program either tells of steps or not.
    A run counts as one without progress only if some pod has reported on it; where no step was
    reported, only if no pod is new, as the one that reports steps may have been lost.
    """
    epoch, step = pods.progress
    shown = epoch == charged.epoch
    complete = pods.joined < jobset.status.synced_epoch
    known = shown or (pods.ended == charged.epoch and complete)
    best = record.highest_step
    new = shown and (best is None or step > best)
    if new:
        highest = best if step < 0 else step
        return evolve(record, highest_step=highest, restarts_without_progress=0)
    if not known or not charged.counts or not (max_without_progress(jobset) or best is not None):
        return record
    without = min(record.restarts_without_progress + 1, keys.INT32_MAX)
    return evolve(record, restarts_without_progress=without)


def max_without_progress(jobset: JobSet) -> int:
    """How many restarts in a row without a new step fail a JobSet; 0 for any number."""
    text = jobset.metadata.annotations.get(keys.MAX_WITHOUT_PROGRESS_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0


def _begun(jobset: JobSet, charged: EpochCharge, pace: Pace) -> RestartPacing | None:
    """How the restart that opens an epoch is delayed, which may be written down or not yet."""
    status = jobset.status
    if charged.renewed or status.synced_epoch == 0:
        # Nothing has failed in place. If Jobs were recreated, that has been delayed.
        known = status.restart_pacing
        return None if known is None else evolve(known, not_before=None)
    return status.restart_pacing if restarts_in_place(status) else pace.begin(status)


def missing_pods_failure(missing: str) -> cond.DesiredCondition:
    """The end of a JobSet that lacks pods and has no restarts left to go on with others."""
    return cond.failed(keys.REACHED_MAX_RESTARTS_REASON, f"{_OVER_BUDGET.message}: {missing}")


def _crash_loop(crash: Crash, epoch: int, pace: Pace) -> cond.DesiredCondition:
    """The end of a JobSet that a container keeps from coming to an epoch."""
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"{_over_budget(pace).message}: container {crash.container!r} of pod {crash.pod!r} was "
        f"restarted {crash.times} times before all pods had come to epoch {epoch}",
    )


_OVER_BUDGET: Final = cond.failed(
    keys.REACHED_MAX_RESTARTS_REASON, "jobset failed due to reaching max number of restarts"
)


def has_missing_pods(jobset: JobSet, pods: Histogram) -> bool:
    """Whether workers run without all of their group, though nobody asked for another group."""
    if is_waiting(jobset.status, pods.epochs):
        return False
    expected = group_size(jobset, pods)
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    return present < expected - pods.succeeded and not renewed(jobset, expected)


def conditions_to_clear(jobset: JobSet) -> tuple[cond.DesiredCondition, ...]:
    """What is no longer true of a JobSet that does not take part any more, or only now ends."""
    conditions = jobset.status.conditions
    end = cond.finished(conditions)
    if end is not None:
        completed = end.type == keys.COMPLETED_CONDITION
        reason = keys.JOBSET_COMPLETED_REASON if completed else keys.JOBSET_FAILED_REASON
        message = "jobset completed" if completed else "jobset failed"
    elif jobset.spec.suspend is True:
        reason, message = keys.JOBSET_SUSPENDED_REASON, "jobset is suspended"
    else:
        return ()
    return tuple(
        cond.DesiredCondition(kind, False, reason, message)
        for kind in (keys.RESTARTING_IN_PLACE_CONDITION, keys.BARRIER_STALLED_CONDITION)
        if cond.is_true(conditions, kind)
    )


def _move(
    jobset: JobSet, pods: Histogram, cause: Cause | None, expected: int
) -> tuple[int | None, int | None]:
    """The new synced and deprecated epochs; at most one of them is there."""
    status = jobset.status
    over = status.deprecated_epoch
    if pods.epochs:
        newest = max(pods.epochs)
        if len(pods.epochs) == 1 and pods.epochs[newest] == expected - pods.succeeded:
            # A pod that is being deleted may still come along; but its worker would end at once,
            # and with the next pod in its place everything would start over.
            if newest > status.synced_epoch and not pods.leaving:
                return newest, None
        else:
            over = max(over, newest - 1)
    if cause is not None and cause.epoch == status.synced_epoch:
        over = max(over, cause.epoch)
    return None, over if over > status.deprecated_epoch else None


def _worst_crash(jobset: JobSet, pods: Histogram, pace: Pace = UNPACED) -> Crash:
    """The container that has crashed most since the barrier closed, of those that are charged."""
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
    """What counts of a container's crashes now."""
    if not pace.window_s:
        return crash._replace(at=())
    at = pace.recent(crash.at)
    return crash._replace(times=len(at), at=at)


def is_gathering(jobset: JobSet, pods: Histogram) -> bool:
    """Whether no worker runs: the group comes together, at first or after a restart has begun."""
    return not pods.epochs or jobset.status.deprecated_epoch >= jobset.status.synced_epoch


def _has_shrunk(jobset: JobSet, pods: Histogram, expected: int) -> bool:
    """Whether the group runs on with fewer pods than its record says: no new epoch will tell."""
    known = record_of(jobset).pods
    return (
        known not in {0, expected}
        and len(pods.epochs) == 1
        and pods.epochs.get(jobset.status.synced_epoch) == expected - pods.succeeded
    )


def _over_budget(pace: Pace) -> cond.DesiredCondition:
    """The end of a JobSet whose restarts are used up."""
    if not pace.window_s:
        return _OVER_BUDGET
    return cond.failed(
        _OVER_BUDGET.reason, f"{_OVER_BUDGET.message} within {in_words(pace.window_s)}"
    )


def _deprecate(
    jobset: JobSet,
    charged: EpochCharge,
    deprecated: int,
    pods: Histogram,
    cause: Cause | None,
    *,
    pace: Pace,
) -> EpochDecision:
    new = deprecated + 1
    if not new > jobset.status.synced_epoch > 0:
        return EpochDecision(deprecated=deprecated)  # nobody runs yet, or all have long run
    record = on_deprecate(jobset, charged, max(pods.restarts, default=0))
    behind = sum(count for epoch, count in pods.epochs.items() if epoch < new)
    if charged.renewed:
        events: tuple[EmitEvent, ...] = ()
        if charged.renewed == "resized" and behind:
            message = f"the group has another size: running pods restart in place, epoch {new}"
            events = (EmitEvent(cond.NORMAL, keys.IN_PLACE_GROUP_RESIZED_REASON, message),)
        elif charged.renewed == "remade" and cause is not None:
            message = f"{cause}: restarting in place from epoch {deprecated} to {new}, not counted"
            events = (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_STARTED_REASON, message),)
            if cause.sign is FailureSignal.POD_LEAVING:
                events += _leave_often(jobset.status.restart_history, pace)
        renewed = charged.renewed if events else ""
        return EpochDecision(
            deprecated=deprecated,
            record=record,
            conditions=_asked(cause, events),
            renewed=renewed,
            events=events,
        )
    begun = _begun(jobset, charged, pace)
    pacing = _remembered(jobset, begun, record, pace)
    if cause is not None and cause.epoch == deprecated:
        reason, why = cause.condition_reason, str(cause)
    else:
        first = pods.first.get(new)
        reason = keys.POD_RESTARTED_REASON
        why = f"pod {first!r} has restarted" if first else "a pod has restarted"
    follow = f", {behind} {'pod' if behind == 1 else 'pods'} to follow" if behind else ""
    message = f"{why}: restarting in place from epoch {deprecated} to {new}{follow}"
    if pods.succeeded:
        succeeded = "1 pod has" if pods.succeeded == 1 else f"{pods.succeeded} pods have"
        message += f"; {succeeded} succeeded and will not come along"
    delay = pace.explain(begun)
    if delay:
        message += f"; {delay}"
    return EpochDecision(
        deprecated=deprecated,
        record=record,
        pacing=pacing,
        conditions=(
            cond.DesiredCondition(keys.RESTARTING_IN_PLACE_CONDITION, True, reason, message),
        ),
        restart=True,
        events=(EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_STARTED_REASON, message),),
    )


def _asked(cause: Cause | None, events: tuple[EmitEvent, ...]) -> tuple[cond.DesiredCondition, ...]:
    """What is shown of a restart of the whole group that somebody has asked for."""
    if cause is None or cause.sign not in {FailureSignal.REQUESTED, FailureSignal.POD_LEAVING}:
        return ()
    kind = keys.RESTARTING_IN_PLACE_CONDITION
    return tuple(
        cond.DesiredCondition(kind, True, cause.condition_reason, event.message)
        for event in events
        if event.reason == keys.IN_PLACE_RESTART_STARTED_REASON
    )


def _leave_often(history: History, pace: Pace) -> tuple[EmitEvent, ...]:
    """A warning if a group restarts again and again for pods that are asked to leave.

    Such restarts are not counted, so ``maxRestarts`` does not end a JobSet whose pods a descheduler
    or a node that is tainted repeatedly evicts for ever.
    """
    times = tuple(
        each.began_at
        for each in history
        if each.began_at is not None
        and each.cause is not None
        and each.cause.reason == keys.POD_LEAVING_REASON
    )
    count = len(within(times, pace.now, LEAVE_OFTEN_S)) + 1
    if count < LEAVE_OFTEN:
        return ()
    message = (
        f"{count} restarts within {in_words(LEAVE_OFTEN_S)} because pods were asked to leave their "
        "nodes; these do not count towards maxRestarts: check what evicts the pods (drains, a "
        "descheduler, taints, preemption)"
    )
    return (EmitEvent(cond.WARNING, keys.PODS_LEAVE_OFTEN_REASON, message),)


def _remembered(
    jobset: JobSet, pacing: RestartPacing | None, record: InPlaceRestartStatus, pace: Pace
) -> RestartPacing | None:
    policy, status = jobset.spec.failure_policy, jobset.status
    allowed = 0 if policy is None else policy.max_restarts
    counted = restart_budget.recreations(status) + record.restarts
    return pace.remember(status, pacing, counted, allowed)


def _sync(
    jobset: JobSet,
    charged: EpochCharge,
    expected: int,
    pods: Histogram,
    begun: RestartPacing | None,
    pace: Pace,
) -> EpochDecision:
    epoch = charged.epoch
    count = pods.epochs[epoch]
    record = with_progress(jobset, on_sync(jobset, charged, expected), charged, pods)
    started = pace.started(evolve(jobset.status, restart_pacing=begun))
    restart = charged.counts and not charged.renewed
    who = "pod is" if count == 1 else "pods are"
    message = f"{count} {who} at epoch {epoch}: workers may run"
    events: tuple[EmitEvent, ...] = ()
    if restart:
        events = (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_COMPLETED_REASON, message),)
    lifted = keys.BARRIER_LIFTED_REASON
    return EpochDecision(
        synced=epoch,
        record=record,
        pacing=_remembered(jobset, started, record, pace),
        conditions=(
            cond.DesiredCondition(keys.RESTARTING_IN_PLACE_CONDITION, False, lifted, message),
            cond.DesiredCondition(keys.BARRIER_STALLED_CONDITION, False, lifted, message),
        ),
        restart=restart,
        events=events,
    )
