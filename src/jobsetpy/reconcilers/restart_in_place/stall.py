"""Barriers that stay closed."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place import pod_backoff
from jobsetpy.reconcilers.restart_in_place.barrier import group_size
from jobsetpy.reconcilers.restart_in_place.barrier_report import Delay, laggards
from jobsetpy.reconcilers.restart_in_place.barrier_state import next_epoch
from jobsetpy.reconcilers.restart_in_place.observed import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.state import EpochPlan, EpochState
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now

LOOK_AGAIN_MAX_S: Final = 600.0
"""Maximum interval in seconds between checks of the pods behind a closed barrier."""


def plan_gathering(
    jobset: JobSet,
    observed: ObservedEpochs,
    memory: EpochState,
    now: Now,
    call_s: float,
) -> EpochPlan:
    """Plan for a closed barrier without a decision: check for how long it has been closed.

    ``call_s`` is the time until spares take over for missing pods, 0 if none can.
    """
    pods, at = observed.pods, now.monotonic
    expected = group_size(jobset, pods) - pods.succeeded
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
        memory, change = _report_pods(jobset, observed, memory, epoch, now)
    wait_s = memory.look_at - at
    wait_s = min(wait_s, call_s) if call_s else wait_s
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait_s))


def plan_backoff(
    jobset: JobSet, observed: ObservedEpochs, wait_s: float, memory: EpochState, now: Now
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
    change = clear_stalled(jobset, keys.RESTART_BACKOFF_REASON, now)
    return EpochPlan(memory=memory, status=change, result=wait)


def _report_pods(
    jobset: JobSet, observed: ObservedEpochs, memory: EpochState, epoch: int, now: Now
) -> tuple[EpochState, StatusChange | None]:
    """Check which pods block the barrier, and report them unless already reported."""
    at = now.monotonic
    members, after_s = observed.members(), observed.stalled_after_s
    found = laggards(jobset, *members, epoch, after_s, delay_of(observed, now))
    # The longer nothing happens, the less often all pods are checked.
    waited = at - (at if memory.waiting_since is None else memory.waiting_since)
    memory = attrs.evolve(
        memory,
        missing=found.missing,
        stalled=found.missing > 0,
        look_at=at + max(observed.stalled_after_s, min(waited, LOOK_AGAIN_MAX_S)),
    )
    return set_stalled(
        jobset, memory, epoch, now, reason=keys.PODS_MISSING_REASON, message=found.message
    )


def delay_of(observed: ObservedEpochs, now: Now) -> Delay:
    """Return the function that explains the Job controller's delay."""
    return lambda job: pod_backoff.explain(job, observed.failed_at(job), now)


def set_stalled(
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


def clear_stalled(jobset: JobSet, reason: str, now: Now) -> StatusChange | None:
    """Clear the condition if it is set."""
    kind = keys.BARRIER_STALLED_CONDITION
    if not cond.is_true(jobset.status.conditions, kind):
        return None
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(cond.DesiredCondition(kind, False, reason, "no pod is waited for"), announce=False)
    return draft.change()


def reports_slowness(jobset: JobSet) -> bool:
    """Return True if the condition says that workers wait for a slow API server."""
    return any(
        each.type == keys.BARRIER_STALLED_CONDITION
        and each.status == "True"
        and each.reason == keys.API_SERVER_SLOW_REASON
        for each in jobset.status.conditions
    )
