"""Plan of one reconcile of a JobSet's epochs (KEP-467).

``decide_epochs`` derives the numbers from the counts; only this module asks it. The plan adds
everything that depends on time or memory: the cause among the observed failures (``detection``),
the durations of a restart and its phases (``history``), the time for which a barrier has been
closed, and the pods that block it or are missing from a running group (``steps``).
"""

from __future__ import annotations

from functools import partial
from math import isfinite

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place.detection import silence
from jobsetpy.reconcilers.restart_in_place.detection.early import find_cause
from jobsetpy.reconcilers.restart_in_place.epochs import go_agents, resizing
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import takes_part
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    Deprecate,
    EpochDecision,
    Sync,
    Wait,
    Write,
    decide_epochs,
    needs_decision,
)
from jobsetpy.reconcilers.restart_in_place.epochs.seating import seconds_waited
from jobsetpy.reconcilers.restart_in_place.epochs.texts import (
    conditions_to_clear,
    log_reports,
)
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.history.measure import Measured, opened
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.steps import transition, waiting
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochPlan, EpochState
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.barrier_state import is_waiting
from jobsetpy.reconcilers.rules.membership import is_handled
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, condition_change
from jobsetpy.reconcilers.rules.times import Now


def needs_plan(jobset: JobSet, pods: GroupCounts, memory: EpochState) -> bool:
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
    lacking = waiting.has_missing_pods(jobset, pods)
    if lacking is not (memory.waiting.lacking_since is not None):
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
    # First: the time since pods are missing must not continue when they go missing again.
    if not waiting.has_missing_pods(jobset, pods):
        memory = attrs.evolve(memory, waiting=memory.waiting.complete())
    quiet = silence.silence_of(observed)
    pace = Pace.of(jobset, now.wall, observed.backoff).paused(jobset.status, memory.pause, now)
    pace = attrs.evolve(pace, ran_s=memory.run.seconds(now.monotonic))
    verdict = _decide(observed, memory, quiet, pace, now)
    restarts = isinstance(verdict.decision, Deprecate)
    reports = silence.unheard_events(jobset, quiet, restarts=restarts) + log_reports(observed)
    notices = tuple(each for each in reports if each.message not in memory.heard.reported)
    memory = attrs.evolve(
        memory,
        left=False,
        cause=verdict.cause,
        pause=pace.pause,
        heard=silence.Heard.of(quiet, reports),
        spares=pods.spares.shown,
    )
    if isinstance(verdict.decision, Wait):
        plan = _wait(observed, verdict.decision, verdict.missing, memory, now)
    else:
        plan = _write(observed, verdict.decision, memory, pace, now)
    return attrs.evolve(plan, notices=notices, judged=True)


@attrs.frozen
class _Verdict:
    """Decision, and the cause that it was made for.

    Args:
        decision: the decision.
        cause: the latest failure that was detected early.
        missing: pods that have been missing for too long, while no restarts are left.
    """

    decision: EpochDecision
    cause: Cause | None
    missing: Cause | None = None


def _decide(
    observed: ObservedEpochs, memory: EpochState, quiet: silence.Silence, pace: Pace, now: Now
) -> _Verdict:
    """Decide for a new failure, then for what is known, then for pods that are missing."""
    jobset, pods, known = observed.jobset, observed.pods, memory.cause
    decide = partial(
        decide_epochs,
        jobset,
        pods,
        pace=pace,
        waited_s=seconds_waited(observed, memory.waiting.since, now),
        silent=quiet.uids,
    )
    other = silence.silent_cause(jobset, quiet)
    if other is None and not quiet.uids:
        other = resizing.growth_cause(jobset, pods, now.wall)
    cause = find_cause(observed, left=memory.left, known=known, other=other)
    if cause is not None and not isinstance(decision := decide(cause), Wait):
        return _Verdict(decision, cause)
    # No restarts are left for a new failure: the failed pod's agent will report it, which fails the
    # JobSet. Were it remembered, the end of another pod would not be found.
    decision = decide(known)
    if not isinstance(decision, Wait) or decision.backoff_s:
        return _Verdict(decision, known)
    # Last of all: a pod that is missing has often failed, and a failure says more.
    missing = waiting.missing_cause(observed, memory.waiting, now)
    if missing is None:
        return _Verdict(decision, known)
    if not isinstance(restart := decide(missing), Wait):
        return _Verdict(restart, missing)
    # No restarts are left. A new pod would fail the JobSet; without one, it must not hang.
    failure = waiting.failure_of_missing(observed, memory.waiting, now)
    return _Verdict(failure or decision, known, missing)


