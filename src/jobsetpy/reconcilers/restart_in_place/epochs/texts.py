"""Texts of conditions and events about restarts in place."""

from __future__ import annotations

from itertools import islice
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.in_place_record import Renewal
from jobsetpy.reconcilers.rules.plan import EmitEvent


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


@attrs.frozen
class Texts:
    """Conditions and events for a change of the epochs."""

    conditions: tuple[cond.DesiredCondition, ...] = ()
    events: tuple[EmitEvent, ...] = ()


def restart_begun(charge: EpochCharge, cause: Cause | None, pods: GroupCounts, delay: str) -> Texts:
    """Return the texts for the beginning of a restart that counts.

    Args:
        charge: charge of the epoch that it opens.
        cause: its cause, if that is known.
        pods: counts of the pods.
        delay: clause about its back-off, or "".
    """
    new, reason = charge.epoch, keys.POD_RESTARTED_REASON
    if cause is not None:
        reason, why = cause.condition_reason, str(cause)
    else:
        first = pods.notes.opener
        known = first.pod and first.epoch == new
        why = f"pod {first.pod!r} has restarted" if known else "a pod has restarted"
    message = f"{why}: restarting in place from epoch {new - 1} to {new}"
    behind = _behind(pods, new)
    if behind:
        message += f", {behind} {'pod' if behind == 1 else 'pods'} to follow"
    if pods.succeeded:
        succeeded = "1 pod has" if pods.succeeded == 1 else f"{pods.succeeded} pods have"
        message += f"; {succeeded} succeeded and will not come along"
    return _started(reason, f"{message}; {delay}" if delay else message)


def uncounted_begun(charge: EpochCharge, cause: Cause | None, pods: GroupCounts) -> Texts:
    """Return the texts for a new epoch that does not count; none if no running pod restarts."""
    new = charge.epoch
    if charge.renewal is Renewal.RESIZED and _behind(pods, new):
        message = f"the group has another size: running pods restart in place, epoch {new}"
        event = EmitEvent(cond.NORMAL, keys.IN_PLACE_GROUP_RESIZED_REASON, message)
        return Texts(events=(event,))
    if charge.renewal is not Renewal.UNCOUNTED or cause is None:
        return Texts()
    message = f"{cause}: restarting in place from epoch {new - 1} to {new}, not counted"
    texts = _started(cause.condition_reason, message)
    if cause.kind is None:
        return Texts(events=texts.events)  # the restart of its Job has conditions of its own
    return texts


def _behind(pods: GroupCounts, new: int) -> int:
    """Return the number of pods that have not come to the new epoch."""
    return sum(count for epoch, count in pods.epochs.items() if epoch < new)


def _started(reason: str, message: str) -> Texts:
    kind = keys.RESTARTING_IN_PLACE_CONDITION
    return Texts(
        (cond.DesiredCondition(kind, True, reason, message),),
        (EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_STARTED_REASON, message),),
    )


def barrier_lifted(charge: EpochCharge, count: int) -> Texts:
    """Return the texts for an epoch that is synced with a number of pods."""
    who = "pod is" if count == 1 else "pods are"
    message = f"{count} {who} at epoch {charge.epoch}: workers may run"
    event = EmitEvent(cond.NORMAL, keys.IN_PLACE_RESTART_COMPLETED_REASON, message)
    lifted = keys.BARRIER_LIFTED_REASON
    kinds = (keys.RESTARTING_IN_PLACE_CONDITION, keys.BARRIER_STALLED_CONDITION)
    return Texts(
        tuple(cond.DesiredCondition(kind, False, lifted, message) for kind in kinds),
        (event,) if charge.is_in_place_restart else (),
    )


MAX_LOG_REPORTS: Final = 20
"""Maximum number of pods whose lines are events at a time."""


def log_reports(observed: ObservedEpochs) -> list[EmitEvent]:
    """Return a Warning for the last line that each pod reports by a rule on its output."""
    found = [(pod.metadata.name, pod.metadata.annotations.log_report) for pod in observed.reporters]
    return [
        EmitEvent(
            cond.WARNING, keys.LOG_RULE_REASON, f"pod {name!r}: log rule {_line(text)}", pod=name
        )
        for name, text in islice(((name, text) for name, text in found if text), MAX_LOG_REPORTS)
    ]


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
