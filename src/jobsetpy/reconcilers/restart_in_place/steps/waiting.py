"""Pods that a group waits for: behind a closed barrier, or missing while the others run."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import condition_true
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import group_size, live_pods
from jobsetpy.reconcilers.restart_in_place.epochs.budget import missing_pods_failure, renewed
from jobsetpy.reconcilers.restart_in_place.epochs.decision import EpochDecision, decide_epochs
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.history.memory import EpochPlan, EpochState
from jobsetpy.reconcilers.restart_in_place.job_controller import replacement_delay
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.reports.barrier_state import is_waiting, next_epoch
from jobsetpy.reconcilers.restart_in_place.steps.missing_pods import Delay, absentees, laggards
from jobsetpy.reconcilers.restart_in_place.steps.transition import plan_transition
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now

LOOK_AGAIN_MAX_S: Final = 600.0
"""Maximum interval in seconds between checks of the pods that are waited for."""


def plan_gathering(
    observed: ObservedEpochs, memory: EpochState, now: Now, call_s: float
) -> EpochPlan:
    """Plan for a closed barrier without a decision: check for how long it has been closed.

    ``call_s`` is the time until spares take over for missing pods, 0 if none can.
    """
    jobset, pods, at = observed.jobset, observed.pods, now.monotonic
    expected = live_pods(jobset, pods)
    if expected <= 0 and not pods.epochs:
        return EpochPlan(memory=memory.at_rest())
    epoch = next_epoch(jobset.status, pods.epochs)
    missing = max(0, expected - pods.epochs.get(epoch, 0))
    stalled = memory.stalled and missing > 0
    memory = attrs.evolve(memory.held(None), missing=missing, stalled=stalled)
    if memory.waiting_since is None:
        memory = attrs.evolve(memory, waiting_since=at, look_at=at + observed.stalled_after_s)
    change = None
    if at >= memory.look_at:
        memory, change = _report_pods(observed, memory, epoch, now)
    wait_s = memory.look_at - at
    wait_s = min(wait_s, call_s) if call_s else wait_s
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait_s))


def plan_backoff(
    observed: ObservedEpochs, wait_s: float, memory: EpochState, now: Now
) -> EpochPlan:
    """Plan for a complete group while the back-off after restarts in quick succession lasts."""
    at = now.monotonic
    memory = attrs.evolve(
        memory.held(at),
        waiting_since=at,
        look_at=at + observed.stalled_after_s,
        missing=0,
        stalled=False,
    )
    wait = Result.requeue_after(wait_s, summary="waits for the back-off")
    change = _clear_stalled(observed.jobset, keys.RESTART_BACKOFF_REASON, now)
    return EpochPlan(memory=memory, status=change, result=wait)


def _report_pods(
    observed: ObservedEpochs, memory: EpochState, epoch: int, now: Now
) -> tuple[EpochState, StatusChange | None]:
    """Check which pods block the barrier, and report them unless already reported."""
    jobset, at = observed.jobset, now.monotonic
    members, after_s = observed.members(), observed.stalled_after_s
    found = laggards(jobset, *members, epoch, after_s, _delay_of(observed, now))
    # The longer nothing happens, the less often all pods are checked.
    waited = at - (at if memory.waiting_since is None else memory.waiting_since)
    memory = attrs.evolve(
        memory,
        missing=found.missing,
        stalled=found.missing > 0,
        look_at=at + max(observed.stalled_after_s, min(waited, LOOK_AGAIN_MAX_S)),
    )
    return _set_stalled(
        jobset, memory, epoch, now, reason=keys.PODS_MISSING_REASON, message=found.message
    )


def _delay_of(observed: ObservedEpochs, now: Now) -> Delay:
    """Return the function that explains the Job controller's delay."""
    return lambda job: replacement_delay.explain(job, observed.failed_at(job), now)


def _set_stalled(
    jobset: JobSet, memory: EpochState, epoch: int, now: Now, *, reason: str, message: str
) -> tuple[EpochState, StatusChange | None]:
    """Set the condition if it differs, with one event per epoch."""
    draft = StatusDraft(jobset.status, now.wall)
    kind = keys.BARRIER_STALLED_CONDITION
    if not draft.set(cond.DesiredCondition(kind, True, reason, message), announce=False):
        return memory, None
    if memory.stall_reported != epoch:
        memory = attrs.evolve(memory, stall_reported=epoch)
        draft.tell(EmitEvent(cond.WARNING, kind, message))
    return memory, draft.change()