def _write(
    observed: ObservedEpochs, decision: Write, memory: EpochState, pace: Pace, now: Now
) -> EpochPlan:
    """Return the plan that writes a decision."""
    at, part = now.monotonic, memory.waiting
    run = memory.run.continued(observed.jobset, now)
    measured = Measured(run_so_far=run)
    result = Result.done(summary=transition.summary(decision))
    if isinstance(decision, Deprecate):
        begun = None
        if decision.charge is not None:
            # Also for a recreation, which names the same cause and first pod.
            begun = opened(observed, decision.charge, memory.cause, at)
            if transition.is_recreated(observed.jobset, decision.charge, observed.pods):
                return EpochPlan(
                    memory=attrs.evolve(memory, waiting=Waiting(), run=run.without_waiting()),
                    status=transition.recreation(observed, begun, pace, now),
                    result=Result.done(summary="recreates all jobs, since pods have succeeded"),
                )
        measured = run.deprecated(observed, decision.epoch, begun, at)
        part = part.closed(at, observed.stalled_after_s)
        result = Result.requeue_after(observed.stalled_after_s, summary=result.summary)
    elif isinstance(decision, Sync):
        measured = run.synced(observed, decision.charge, memory.cause, decision.seats_taken, at)
        part = Waiting()
    return EpochPlan(
        memory=attrs.evolve(memory, waiting=part, run=measured.run_so_far),
        status=transition.status_of(observed, decision, measured, run, now),
        measured=measured,
        result=result,
    )


def _wait(
    observed: ObservedEpochs, decision: Wait, missing: Cause | None, memory: EpochState, now: Now
) -> EpochPlan:
    """Return the plan while nothing changes an epoch."""
    jobset, pods, part, run = observed.jobset, observed.pods, memory.waiting, memory.run
    if decision.backoff_s:
        step = waiting.plan_backoff(observed, decision.backoff_s, part, now)
        run = run.waiting_for_backoff(now.monotonic)
    elif is_waiting(jobset.status, pods.epochs):
        step = waiting.plan_gathering(observed, part, now, decision.holder_wait_s)
        run = run.waiting_for_backoff(None)
    elif waiting.has_missing_pods(jobset, pods):
        step = waiting.plan_missing(observed, part, now, out_of_restarts=missing is not None)
    else:
        step = waiting.plan_complete(jobset, now)
        if isfinite(growth_s := resizing.growth_s(jobset, pods, now.wall)):
            step = attrs.evolve(step, result=Result.requeue_after(growth_s))
    if step.waiting.since is None:
        # A restart that another manager has ended, while this one did not lead.
        run = run.without_waiting()
    memory = attrs.evolve(memory, waiting=step.waiting, run=run)
    return EpochPlan(memory=memory, status=step.status, result=step.result)


def _without_decision(observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan | None:
    """Return the plan for a JobSet about which nothing is to be decided now; ``None`` otherwise."""
    jobset = observed.jobset
    part = takes_part(jobset) and not go_agents.managed_by_go_controller(jobset, observed.pods)
    # The cache lacks the own last write. A decision on it would repeat that write, and the conflict
    # would cost a read; observations are kept until then.
    if part and observed.wait_s > 0:
        return EpochPlan(memory=memory, result=Result.requeue_after(observed.wait_s))
    status = go_agents.adopt_go_controller_state(jobset, observed.pods)
    if status is not None:
        draft = StatusDraft(jobset.status, now.wall)
        draft.status = status
        again = Result.done(summary="attempts and epochs are in step")
        return EpochPlan(memory=memory, status=draft.change(), result=again)
    return None if part else _leave(jobset, now)


def _leave(jobset: JobSet, now: Now) -> EpochPlan:
    """Clear conditions that no longer hold for a JobSet that was suspended or has ended."""
    may_resume = jobset.spec.restarts_in_place and jobset.spec.suspend is True
    memory = EpochState(uid=jobset.metadata.uid, left=True) if may_resume else None
    if not is_handled(jobset):
        return EpochPlan(memory=memory, judged=True)
    over = conditions_to_clear(jobset)
    if not over:
        return EpochPlan(memory=memory, judged=True)
    return EpochPlan(
        memory=memory,
        status=condition_change(jobset, now, *over, announce=False),
        result=Result.done(summary="no further restart"),
        judged=True,
    )
