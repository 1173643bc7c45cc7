"""Transitions: the status that a decision writes, and its place in the history."""

from __future__ import annotations

from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartRecord
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place.attempts import reports_attempts, with_attempts
from jobsetpy.reconcilers.restart_in_place.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.measure import (
    end_of_run,
    restart_begun,
    restart_ended,
    run_before,
)
from jobsetpy.reconcilers.restart_in_place.node_memory import suspicion
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.restart import Restart, Run
from jobsetpy.reconcilers.restart_in_place.restart_history import cause_of, write_history
from jobsetpy.reconcilers.restart_in_place.state import EpochPlan, EpochState
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
    at, known, run = now.monotonic, memory.restart, Run()
    begun = ended = None
    again = Result.done(summary=_summary(decision))
    if decision.deprecated is not None:
        begun = restart_begun(observed, decision, memory, at)
        look_at = at + observed.stalled_after_s
        memory = attrs.evolve(memory, restart=begun, waiting_since=at, look_at=look_at)
        until = end_of_run(observed, memory, decision.deprecated + 1, at)
        memory = attrs.evolve(memory, ran_until=until)
        again = Result.requeue_after(observed.stalled_after_s, summary=_summary(decision))
    elif decision.synced is not None:
        ended = restart_ended(observed, decision, memory, at)
        if ended.charge.restarts and jobset.status.deprecated_epoch < decision.synced - 1:
            begun = ended  # all pods have arrived simultaneously
        memory = attrs.evolve(memory.at_rest(), restart=ended)
        until = end_of_run(observed, memory, decision.synced, at)
        run = run_before(jobset, observed, memory, until, at)
        memory = attrs.evolve(memory, ran_from=at, ran_until=0.0)
    return EpochPlan(
        memory=memory,
        status=_status(jobset, observed, decision, (known, begun, ended), now),
        begun=begun,
        ended=ended,
        run=run,
        result=again,
    )


def _status(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    restarts: tuple[Restart | None, Restart | None, Restart | None],
    now: Now,
) -> StatusChange:
    draft = StatusDraft(jobset.status, now.wall)
    write_history(draft, *restarts, now)
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
    return decision.charge is not None and decision.charge.renewed in {"", "remade"}


def plan_recreation(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    pace: Pace,
    now: Now,
) -> EpochPlan:
    """Recreate all Jobs: pods that have succeeded do not restart in place."""
    count = observed.pods.succeeded
    restart = restart_begun(observed, decision, memory, now.monotonic)
    assert restart is not None
    cause = restart.cause
    draft = StatusDraft(jobset.status, now.wall)
    draft.restart_all(counts_towards_max=decision.restart)
    draft.record(
        RestartRecord(
            kind=history.RECREATE,
            number=draft.status.restarts,
            counted=decision.restart,
            began_at=history.whole_millis(now.wall),
            cause=cause_of(cause, restart.first),
        )
    )
    why = "a pod has restarted" if cause is None else str(cause)
    succeeded = "1 pod has" if count == 1 else f"{count} pods have"
    message = f"{why}: recreating all jobs, since {succeeded} succeeded already"
    delay = delay_recreation(draft, pace)
    draft.set(
        cond.restarting(keys.PODS_SUCCEEDED_REASON, f"{message}; {delay}" if delay else message)
    )
    result = Result.done(summary="recreates all jobs, since pods have succeeded")
    return EpochPlan(memory=memory.at_rest(), status=draft.change(), result=result)
