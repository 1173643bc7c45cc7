"""Transitions: the status that a decision writes, and its place in the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.failure_policy.decision import delay_recreation
from jobsetpy.reconcilers.restart_in_place.epochs.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.epochs.go_agents import reports_attempts, with_attempts
from jobsetpy.reconcilers.restart_in_place.epochs.texts import conditions_to_clear
from jobsetpy.reconcilers.restart_in_place.failures.bad_nodes import suspicion
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.history import measure
from jobsetpy.reconcilers.restart_in_place.history.memory import EpochPlan, EpochState, Restart, Run
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Histogram, ObservedEpochs
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.plan import StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def plan_transition(
    observed: ObservedEpochs, decision: EpochDecision, memory: EpochState, now: Now
) -> EpochPlan:
    """Plan the write of a decision, and what is measured with it."""
    at, known, run = now.monotonic, memory.restart, Run()
    begun = ended = None
    again = Result.done(summary=_summary(decision))
    if decision.deprecated is not None:
        begun = measure.restart_begun(observed, decision, memory, at)
        look_at = at + observed.stalled_after_s
        memory = attrs.evolve(memory, restart=begun, waiting_since=at, look_at=look_at)
        until = measure.end_of_run(observed, memory, decision.deprecated + 1, at)
        memory = attrs.evolve(memory, ran_until=until)
        again = Result.requeue_after(observed.stalled_after_s, summary=_summary(decision))
    elif decision.synced is not None:
        ended = measure.restart_ended(observed, decision, memory, at)
        if ended.charge.restarts and observed.jobset.status.deprecated_epoch < decision.synced - 1:
            begun = ended  # all pods have arrived simultaneously
        memory = attrs.evolve(memory.at_rest(), restart=ended)
        until = measure.end_of_run(observed, memory, decision.synced, at)
        run = measure.run_before(observed, memory, until, at)
        memory = attrs.evolve(memory, ran_from=at, ran_until=0.0)
    return EpochPlan(
        memory=memory,
        status=_status(observed, decision, (known, begun, ended), now),
        begun=begun,
        ended=ended,
        run=run,
        result=again,
    )


def _status(
    observed: ObservedEpochs,
    decision: EpochDecision,
    restarts: tuple[Restart | None, Restart | None, Restart | None],
    now: Now,
) -> StatusChange:
    jobset = observed.jobset
    draft = StatusDraft(jobset.status, now.wall)
    _write_history(draft, *restarts, now)
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
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    pace: Pace,
    now: Now,
) -> EpochPlan:
    """Recreate all Jobs: pods that have succeeded do not restart in place."""
    count = observed.pods.succeeded
    restart = measure.restart_begun(observed, decision, memory, now.monotonic)
    assert restart is not None
    cause = restart.cause
    draft = StatusDraft(observed.jobset.status, now.wall)
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


# ---- history -------------------------------------------------------------------------------------


def _write_history(
    draft: StatusDraft,
    known: Restart | None,
    begun: Restart | None,
    ended: Restart | None,
    now: Now,
) -> None:
    """Record the restarts that begin and end with a draft.

    Args:
        draft: status draft whose history receives them.
        known: restart before, for the duration of its last write.
        begun: restart that begins.
        ended: restart that ends.
        now: time on both clocks.
    """
    if known is not None and known.times.lifted is not None and known.times.stored is not None:
        lift_s = known.times.stored - known.times.lifted
        old = draft.status.restart_history
        draft.evolve(restart_history=history.with_lift(old, known.epoch, lift_s))
    if ended is not None:
        is_open = history.is_open(draft.status.restart_history)
        begun = ended if ended.charge.restarts and not is_open else None
    if begun is not None:
        _begin(draft, begun, now)
    if ended is not None:
        _end(draft, ended)


def _begin(draft: StatusDraft, restart: Restart, now: Now) -> None:
    """Record a restart, unless it does not count because it is part of a restart of Jobs."""
    known, counted = draft.status.restart_history, restart.charge.restarts
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
    pod, node = restart.last
    if pod or node:
        details.update(last_pod=pod, last_node=node)
    draft.end_restart(**details)


def _cause(restart: Restart) -> RestartCause:
    if restart.charge.renewed == "resized":
        return RestartCause(reason=keys.IN_PLACE_GROUP_RESIZED_REASON)
    return cause_of(restart.cause, restart.first)


def cause_of(cause: Cause | None, first: tuple[str, str] = ("", "")) -> RestartCause:
    """Return a cause as it is stored; without one, the first pod (name, node) that restarted."""
    if cause is None:
        return RestartCause(reason=keys.POD_RESTARTED_REASON, pod=first[0], node=first[1])
    if cause.sign is None:
        return RestartCause(reason=cause.condition_reason, job=cause.name)
    container = cause.container
    texts = [cause.reason, "" if container is None else container.reason]
    return RestartCause(
        reason=cause.condition_reason,
        pod="" if cause.sign is FailureSignal.PODS_MISSING else cause.name,
        node=cause.node,
        container="" if container is None else container.name,
        exit_code=None if container is None else container.exit_code,
        message=", ".join(filter(None, texts)),
    )
