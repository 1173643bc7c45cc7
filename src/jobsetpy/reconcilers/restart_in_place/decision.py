"""Decision on restarts in place and on lifting the barrier (KEP-467).

Every pod of the restart group carries the epoch it has reached. When all are at one epoch, that
epoch is *synced* and its workers may run. Otherwise all epochs before the newest are *deprecated*,
and pods at one of those restart. The synced epoch itself is deprecated as soon as a failure is
detected, before the failed pod has reached the next one: an agent that starts joins one above both
numbers. The decision needs only a histogram of epochs, never the pods themselves.

Epochs start at 1. Both numbers only increase. The budget of restarts is in ``epoch_charges``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import inf
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
from jobsetpy.reconcilers.restart_in_place.seats import (
    CALLS,
    READY,
    WITHOUT_SPARES,
    SeatedJob,
    Seating,
    Swap,
    assign_seats,
)
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
from jobsetpy.reconcilers.rules.spares import spares_of, starts_without_spares

LEAVE_OFTEN: Final = 3
"""Minimum number of restarts because of leaving pods within :data:`LEAVE_OFTEN_S` to report."""

LEAVE_OFTEN_S: Final = 3600.0

MAX_SWAP_EVENTS: Final = 10
"""Maximum number of seats taken over in one restart that are reported by events."""


@lru_cache(maxsize=256)  # called several times per event of a pod; a group has two or three
def parse_report(text: str | None, is_attempt: bool) -> int:
    """Return an agent's report as an epoch; attempts of the Go project count from 0."""
    if not is_attempt:
        return parse_epoch(text)
    epoch = INVALID if text is None or parse_count(text) is None else int(text) + 1
    return epoch if epoch <= keys.MAX_EPOCH else INVALID


@attrs.frozen
class InvalidEpoch:
    """Pod whose annotation is not a valid epoch or attempt."""

    pod_name: str
    pod_uid: str
    text: str
    is_attempt: bool = False


class Crash(NamedTuple):
    """Container of a pod that failed ``times`` times before the barrier lifted.

    The restart of every container that belongs to a restart of the group is not counted. ``at`` has
    the times of failures within the window, if there is one.
    """

    times: int
    pod: str
    container: str
    at: tuple[datetime, ...] = ()


@attrs.frozen
class Spares:
    """Parked pods of an attempt, and access to all pods of its Jobs with spares.

    Args:
        parked: number of parked pods at each epoch.
        ready: number of those whose standby process is ready, at any epoch.
        exhausted: number of Jobs without a ready spare.
        jobs: returns the Jobs with spares and their pods; O(pods).
    """

    parked: Mapping[int, int]
    ready: int
    exhausted: int
    jobs: Callable[[], Sequence[SeatedJob]]


@attrs.frozen
class Histogram:
    """Counts of the pods of a JobSet's current Jobs.

    Args:
        epochs: number of live pods at each epoch, without zeros.
        succeeded: number of pods that have left the group by succeeding.
        first: a pod that was observed early at each epoch, as far as known.
        restarts: number of live pods for each restart count of a container above 0, for any cause.
        lost: number of pods lost with failed Jobs, without those that succeeded.
        leaving: number of pods at an epoch that are being deleted.
        doubles: number of live pods whose completion index another live pod has as well; including
            those that have not reported an epoch yet, and may join any that is not synced.
        crashes: the worst crash since the barrier closed, by ReplicatedJob and container; including
            containers that the JobSet does not name.
        attempts: number of live pods with an agent of the Go project, which reports attempts.
        progress: the newest epoch with which a pod has reported earlier progress, and the highest
            step; -1 without a number.
        ended: the newest epoch with which a pod has reported the end of its worker.
        slow: number of pods whose worker waits for a slow API server at its epoch.
        digest: digest of the UIDs of pods with an epoch, in any order.
        spares: parked pods, which are counted nowhere else; ``None`` without Jobs with spares.
    """

    epochs: Mapping[int, int] = attrs.field(factory=dict)
    succeeded: int = 0
    first: Mapping[int, str] = attrs.field(factory=dict)
    restarts: Mapping[int, int] = attrs.field(factory=dict)
    lost: int = 0
    leaving: int = 0
    doubles: int = 0
    crashes: Mapping[tuple[str, str], Crash] = attrs.field(factory=dict)
    attempts: int = 0
    progress: tuple[int, int] = (0, -1)
    ended: int = 0
    digest: int = 0
    slow: int = 0
    spares: Spares | None = None


