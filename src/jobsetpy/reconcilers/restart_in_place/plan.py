"""Plan of one reconcile of a JobSet's epochs (KEP-467).

``decide_epochs`` derives the numbers from the counts. The plan adds everything that depends on time
or memory: the cause among the observed failures (``detection``), the durations of a restart and its
phases (``measure``), the time for which a barrier has been closed, and the pods that block it or
are missing from a running group (``missing``).
"""

from __future__ import annotations

from functools import partial

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place.detection import silence
from jobsetpy.reconcilers.restart_in_place.detection.early import find_cause
from jobsetpy.reconcilers.restart_in_place.epochs import go_agents
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import takes_part
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    EpochDecision,
    decide_epochs,
    needs_decision,
)
from jobsetpy.reconcilers.restart_in_place.epochs.seating import seconds_waited, suspect_nodes
from jobsetpy.reconcilers.restart_in_place.epochs.texts import (
    conditions_to_clear,
    invalid_notices,
    log_reports,
)
from jobsetpy.reconcilers.restart_in_place.history.memory import EpochPlan, EpochState
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.reports.barrier_state import is_waiting
from jobsetpy.reconcilers.restart_in_place.steps import transition, waiting
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def needs_plan(jobset: JobSet, pods: Histogram, memory: EpochState) -> bool:
    """Return True if the epochs of a JobSet need a plan; O(1), called at each pod or Job event.

    The JobSet's own events cause plans too, which detect changes that are not visible here yet.
    """
    if not takes_part(jobset) or go_agents.managed_by_go_controller(jobset, pods):
        return False
    status, notes = jobset.status, pods.notes
    if go_agents.adopt_go_controller_state(jobset, pods) is not None:
        return True
    if status.synced_epoch > status.deprecated_epoch and (
        notes.remade or (notes.failures and notes.failures[0].epoch == status.synced_epoch)
    ):
        return True
    if notes.invalid != memory.invalid or bool(pods.slow) is not waiting.reports_slowness(jobset):
        return True
    lacking = waiting.has_missing_pods(jobset, pods)
    if lacking is not (memory.lacking_since is not None):
        return True
    return needs_decision(jobset, pods, memory.cause)


def plan_epochs(observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan:
    """Plan one reconcile.

    Args:
        observed: the JobSet and its counts.
        memory: state after the previous plan.
        now: time on both clocks.
    """
    jobset, pods = observed.jobset, observed.pods
    if memory.uid != jobset.metadata.uid:
        memory = EpochState(uid=jobset.metadata.uid)
    if (other := _without_decision(observed, memory, now)) is not None:
        return other
    quiet = silence.silence_of(observed)
    cause = find_cause(
        observed,
        left=memory.left,
        known=memory.cause,
        silent=silence.silent_cause(jobset, quiet),
    )
    pace = memory.pace(jobset, observed.backoff, now)
    decide = partial(
        decide_epochs,
        jobset,
        pods,
        pace=pace,
        waited_s=seconds_waited(observed, memory.waiting_since, now),
        suspect=suspect_nodes(observed, now),
        silent=quiet.uids,
    )
    decision = decide(cause or memory.cause)
    if cause is not None and decision.empty:
        # No restarts are left: the failed pod's agent will report it, which fails the JobSet.
        decision = decide(memory.cause)
        cause = None
    unheard = silence.unheard_events(jobset, quiet, decision)
    notices = invalid_notices(observed, memory.reported)
    unheard += log_reports(observed)
    notices += tuple(each for each in unheard if each.message not in memory.unheard_reported)
    lacking = waiting.has_missing_pods(jobset, pods)
    memory = attrs.evolve(
        _observed_state(observed, memory, pace),
        lacking_since=memory.lacking_since if lacking else None,
        cause=cause or memory.cause,
        silent=quiet.uids,
        unheard_reported=frozenset(each.message for each in unheard),
    )
    plan = _follow(observed, decision, memory, pace, now)
    return attrs.evolve(plan, notices=notices, judged=True)


def _follow(
    observed: ObservedEpochs, decision: EpochDecision, memory: EpochState, pace: Pace, now: Now
) -> EpochPlan:
    """Return the plan that follows from a decision, or from none."""
    jobset, pods = observed.jobset, observed.pods
    if transition.is_recreated(jobset, decision, pods):
        plan = transition.plan_recreation(observed, decision, memory, pace, now)
    elif not decision.empty:
        plan = transition.plan_transition(observed, decision, memory, now)
    elif decision.wait_s:
        plan = waiting.plan_backoff(observed, decision.wait_s, memory, now)
    elif is_waiting(jobset.status, pods.epochs):
        plan = waiting.plan_gathering(observed, memory, now, decision.call_s)
    elif waiting.has_missing_pods(jobset, pods):
        plan = waiting.plan_missing(observed, memory, pace, now)
    else:
        plan = waiting.plan_complete(jobset, pods, memory, now)
    return plan


def _without_decision(observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan | None:
    """Return the plan for a JobSet about which nothing is to be decided now; ``None`` otherwise."""
    jobset = observed.jobset
    part = takes_part(jobset) and not go_agents.managed_by_go_controller(jobset, observed.pods)
    if part and observed.wait_s > 0:
        return EpochPlan(memory=memory, result=Result.requeue_after(observed.wait_s))
    status = go_agents.adopt_go_controller_state(jobset, observed.pods)
    if status is not None:
        draft = StatusDraft(jobset.status, now.wall)
        draft.status = status
        again = Result.done(summary="attempts and epochs are in step")
        return EpochPlan(memory=memory, status=draft.change(), result=again)
    return None if part else _leave(jobset, now)


def _observed_state(observed: ObservedEpochs, memory: EpochState, pace: Pace) -> EpochState:
    """Return the state with what a plan has processed."""
    spares = observed.pods.spares
    return attrs.evolve(
        memory,
        left=False,
        reported=frozenset(observed.pods.invalid.values()),
        invalid=observed.notes.invalid,
        pause=pace.pause,
        ready_spares=spares.ready,
        exhausted=spares.exhausted,
    )


def _leave(jobset: JobSet, now: Now) -> EpochPlan:
    """Clear conditions that no longer hold for a JobSet that was suspended or has ended."""
    may_resume = jobset.spec.restarts_in_place and jobset.spec.suspend is True
    memory = EpochState(uid=jobset.metadata.uid, left=True) if may_resume else None
    if jobset.metadata.deletion_timestamp is not None or not is_ours(jobset):
        return EpochPlan(memory=memory, judged=True)
    draft = StatusDraft(jobset.status, now.wall)
    changed = [draft.set(wanted, announce=False) for wanted in conditions_to_clear(jobset)]
    if not any(changed):
        return EpochPlan(memory=memory, judged=True)
    return EpochPlan(
        memory=memory,
        status=draft.change(),
        result=Result.done(summary="no further restart"),
        judged=True,
    )
