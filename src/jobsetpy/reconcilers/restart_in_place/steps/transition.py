"""Transitions: the status that a decision writes, and its place in the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.reconcilers.failure_policy.decision import delay_recreation
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    Deprecate,
    Fail,
    Record,
    Sync,
    Write,
)
from jobsetpy.reconcilers.restart_in_place.epochs.go_agents import reports_attempts, with_attempts
from jobsetpy.reconcilers.restart_in_place.epochs.texts import conditions_to_clear
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.history.measure import Measured, RunSoFar
from jobsetpy.reconcilers.restart_in_place.history.restart import Restart
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import (
    Arrival,
    GroupCounts,
    ObservedEpochs,
)
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.in_place_record import Renewal
from jobsetpy.reconcilers.rules.plan import StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def status_of(
    observed: ObservedEpochs,
    decision: Write,
    measured: Measured,
    before: RunSoFar,
    now: Now,
) -> StatusChange:
    """Return the write of a decision.

    Args:
        observed: observed state of the JobSet.
        decision: the decision.
        measured: restarts that begin and end with it.
        before: restart and run until now, for the duration of the last write.
        now: time on both clocks.
    """
    jobset = observed.jobset
    draft = StatusDraft(jobset.status, now.wall)
    _write_history(draft, before.restart, measured, now)
    if isinstance(decision, Sync) and decision.resized and decision.record is not None:
        known, pods = draft.status.restart_history, decision.record.pods
        draft.evolve(restart_history=history.with_pods(known, decision.charge.epoch, pods))
    if isinstance(decision, Fail):
        draft.fail(decision.failure.reason, decision.failure.message)
    # After the failure: an ended JobSet restarts no more, and its conditions say so.
    ended = conditions_to_clear(evolve(jobset, status=draft.status))
    for wanted in (*decision.conditions, *ended):
        draft.set(wanted, announce=False)
    draft.evolve(**decision.fields)
    if measured.begun is not None and jobset.status.start_time is not None:
        # All workers start again, as with a restart of all Jobs: the deadline's clock, too.
        draft.evolve(start_time=now.wall.replace(microsecond=0))
    # In the same write: an agent of the Go project that saw one of both numbers without the other
    # would join an attempt that is over.
    if reports_attempts(jobset.status, observed.pods):
        draft.status = with_attempts(draft.status)
    draft.add_events(*decision.events)
    return attrs.evolve(draft.change(), run=measured.run)


def summary(decision: Write) -> str:
    """Return the summary of a decision for logs."""
    match decision:
        case Fail():
            return "failed: no restarts left"
        case Sync():
            return f"synced {decision.charge.epoch}"
        case Deprecate():
            return f"deprecated {decision.epoch}"
        case Record():
            return "noted the group's size or crashes"


RECREATE: Final = "Recreate"
"""Value of the annotation ``in-place-restart-after-success`` that is not the default."""


def is_recreated(jobset: JobSet, charge: EpochCharge, pods: GroupCounts) -> bool:
    """Return True if all Jobs are recreated instead, since a pod has succeeded."""
    if not pods.succeeded or charge.renewal not in {Renewal.NONE, Renewal.UNCOUNTED}:
        return False
    return jobset.metadata.annotations.get(keys.AFTER_SUCCESS_ANNOTATION) == RECREATE


def recreation(observed: ObservedEpochs, begun: Restart, pace: Pace, now: Now) -> StatusChange:
    """Recreate all Jobs: pods that have succeeded do not restart in place."""
    count, counted = observed.pods.succeeded, begun.charge.is_in_place_restart
    draft = StatusDraft(observed.jobset.status, now.wall)
    draft.restart_all(counts_towards_max=counted)
    draft.record(
        RestartRecord(
            kind=history.RECREATE,
            number=draft.status.restarts,
            counted=counted,
            began_at=history.whole_millis(now.wall),
            cause=cause_of(begun.cause, begun.first),
        )
    )
    why = "a pod has restarted" if begun.cause is None else str(begun.cause)
    succeeded = "1 pod has" if count == 1 else f"{count} pods have"
    message = f"{why}: recreating all jobs, since {succeeded} succeeded already"
    delay = delay_recreation(draft, pace)
    draft.set(
        cond.restarting(keys.PODS_SUCCEEDED_REASON, f"{message}; {delay}" if delay else message)
    )
    return draft.change()


# ---- history -------------------------------------------------------------------------------------


def _write_history(draft: StatusDraft, known: Restart | None, measured: Measured, now: Now) -> None:
    """Record the restarts that begin and end with a draft; ``known`` is the one before."""
    begun, ended = measured.begun, measured.ended
    if known is not None and known.times.lifted is not None and known.times.stored is not None:
        lift_s = known.times.stored - known.times.lifted
        # The write that lifted the last barrier could not say how long it took itself: this one
        # does.
        old = draft.status.restart_history
        draft.evolve(restart_history=history.with_lift(old, known.epoch, lift_s))
    if ended is not None:
        # With an open record the beginning was written, perhaps by another manager. Without one,
        # all pods have come together, and one write begins and ends the restart.
        is_open = history.is_open(draft.status.restart_history)
        begun = ended if ended.charge.is_in_place_restart and not is_open else None
    if begun is not None:
        _begin(draft, begun, now)
    if ended is not None:
        _end(draft, ended)


def _begin(draft: StatusDraft, restart: Restart, now: Now) -> None:
    """Record a restart, unless it does not count because it is part of a restart of Jobs."""
    known, counted = draft.status.restart_history, restart.charge.is_in_place_restart
    # Recreated pods open an epoch as well. The record of the recreation covers it: two would be
    # counted and shown as two restarts.
    if not counted and history.is_open(known) and known[-1].kind != history.IN_PLACE:
        return
    before = max(0.0, now.monotonic - restart.times.began)
    draft.record(
        RestartRecord(
            kind=history.IN_PLACE,
            number=restart.epoch,
            counted=counted,
            began_at=history.whole_millis(now.wall - timedelta(seconds=before)),
            cause=_cause(restart),
            detection_millis=history.millis(before),
        )
    )


def _end(draft: StatusDraft, restart: Restart) -> None:
    """End the latest restart in the history, which may be one of Jobs."""
    phases = restart.times.phases
    details: dict[str, Any] = {}
    if restart.seats_taken:
        details["seats_taken"] = restart.seats_taken
    if "deprecate" in phases:
        details["deprecation_millis"] = history.millis(phases["deprecate"])
        details["gathering_millis"] = history.millis(phases["gather"])
    if restart.last.pod:
        details.update(last_pod=restart.last.pod, last_node=restart.last.node)
    draft.end_restart(**details)


def _cause(restart: Restart) -> RestartCause:
    if restart.charge.renewal is Renewal.RESIZED:
        return RestartCause(reason=keys.IN_PLACE_GROUP_RESIZED_REASON)
    return cause_of(restart.cause, restart.first)


def cause_of(cause: Cause | None, first: Arrival) -> RestartCause:
    """Return a cause as it is stored; without one, the first pod that restarted."""
    if cause is None:
        return RestartCause(reason=keys.POD_RESTARTED_REASON, pod=first.pod, node=first.node)
    if cause.kind is None:
        return RestartCause(reason=cause.condition_reason, job=cause.name)
    container = cause.container
    texts = [cause.reason, "" if container is None else container.reason]
    return RestartCause(
        reason=cause.condition_reason,
        pod="" if cause.kind is FailureKind.PODS_MISSING else cause.name,
        node=cause.node,
        container="" if container is None else container.name,
        exit_code=None if container is None else container.exit_code,
        message=", ".join(filter(None, texts)),
    )