@attrs.frozen
class EpochDecision:
    """Changes of the status.

    Args:
        synced: new ``syncedEpoch``, or ``None`` to leave it.
        deprecated: new ``deprecatedEpoch``, or ``None`` to leave it.
        record: new ``inPlaceRestart``, or ``None`` to leave it.
        conditions: conditions to set, by the update rule of conditions, without events.
        failed: the condition that ends the JobSet: its budget of restarts is spent. Setting it
            has an event of its own.
        restart: True if a restart in place begins or ends, rather than a gathering of new pods.
        renewed: other reason that begins or ends here and also makes running pods restart.
        events: further events once the change is stored.
        pacing: new ``restartPacing``, or ``None`` to leave it.
        wait_s: seconds that workers have to wait although all pods have arrived.
        call_s: seconds until spares take over the seats of missing pods.
        seats_taken: number of seats that spares take over.
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
    call_s: float = 0.0
    seats_taken: int = 0

    @property
    def empty(self) -> bool:
        """Return True if nothing has to be written."""
        return (
            self.synced is None
            and self.deprecated is None
            and self.failed is None
            and self.record is None
        )


NOTHING: Final = EpochDecision()


def takes_part(jobset: JobSet) -> bool:
    """Return True for a live, running JobSet with restart in place."""
    return (
        jobset.spec.restarts_in_place
        and jobset.metadata.deletion_timestamp is None
        and jobset.spec.suspend is not True
        and is_ours(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def expected_pods(jobset: JobSet) -> int:
    """Return the size of the restart group: replicas times seats, over all ReplicatedJobs.

    A Job has as many seats as pods, less its spares.
    """
    total = 0
    for item in jobset.spec.replicated_jobs:
        spec = item.template.get("spec")
        parallelism = spec.get("parallelism") if isinstance(spec, Mapping) else None
        # The API server's default is 1.
        pods = parallelism if isinstance(parallelism, int) else 1
        total += item.replicas * (pods - spares_of(jobset, item))
    return total


def group_size(jobset: JobSet, pods: Histogram) -> int:
    """Return the number of pods that the restart group needs now, including succeeded ones.

    Usually a failed Job is recreated, and the group waits for its new pods. Only if a rule of the
    failure policy may leave Jobs failed, the group continues without their pods.
    """
    if pods.lost and leaves_jobs_failed(jobset):
        return expected_pods(jobset) - pods.lost
    return expected_pods(jobset)


def leaves_jobs_failed(jobset: JobSet) -> bool:
    """Return True if a rule of the failure policy may leave Jobs failed."""
    policy = jobset.spec.failure_policy
    return policy is not None and any(rule.action == FAIL_JOB for rule in policy.rules)


def needs_decision(jobset: JobSet, pods: Histogram, cause: Cause | None = None) -> bool:
    """Return True if the counts of a group require another status; called at each event.

    A budget spent by other causes shows in the JobSet, whose own events lead to a decision.
    """
    expected = group_size(jobset, pods)
    synced, deprecated = _move(jobset, pods, cause, expected)
    if synced is not None or deprecated is not None:
        return True
    record, policy = record_of(jobset), jobset.spec.failure_policy
    if pods.spares is not None and (
        _may_be_filled(jobset, pods, expected) or _spares_changed(jobset, pods)
    ):
        return True
    if pods.crashes or record.crashes:
        allowed = 0 if policy is None else policy.max_restarts
        if _worst_crash(jobset, pods).times > min(record.crashes, allowed):
            return True
        if any(crash.at[-1:] > record.crash_times[-1:] for crash in pods.crashes.values()):
            return True
    return _has_shrunk(jobset, pods, expected)


def _may_be_filled(jobset: JobSet, pods: Histogram, expected: int) -> bool:
    """Return True if enough pods, parked ones included, are at the epoch of a closed barrier.

    A necessary condition, in O(1): each Job can fill its seats with its own pods only.
    """
    if pods.spares is None or not is_waiting(jobset.status, pods.epochs):
        return False
    epoch = next_epoch(jobset.status, pods.epochs)
    there = pods.epochs.get(epoch, 0) + pods.spares.parked.get(epoch, 0)
    return there >= expected - pods.succeeded > 0


def _spares_changed(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if the number of ready spares differs from the status."""
    if pods.spares is None:
        return False
    record = record_of(jobset)
    exhausted = cond.is_true(jobset.status.conditions, keys.SPARES_EXHAUSTED_CONDITION)
    return (
        record.ready_spares != pods.spares.ready
        or bool(pods.spares.exhausted and jobset.status.synced_epoch) is not exhausted
    )


