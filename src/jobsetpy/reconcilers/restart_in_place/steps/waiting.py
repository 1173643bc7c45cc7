"""Pods that a group waits for: behind a closed barrier, or missing while the others run."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import (
    group_size,
    live_pods,
    succeeded_pods,
)
from jobsetpy.reconcilers.restart_in_place.epochs.budget import (
    missing_pods_failure,
    renewal_of_group,
)
from jobsetpy.reconcilers.restart_in_place.epochs.decision import Fail
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.steps.missing_pods import (
    MissingPods,
    describe_behind,
    describe_missing,
)
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.barrier_state import is_waiting, next_epoch
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, condition_change
from jobsetpy.reconcilers.rules.times import Now

LOOK_AGAIN_MAX_S: Final = 600.0
"""Maximum interval in seconds between checks of the pods that are waited for."""


@attrs.frozen(kw_only=True)
class Waiting:
    """State of the pods that are waited for; this module alone makes another one.

    All times are on the monotonic clock.

    Args:
        since: time at which the barrier was first observed as closed.
        lacking_since: time since which workers run without their whole group.
        look_at: time of the next check for pods that block the barrier, or are missing.
        stall_reported: the epoch whose stalled barrier an event has reported.
        missing: number of pods that were waited for at the last check.
        stalled: True if the barrier is stalled, and its pods were checked.
    """

    since: float | None = None
    lacking_since: float | None = None
    look_at: float = 0.0
    stall_reported: int = 0
    missing: int = 0
    stalled: bool = False

    def closed(self, at: float, stalled_after_s: float) -> Waiting:
        """Return the state when an epoch is deprecated, which closes the barrier."""
        return attrs.evolve(self, since=at, lacking_since=None, look_at=at + stalled_after_s)

    def complete(self) -> Waiting:
        """Return the state while no pod is missing from a running group."""
        return attrs.evolve(self, lacking_since=None)


@attrs.frozen
class Step:
    """Step of a plan while pods are waited for.

    Args:
        waiting: state for the next plan.
        result: time of the next plan.
        status: change of a condition; ``None`` to leave it.
    """

    waiting: Waiting
    result: Result = attrs.field(factory=Result.done)
    status: StatusChange | None = None


def plan_gathering(
    observed: ObservedEpochs, waiting: Waiting, now: Now, holder_wait_s: float
) -> Step:
    """Plan for a closed barrier without a decision: check for how long it has been closed.

    ``holder_wait_s`` is the time until spares take over for missing pods, 0 if none can.
    """
    jobset, pods, at = observed.jobset, observed.pods, now.monotonic
    expected = live_pods(jobset, pods)
    # All pods have succeeded while the barrier was closed: no pod is waited for, and the Jobs end.
    if expected <= 0 and not pods.epochs:
        return Step(Waiting())
    epoch = next_epoch(jobset.status, pods.epochs)
    missing = max(0, expected - pods.epochs.get(epoch, 0))
    waiting = attrs.evolve(waiting, missing=missing, stalled=waiting.stalled and missing > 0)
    if waiting.since is None:
        waiting = waiting.closed(at, observed.stalled_after_s)
    change = None
    if at >= waiting.look_at:
        waiting, change = _report_pods(observed, waiting, epoch, now)
    wait_s = waiting.look_at - at
    wait_s = min(wait_s, holder_wait_s) if holder_wait_s else wait_s
    return Step(waiting, Result.requeue_after(wait_s), change)


def plan_backoff(observed: ObservedEpochs, wait_s: float, waiting: Waiting, now: Now) -> Step:
    """Plan for a complete group while the back-off after restarts in quick succession lasts."""
    waiting = attrs.evolve(
        waiting.closed(now.monotonic, observed.stalled_after_s), missing=0, stalled=False
    )
    wait = Result.requeue_after(wait_s, summary="waits for the back-off")
    change = _clear_stalled(observed.jobset, keys.RESTART_BACKOFF_REASON, now)
    return Step(waiting, wait, change)


def _report_pods(
    observed: ObservedEpochs, waiting: Waiting, epoch: int, now: Now
) -> tuple[Waiting, StatusChange | None]:
    """Check which pods block the barrier, and report them unless already reported."""
    jobset, at = observed.jobset, now.monotonic
    members, after_s = observed.members(), observed.stalled_after_s
    found = describe_behind(jobset, *members, observed.pods.spares, epoch, after_s)
    # The longer nothing happens, the less often all pods are checked.
    waited = at - (at if waiting.since is None else waiting.since)
    waiting = attrs.evolve(
        waiting,
        missing=found.missing,
        stalled=found.missing > 0,
        look_at=at + max(observed.stalled_after_s, min(waited, LOOK_AGAIN_MAX_S)),
    )
    return _set_stalled(
        jobset, waiting, epoch, now, reason=keys.PODS_MISSING_REASON, message=found.message
    )


def _set_stalled(
    jobset: JobSet, waiting: Waiting, epoch: int, now: Now, *, reason: str, message: str
) -> tuple[Waiting, StatusChange | None]:
    """Set the condition if it differs, with one event per epoch."""
    draft = StatusDraft(jobset.status, now.wall)
    kind = keys.BARRIER_STALLED_CONDITION
    if not draft.set(cond.DesiredCondition(kind, True, reason, message), announce=False):
        return waiting, None
    # The condition's text changes with each pod that comes; events would be as many.
    if waiting.stall_reported != epoch:
        waiting = attrs.evolve(waiting, stall_reported=epoch)
        draft.add_events(EmitEvent(cond.WARNING, kind, message))
    return waiting, draft.change()


def _clear_stalled(jobset: JobSet, reason: str, now: Now) -> StatusChange | None:
    """Clear the condition if it is set."""
    kind = keys.BARRIER_STALLED_CONDITION
    if not cond.is_true(jobset.status.conditions, kind):
        return None
    over = cond.DesiredCondition(kind, False, reason, "no pod is waited for")
    return condition_change(jobset, now, over, announce=False)


# ---- running groups ------------------------------------------------------------------------------


def has_missing_pods(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if workers run without their whole group, though it was not resized."""
    if is_waiting(jobset.status, pods.epochs):
        return False
    expected = group_size(jobset, pods)
    # A pod that is being deleted has not gone, but its worker has or will: its node may be lost,
    # and its object may then stay for hours.
    present = pods.epochs.get(jobset.status.synced_epoch, 0) - pods.leaving
    lacking = present < expected - succeeded_pods(pods)
    return lacking and not renewal_of_group(jobset, expected)