def _clear_stalled(jobset: JobSet, reason: str, now: Now) -> StatusChange | None:
    """Clear the condition if it is set."""
    kind = keys.BARRIER_STALLED_CONDITION
    if not cond.is_true(jobset.status.conditions, kind):
        return None
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(cond.DesiredCondition(kind, False, reason, "no pod is waited for"), announce=False)
    return draft.change()


def reports_slowness(jobset: JobSet) -> bool:
    """Return True if the condition says that workers wait for a slow API server."""
    stalled = condition_true(jobset.status.conditions, keys.BARRIER_STALLED_CONDITION)
    return stalled is not None and stalled.reason == keys.API_SERVER_SLOW_REASON


# ---- running groups ------------------------------------------------------------------------------


def has_missing_pods(jobset: JobSet, pods: Histogram) -> bool:
    """Return True if workers run without their whole group, though it was not resized."""
    if is_waiting(jobset.status, pods.epochs):
        return False
    expected = group_size(jobset, pods)
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    return present < expected - pods.succeeded and not renewed(jobset, expected)


def plan_missing(observed: ObservedEpochs, memory: EpochState, pace: Pace, now: Now) -> EpochPlan:
    """Plan for running workers that lack pods, without a decision."""
    jobset, at, grace = observed.jobset, now.monotonic, observed.missing_after_s
    lacking_since = at if memory.lacking_since is None else memory.lacking_since
    if memory.lacking_since is None:
        memory = attrs.evolve(memory.at_rest(), lacking_since=at, look_at=at + grace)
    if at < memory.look_at:
        return EpochPlan(memory=memory, result=Result.requeue_after(memory.look_at - at))
    lacking_s = at - lacking_since
    jobs, pods = observed.members()
    delay = _delay_of(observed, now)
    found = absentees(jobset, jobs, pods, f"for more than {grace:g} s", delay)
    if not found.missing:
        # They belong to Jobs that are about to end: check later.
        pause = max(grace, min(lacking_s, LOOK_AGAIN_MAX_S))
        memory = attrs.evolve(memory, look_at=at + pause)
        return EpochPlan(memory=memory, result=Result.requeue_after(pause))
    epoch = jobset.status.synced_epoch
    cause = Cause(epoch, FailureSignal.PODS_MISSING, "", reason=found.message)
    decision = decide_epochs(jobset, observed.pods, cause, pace)
    if not decision.empty:
        memory = attrs.evolve(memory, cause=cause, lacking_since=None)
        return plan_transition(observed, decision, memory, now)
    # No restarts are left. A new pod would fail the JobSet; without one, it must not hang.
    patience = grace + observed.stalled_after_s
    if lacking_s >= patience:
        found = absentees(jobset, jobs, pods, f"for more than {patience:g} s", delay)
        failed = EpochDecision(failed=missing_pods_failure(found.message))
        return plan_transition(observed, failed, memory, now)
    since = f"since {seconds_text(now.wall - timedelta(seconds=lacking_s))}"
    who = absentees(jobset, jobs, pods, since, delay).message
    message = (
        f"{who}; no restarts are left, so the jobset fails if it is not complete "
        f"{observed.stalled_after_s:g} s later"
    )
    memory = attrs.evolve(
        memory, missing=found.missing, stalled=True, look_at=lacking_since + patience
    )
    memory, change = _set_stalled(
        jobset, memory, epoch, now, reason=keys.NO_RESTARTS_LEFT_REASON, message=message
    )
    wait_s = memory.look_at - at
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait_s))


def plan_complete(jobset: JobSet, pods: Histogram, memory: EpochState, now: Now) -> EpochPlan:
    """Plan for a running group that is complete, or will be: at most the API server is slow."""
    if pods.slow:
        # No number: each pod that is confirmed would cost a write to a server that is slow.
        epoch = jobset.status.synced_epoch
        message = (
            f"workers of epoch {epoch} are not started yet, since the API server takes more than "
            "5 s to patch a pod: a pod with a lost-node deadline starts its worker only after the "
            "API server has confirmed that the pod exists; check the load of the API server"
        )
        memory, change = _set_stalled(
            jobset, memory, epoch, now, reason=keys.API_SERVER_SLOW_REASON, message=message
        )
        return EpochPlan(memory=memory, status=change)
    change = _clear_stalled(jobset, keys.BARRIER_LIFTED_REASON, now)
    return EpochPlan(memory=memory.at_rest(), status=change)