def plan_seats(jobset: JobSet, pods: Histogram, expected: int, waited_s: float) -> Seating | None:
    """Return the seats at the next epoch, as far as pods can fill them; ``None`` without spares."""
    if pods.spares is None or not _may_be_filled(jobset, pods, expected):
        return None
    seating = assign_seats(
        pods.spares.jobs(),
        record_of(jobset).taken_seats,
        next_epoch(jobset.status, pods.epochs),
        waited_s=waited_s,
        starting=is_starting(jobset, expected),
        calls=WITHOUT_SPARES if starts_without_spares(jobset) else CALLS,
    )
    # Jobs that do not exist yet have seats too.
    return seating if seating.filled == expected - pods.succeeded else None


def is_starting(jobset: JobSet, expected: int) -> bool:
    """Return True if the pods of a group are new, without a failure of one of them."""
    return not jobset.status.synced_epoch or renewed(jobset, expected) in {"recreated", "resumed"}


def decide_epochs(
    jobset: JobSet,
    pods: Histogram,
    cause: Cause | None = None,
    pace: Pace = UNPACED,
    waited_s: float = inf,
) -> EpochDecision:
    """Decide on the epochs of a JobSet.

    * All expected pods, without those that succeeded, at one epoch, and none of them being
      deleted: that epoch is synced.
    * Otherwise every epoch before the newest is deprecated, and the synced one after a failure.
    * More restarts that count than ``maxRestarts``: the JobSet fails.
    * After restarts in quick succession an epoch is synced only after a pause.

    Args:
        jobset: JobSet with the current numbers.
        pods: pods of the current attempt's Jobs; pods of other Jobs, failed ones, and those without
            a valid annotation are not in its epochs.
        cause: failure that was detected before the failed pod's agent reported it.
        pace: back-off of restarts, and the window in which they are counted.
        waited_s: seconds since the restart began, for the last call for missing pods.
    """
    policy = jobset.spec.failure_policy
    if policy is None or not takes_part(jobset):
        return NOTHING
    status = jobset.status
    expected = group_size(jobset, pods)
    newest = max(pods.epochs, default=0)
    synced, deprecated = _move(jobset, pods, cause, expected)
    seating = None if deprecated is not None else plan_seats(jobset, pods, expected, waited_s)
    if seating is not None and seating.complete and synced is None:
        synced = next_epoch(status, pods.epochs)
    opened = synced or (deprecated or 0) + 1
    early = opened > max(newest, status.synced_epoch)
    remade = cause is not None and cause.epoch + 1 == opened and not cause.counted
    charged = account(jobset, max(newest, opened, status.synced_epoch), expected, remade=remade)
    if pace.used(status, charged.spent) > policy.max_restarts:
        before = account(jobset, status.synced_epoch, expected).spent
        if early and pace.used(status, before) <= policy.max_restarts:
            # Failing the JobSet is not urgent: the pod's agent will report the failure.
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
            # All have arrived simultaneously. The status records that they wait, and until when.
            return _deprecate(jobset, charged, synced - 1, pods, cause, pace=pace)
        return _sync(jobset, charged, expected, pods, begun, pace, seating)
    if deprecated is not None:
        return _deprecate(jobset, charged, deprecated, pods, cause, pace=pace)
    record = record_of(jobset)
    if crash.times > record.crashes or crash.at[-1:] > record.crash_times[-1:]:
        # The next manager must not start counting from zero.
        return EpochDecision(record=on_crash(jobset, *crash))
    if _has_shrunk(jobset, pods, expected):
        return EpochDecision(record=evolve(record, pods=expected))
    call_s = 0.0 if seating is None else seating.wait_s
    if pods.spares is not None and _spares_changed(jobset, pods):
        record = evolve(record, ready_spares=pods.spares.ready)
        return EpochDecision(
            record=record, conditions=_spares_condition(jobset, pods.spares), call_s=call_s
        )
    return EpochDecision(call_s=call_s) if call_s else NOTHING