def missing_cause(observed: ObservedEpochs, waiting: Waiting, now: Now) -> Cause | None:
    """Return the pods that have been missing for too long as the cause of a restart; O(pods)."""
    if waiting.lacking_since is None or now.monotonic < waiting.look_at:
        return None
    found = _absent(observed, f"for more than {observed.missing_after_s:g} s")
    if not found.missing:
        return None
    epoch = observed.jobset.status.synced_epoch
    return Cause(epoch, FailureKind.PODS_MISSING, "", reason=found.message)


def failure_of_missing(observed: ObservedEpochs, waiting: Waiting, now: Now) -> Fail | None:
    """Return the failure of a JobSet that has missed pods for long, without a restart left.

    A new pod would fail the JobSet; without one, it must not hang.
    """
    patience = _patience(observed)
    if now.monotonic - _lacking_since(waiting, now) < patience:
        return None
    found = _absent(observed, f"for more than {patience:g} s")
    return Fail(failure=missing_pods_failure(found.message))


def plan_missing(
    observed: ObservedEpochs, waiting: Waiting, now: Now, *, out_of_restarts: bool
) -> Step:
    """Plan for running workers that lack pods, without a decision.

    ``out_of_restarts`` says that the missing pods would be a reason for a restart.
    """
    at, grace = now.monotonic, observed.missing_after_s
    if waiting.lacking_since is None:
        waiting = Waiting(lacking_since=at, look_at=at + grace)
    if at < waiting.look_at:
        return Step(waiting, Result.requeue_after(waiting.look_at - at))
    lacking_s = at - _lacking_since(waiting, now)
    if not out_of_restarts:
        # They belong to Jobs that are about to end: check later.
        pause = max(grace, min(lacking_s, LOOK_AGAIN_MAX_S))
        return Step(attrs.evolve(waiting, look_at=at + pause), Result.requeue_after(pause))
    found = _absent(observed, f"since {seconds_text(now.wall - timedelta(seconds=lacking_s))}")
    message = (
        f"{found.message}; no restarts are left, so the jobset fails if it is not complete "
        f"{observed.stalled_after_s:g} s later"
    )
    look_at = at - lacking_s + _patience(observed)
    waiting = attrs.evolve(waiting, missing=found.missing, stalled=True, look_at=look_at)
    epoch = observed.jobset.status.synced_epoch
    waiting, change = _set_stalled(
        observed.jobset, waiting, epoch, now, reason=keys.NO_RESTARTS_LEFT_REASON, message=message
    )
    return Step(waiting, Result.requeue_after(look_at - at), change)


def _lacking_since(waiting: Waiting, now: Now) -> float:
    return now.monotonic if waiting.lacking_since is None else waiting.lacking_since


def _patience(observed: ObservedEpochs) -> float:
    return observed.missing_after_s + observed.stalled_after_s


def _absent(observed: ObservedEpochs, since: str) -> MissingPods:
    jobs, pods = observed.members()
    return describe_missing(observed.jobset, jobs, pods, observed.pods.spares, since)


def plan_complete(jobset: JobSet, now: Now) -> Step:
    """Plan for a running group that is complete, or will be."""
    return Step(Waiting(), status=_clear_stalled(jobset, keys.BARRIER_LIFTED_REASON, now))
