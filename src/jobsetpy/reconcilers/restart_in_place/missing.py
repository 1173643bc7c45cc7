"""Running groups, and pods that are missing from them."""

from __future__ import annotations

from datetime import timedelta

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.restart_in_place.barrier_report import absentees
from jobsetpy.reconcilers.restart_in_place.barrier_state import is_waiting
from jobsetpy.reconcilers.restart_in_place.budget import missing_pods_failure, renewed
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.decision import EpochDecision, decide_epochs
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.pause import pace_of
from jobsetpy.reconcilers.restart_in_place.stall import (
    LOOK_AGAIN_MAX_S,
    clear_stalled,
    delay_of,
    set_stalled,
)
from jobsetpy.reconcilers.restart_in_place.state import EpochPlan, EpochState
from jobsetpy.reconcilers.restart_in_place.transition import plan_transition
from jobsetpy.reconcilers.rules.times import Now


def has_missing_pods(jobset: JobSet, pods: Histogram, expected: int) -> bool:
    """Return True if workers run without their whole group, though it was not resized.

    Args:
        jobset: the JobSet.
        pods: counts of its group.
        expected: the group's size.
    """
    if is_waiting(jobset.status, pods.epochs):
        return False
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    return present < expected - pods.succeeded and not renewed(jobset, expected)


def plan_missing(
    jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now
) -> EpochPlan:
    """Plan for running workers that lack pods, without a decision."""
    at, grace = now.monotonic, observed.missing_after_s
    lacking_since = at if memory.lacking_since is None else memory.lacking_since
    if memory.lacking_since is None:
        memory = attrs.evolve(memory.at_rest(), lacking_since=at, look_at=at + grace)
    if at < memory.look_at:
        return EpochPlan(memory=memory, result=Result.requeue_after(memory.look_at - at))
    lacking_s = at - lacking_since
    jobs, pods = observed.members()
    delay = delay_of(observed, now)
    found = absentees(jobset, jobs, pods, f"for more than {grace:g} s", delay)
    if not found.missing:
        # They belong to Jobs that are about to end: check later.
        pause = max(grace, min(lacking_s, LOOK_AGAIN_MAX_S))
        memory = attrs.evolve(memory, look_at=at + pause)
        return EpochPlan(memory=memory, result=Result.requeue_after(pause))
    epoch = jobset.status.synced_epoch
    cause = Cause(epoch, FailureSignal.PODS_MISSING, "", reason=found.message)
    pace = pace_of(jobset, observed, memory, now)
    decision = decide_epochs(jobset, observed.pods, cause, pace)
    if not decision.empty:
        memory = attrs.evolve(memory, cause=cause, lacking_since=None)
        return plan_transition(jobset, observed, decision, memory, now)
    # No restarts are left. A new pod would fail the JobSet; without one, it must not hang.
    patience = grace + observed.stalled_after_s
    if lacking_s >= patience:
        found = absentees(jobset, jobs, pods, f"for more than {patience:g} s", delay)
        failed = EpochDecision(failed=missing_pods_failure(found.message))
        return plan_transition(jobset, observed, failed, memory, now)
    since = f"since {seconds_text(now.wall - timedelta(seconds=lacking_s))}"
    who = absentees(jobset, jobs, pods, since, delay).message
    message = (
        f"{who}; no restarts are left, so the jobset fails if it is not complete "
        f"{observed.stalled_after_s:g} s later"
    )
    memory = attrs.evolve(
        memory, missing=found.missing, stalled=True, look_at=lacking_since + patience
    )
    memory, change = set_stalled(
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
        memory, change = set_stalled(
            jobset, memory, epoch, now, reason=keys.API_SERVER_SLOW_REASON, message=message
        )
        return EpochPlan(memory=memory, status=change)
    change = clear_stalled(jobset, keys.BARRIER_LIFTED_REASON, now)
    return EpochPlan(memory=memory.at_rest(), status=change)