def _spares_condition(jobset: JobSet, spares: Spares) -> tuple[cond.DesiredCondition, ...]:
    """Return the condition for Jobs without a ready spare; none before the first start."""
    kind = keys.SPARES_EXHAUSTED_CONDITION
    if spares.exhausted and jobset.status.synced_epoch:
        jobs = "1 job has" if spares.exhausted == 1 else f"{spares.exhausted} jobs have"
        message = (
            f"{jobs} no ready spare: a lost pod of it is waited for until it has been replaced"
        )
        return (cond.DesiredCondition(kind, True, keys.NO_READY_SPARE_REASON, message),)
    if not cond.is_true(jobset.status.conditions, kind):
        return ()
    message = "each job has a ready spare"
    return (cond.DesiredCondition(kind, False, keys.SPARES_READY_REASON, message),)


def _stuck(jobset: JobSet, charged: EpochCharge, pods: Histogram) -> EpochDecision | None:
    """Fail a JobSet whose consecutive restarts have led to no new step."""
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
    """Return the record to store with an epoch that is about to be synced, with its pods' progress.

    Touches count as progress until there has been a step: a program reports steps or it does not. A
    run counts as one without progress only if some pod has reported on it; without any reported
    step, only if no pod is new, as the one that reports steps may have been lost. A pod is new if
    the digest of all differs from that in the record.
    """
    epoch, step = pods.progress
    shown = epoch == charged.epoch
    complete = record_of(jobset).pods_digest in {0, pods.digest}
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
    """Return the maximum number of consecutive restarts without a new step; 0 for no limit."""
    text = jobset.metadata.annotations.get(keys.MAX_WITHOUT_PROGRESS_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0


def _begun(jobset: JobSet, charged: EpochCharge, pace: Pace) -> RestartPacing | None:
    """Return the delay of the restart that opens an epoch, whether stored yet or not."""
    status = jobset.status
    if charged.renewed or status.synced_epoch == 0:
        # Nothing has failed in place. If Jobs were recreated, that was delayed already.
        known = status.restart_pacing
        return None if known is None else evolve(known, not_before=None)
    return status.restart_pacing if restarts_in_place(status) else pace.begin(status)


def missing_pods_failure(missing: str) -> cond.DesiredCondition:
    """Return the failure of a JobSet with missing pods and no restarts left to replace them."""
    return cond.failed(keys.REACHED_MAX_RESTARTS_REASON, f"{_OVER_BUDGET.message}: {missing}")


def _crash_loop(crash: Crash, epoch: int, pace: Pace) -> cond.DesiredCondition:
    """Return the failure of a JobSet of which a container crashes before each epoch."""
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"{_over_budget(pace).message}: container {crash.container!r} of pod {crash.pod!r} was "
        f"restarted {crash.times} times before all pods had come to epoch {epoch}",
    )


_OVER_BUDGET: Final = cond.failed(
    keys.REACHED_MAX_RESTARTS_REASON, "jobset failed due to reaching max number of restarts"
)


