"""Transitions: the status that a decision writes, and its place in the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place import restart_history as epoch_history
from jobsetpy.reconcilers.restart_in_place.attempts import reports_attempts, with_attempts
from jobsetpy.reconcilers.restart_in_place.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.detection import reported_in
from jobsetpy.reconcilers.restart_in_place.measure import (
    measure,
    time_breakdown,
    with_run,
    with_steps,
)
from jobsetpy.reconcilers.restart_in_place.node_memory import suspicion
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.stall import at_rest
from jobsetpy.reconcilers.restart_in_place.state import EpochPlan, EpochState, RestartMetrics
from jobsetpy.reconcilers.restart_in_place.texts import conditions_to_clear
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.failure_policy import delay_recreation
from jobsetpy.reconcilers.rules.plan import StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def plan_transition(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    now: Now,
) -> EpochPlan:
    """Plan the write of a decision, and what is measured with it."""
    before = memory
    memory, measures = measure(jobset, observed, decision, memory, now)
    memory = with_run(observed, decision, memory, now)
    measures = with_steps(jobset, observed, decision, measures)
    measures = attrs.evolve(
        measures,
        spent=time_breakdown(jobset, observed, decision, memory, now),
        seats_taken=decision.seats_taken,
    )
    if decision.synced is not None:
        memory = attrs.evolve(memory, ran_from=now.monotonic, ran_until=0.0)
    status = _status(jobset, observed, decision, before, measures, now)
    again = Result.done(summary=_summary(decision))
    if decision.deprecated is not None:
        wait = timedelta(seconds=observed.stalled_after_s)
        again = Result.requeue_after(wait, summary=_summary(decision))
    return EpochPlan(
        memory=memory,
        status=status,
        measures=measures,
        result=again,
    )


def _status(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    measures: RestartMetrics,
    now: Now,
) -> StatusChange:
    draft = StatusDraft(jobset.status, now.wall)
    _write_history(draft, observed, decision, memory, measures, now)
    if decision.failed is not None:
        draft.fail(decision.failed.reason, decision.failed.message)
    ended = conditions_to_clear(evolve(jobset, status=draft.status))
    for wanted in (*decision.conditions, *ended):
        draft.set(wanted, announce=False)
    changes: dict[str, Any] = {
        "synced_epoch": decision.synced,
        "deprecated_epoch": decision.deprecated,
        "in_place_restart": decision.record,
        "restart_pacing": decision.pacing,
    }
    draft.evolve(**{name: value for name, value in changes.items() if value is not None})
    if reports_attempts(jobset.status, observed.pods):
        draft.status = with_attempts(draft.status)
    draft.tell(*decision.events)
    known = jobset.status.restart_history
    warning = suspicion(known, draft.status.restart_history, now.wall, observed.nodes)
    if warning is not None:
        draft.tell(warning)
    return draft.change()


def _write_history(
    draft: StatusDraft,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    measures: RestartMetrics,
    now: Now,
) -> None:
    """Write the history of restarts."""
    notes = observed.notes
    if memory.lifted[0]:
        known = history.with_lift(draft.status.restart_history, *memory.lifted)
        draft.evolve(restart_history=known)
    if decision.deprecated is not None and (decision.restart or decision.renewed):
        epoch, cause = decision.deprecated + 1, memory.cause
        if cause is not None and cause.epoch != decision.deprecated:
            cause = None
        why = epoch_history.cause_of(cause, notes, epoch)
        if decision.renewed == "resized":
            why = RestartCause(reason=keys.IN_PLACE_GROUP_RESIZED_REASON)
        began = measures.since.get("detect", now.monotonic)
        epoch_history.begin(draft, epoch, why, began, now, counted=decision.restart)
    elif decision.synced is not None:
        epoch = decision.synced
        if decision.restart and not history.is_open(draft.status.restart_history):
            began = notes.opened[1] if notes.opened[0] == epoch else now.monotonic
            why = epoch_history.cause_of(reported_in(notes, epoch), notes, epoch)
            epoch_history.begin(draft, epoch, why, began, now, counted=True)
        epoch_history.end(draft, epoch, notes, measures.phases, decision.seats_taken)


def _summary(decision: EpochDecision) -> str:
    if decision.failed is not None:
        return "failed: no restarts left"
    if decision.synced is not None:
        return f"synced {decision.synced}"
    if decision.deprecated is not None:
        return f"deprecated {decision.deprecated}"
    return "noted the group's size or crashes"


RECREATE: Final = "Recreate"
"""Value of the annotation ``in-place-restart-after-success`` that is not the default."""


def is_recreated(jobset: JobSet, decision: EpochDecision, pods: Histogram) -> bool:
    """Return True if all Jobs are recreated instead, since a pod has succeeded."""
    if not pods.succeeded or decision.deprecated is None:
        return False
    if jobset.metadata.annotations.get(keys.AFTER_SUCCESS_ANNOTATION) != RECREATE:
        return False
    return decision.restart or decision.renewed == "remade"


def plan_recreation(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    pace: Pace,
    now: Now,
) -> EpochPlan:
    """Recreate all Jobs: pods that have succeeded do not restart in place."""
    epoch, count = (decision.deprecated or 0) + 1, observed.pods.succeeded
    cause = memory.cause
    if cause is not None and cause.epoch != decision.deprecated:
        cause = None
    draft = StatusDraft(jobset.status, now.wall)
    draft.restart_all(counts_towards_max=decision.restart)
    draft.record(
        RestartRecord(
            kind=history.RECREATE,
            number=draft.status.restarts,
            counted=decision.restart,
            began_at=history.whole_millis(now.wall),
            cause=epoch_history.cause_of(cause, observed.notes, epoch),
        )
    )
    why = "a pod has restarted" if cause is None else str(cause)
    succeeded = "1 pod has" if count == 1 else f"{count} pods have"
    message = f"{why}: recreating all jobs, since {succeeded} succeeded already"
    delay = delay_recreation(draft, pace)
    draft.set(
        cond.restarting(keys.PODS_SUCCEEDED_REASON, f"{message}; {delay}" if delay else message)
    )
    summary = "recreates all jobs, since pods have succeeded"
    result = Result.done(summary=summary)
    return EpochPlan(memory=at_rest(memory), status=draft.change(), result=result)
