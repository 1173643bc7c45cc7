"""Conditions and events that are not those of the decision itself."""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.durations import in_words
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.observed import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.backoff import Pace, within
from jobsetpy.reconcilers.rules.history import History
from jobsetpy.reconcilers.rules.plan import EmitEvent

LEAVE_OFTEN: Final = 3
"""Minimum number of restarts because of leaving pods within :data:`LEAVE_OFTEN_S` to report."""

LEAVE_OFTEN_S: Final = 3600.0


def conditions_to_clear(jobset: JobSet) -> tuple[cond.DesiredCondition, ...]:
    """Return conditions to clear on a JobSet that ends or no longer restarts in place."""
    conditions = jobset.status.conditions
    end = cond.finished(conditions)
    if end is not None:
        completed = end.type == keys.COMPLETED_CONDITION
        reason = keys.JOBSET_COMPLETED_REASON if completed else keys.JOBSET_FAILED_REASON
        message = "jobset completed" if completed else "jobset failed"
    elif jobset.spec.suspend is True:
        reason, message = keys.JOBSET_SUSPENDED_REASON, "jobset is suspended"
    else:
        return ()
    return tuple(
        cond.DesiredCondition(kind, False, reason, message)
        for kind in sorted(keys.IN_PLACE_CONDITIONS)
        if cond.is_true(conditions, kind)
    )


def requested_condition(
    cause: Cause | None, events: tuple[EmitEvent, ...]
) -> tuple[cond.DesiredCondition, ...]:
    """Return the condition for a requested restart of the whole group."""
    if cause is None or cause.sign not in {FailureSignal.REQUESTED, FailureSignal.POD_LEAVING}:
        return ()
    kind = keys.RESTARTING_IN_PLACE_CONDITION
    return tuple(
        cond.DesiredCondition(kind, True, cause.condition_reason, event.message)
        for event in events
        if event.reason == keys.IN_PLACE_RESTART_STARTED_REASON
    )


def leaving_often(history: History, pace: Pace) -> tuple[EmitEvent, ...]:
    """Return a warning if a group restarts repeatedly because pods are evicted or deleted.

    Such restarts are not counted, so ``maxRestarts`` does not end a JobSet whose pods are evicted
    again and again by a descheduler or by a repeatedly tainted node.
    """
    times = tuple(
        each.began_at
        for each in history
        if each.began_at is not None
        and each.cause is not None
        and each.cause.reason == keys.POD_LEAVING_REASON
    )
    count = len(within(times, pace.now, LEAVE_OFTEN_S)) + 1
    if count < LEAVE_OFTEN:
        return ()
    message = (
        f"{count} restarts within {in_words(LEAVE_OFTEN_S)} because pods were asked to leave their "
        "nodes; these do not count towards maxRestarts: check what evicts the pods (drains, a "
        "descheduler, taints, preemption)"
    )
    return (EmitEvent(cond.WARNING, keys.PODS_LEAVE_OFTEN_REASON, message),)


_MAX_TEXT: Final = 40


def invalid_notices(observed: ObservedEpochs, memory: EpochState) -> tuple[EmitEvent, ...]:
    """Return one Warning for each pod and invalid value."""
    return tuple(
        EmitEvent(
            cond.WARNING,
            keys.INVALID_EPOCH_REASON,
            f"pod {item.pod_name!r} is not counted: the annotation "
            f"{keys.ATTEMPT_ANNOTATION if item.is_attempt else keys.EPOCH_ANNOTATION} "
            f"has the unusable value {_shortened(item.text)!r}; "
            "delete the pod, and its Job makes another one",
            pod=item.pod_name,
        )
        for item in observed.invalid.values()
        if item not in memory.told
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