def has_missing_pods(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if workers run without their whole group, though it was not resized."""
    if is_waiting(jobset.status, pods.epochs):
        return False
    expected = group_size(jobset, pods)
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    return present < expected - pods.succeeded and not renewed(jobset, expected)


def conditions_to_clear(jobset: JobSet) -> tuple[cond.DesiredCondition, ...]:
    """Return conditions to clear on a JobSet that ends or no longer restarts in place."""
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
        for kind in sorted(keys.IN_PLACE_CONDITIONS)
        if cond.is_true(conditions, kind)
    )


def _move(
    jobset: JobSet, pods: Histogram, cause: Cause | None, expected: int
) -> tuple[int | None, int | None]:
    """Return the new synced and deprecated epochs; at most one of them is set."""
    status = jobset.status
    over = status.deprecated_epoch
    if pods.epochs:
        newest = max(pods.epochs)
        if len(pods.epochs) == 1 and pods.epochs[newest] == expected - pods.succeeded:
            # A pod that is being deleted may still arrive; but its worker would end immediately,
            # and its replacement would cause another restart. Of two pods of one index, which the
            # Job controller and the manager may create at the same time, one is about to be
            # deleted, and another index may have none.
            if newest > status.synced_epoch and not pods.leaving and not pods.doubles:
                return newest, None
        else:
            over = max(over, newest - 1)
    if cause is not None and cause.epoch == status.synced_epoch:
        over = max(over, cause.epoch)
    return None, over if over > status.deprecated_epoch else None


def _worst_crash(jobset: JobSet, pods: Histogram, pace: Pace = UNPACED) -> Crash:
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


def is_gathering(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if no worker runs: the group gathers, initially or after a restart has begun."""
    return not pods.epochs or jobset.status.deprecated_epoch >= jobset.status.synced_epoch


def _has_shrunk(jobset: JobSet, pods: Histogram, expected: int) -> bool:
    """Return True if the group runs with fewer pods than recorded, which no new epoch will show."""
    known = record_of(jobset).pods
    return (
        known not in {0, expected}
        and len(pods.epochs) == 1
        and pods.epochs.get(jobset.status.synced_epoch) == expected - pods.succeeded
    )


def _over_budget(pace: Pace) -> cond.DesiredCondition:
    """Return the failure of a JobSet whose restarts are used up."""
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
        return EpochDecision(deprecated=deprecated)  # no worker runs yet, or all have run for long
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
    """Return the condition for a requested restart of the whole group."""
    if cause is None or cause.sign not in {FailureSignal.REQUESTED, FailureSignal.POD_LEAVING}:
        return ()
    kind = keys.RESTARTING_IN_PLACE_CONDITION
    return tuple(
        cond.DesiredCondition(kind, True, cause.condition_reason, event.message)
        for event in events
        if event.reason == keys.IN_PLACE_RESTART_STARTED_REASON
    )


def _leave_often(history: History, pace: Pace) -> tuple[EmitEvent, ...]:
    """Return a warning if a group restarts repeatedly because pods are evicted or deleted.

    Such restarts are not counted, so ``maxRestarts`` does not end a JobSet whose pods are evicted
    again and again by a descheduler or by a repeatedly tainted node.
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
    seating: Seating | None,
) -> EpochDecision:
    epoch = charged.epoch
    count = pods.epochs.get(epoch, 0) if seating is None else seating.filled
    record = with_progress(jobset, on_sync(jobset, charged, expected), charged, pods)
    if max_without_progress(jobset) or record.highest_step is not None:
        record = evolve(record, pods_digest=pods.digest)
    swaps: tuple[Swap, ...] = ()
    if pods.spares is not None and seating is not None:
        swaps = seating.swaps
        ready = pods.spares.ready - sum(swap.pod.state == READY for swap in swaps)
        record = evolve(record, taken_seats=seating.taken, ready_spares=max(0, ready))
    started = pace.started(evolve(jobset.status, restart_pacing=begun))
    restart = charged.counts and not charged.renewed
    who = "pod is" if count == 1 else "pods are"
    message = f"{count} {who} at epoch {epoch}: workers may run"
    events: tuple[EmitEvent, ...] = ()
    if restart:
        events = (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_COMPLETED_REASON, message),)
    events += _swap_events(swaps)
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
        seats_taken=len(swaps),
    )


def _swap_events(swaps: tuple[Swap, ...]) -> tuple[EmitEvent, ...]:
    """Return an event for each of the first seats that are taken over."""
    events = []
    for swap in swaps[:MAX_SWAP_EVENTS]:
        old = f" of pod {swap.lost!r}" if swap.lost else ""
        message = f"pod {swap.pod.name!r} takes seat {swap.seat} of job {swap.job!r}{old}"
        events.append(EmitEvent(cond.NORMAL, keys.SEAT_TAKEN_REASON, message))
    return tuple(events)
