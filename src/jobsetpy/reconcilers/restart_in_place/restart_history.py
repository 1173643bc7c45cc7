"""Records of restarts in place in the JobSet's history (``reconcilers.rules.history``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import RestartCause, RestartRecord
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.observed import Observations
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def begin(
    draft: StatusDraft,
    epoch: int,
    why: RestartCause,
    began: float,
    now: Now,
    *,
    counted: bool,
) -> None:
    """Record the beginning of a restart in place.

    A restart that does not count because Jobs are recreated is part of the restart of those Jobs.

    Args:
        draft: status draft whose history receives the record.
        epoch: epoch that is opened.
        why: its cause.
        began: monotonic time of its first sign.
        now: time on both clocks.
        counted: True if it counts towards ``maxRestarts``.
    """
    known = draft.status.restart_history
    if not counted and history.is_open(known) and known[-1].kind != history.IN_PLACE:
        return
    before = max(0.0, now.monotonic - began)
    draft.record(
        RestartRecord(
            kind=history.IN_PLACE,
            number=epoch,
            counted=counted,
            began_at=history.whole_millis(now.wall - timedelta(seconds=before)),
            cause=why,
            detection_millis=history.millis(before),
        )
    )


def end(
    draft: StatusDraft,
    epoch: int,
    notes: Observations,
    phases: Mapping[Any, float],
    seats_taken: int = 0,
) -> None:
    """Record the end of a restart: the barrier lifts.

    Args:
        draft: status draft whose history is changed.
        epoch: epoch that is synced.
        notes: observations, for the pod that arrived last.
        phases: durations of the measured phases, in seconds.
        seats_taken: number of seats that spares have taken over.
    """
    details: dict[str, Any] = {"seats_taken": seats_taken} if seats_taken else {}
    if "deprecate" in phases:
        details["deprecation_millis"] = history.millis(phases["deprecate"])
    if "gather" in phases:
        details["gathering_millis"] = history.millis(phases["gather"])
    newest, pod, node = notes.latest
    if newest == epoch:
        details.update(last_pod=pod, last_node=node)
    draft.end_restart(**details)


def cause_of(cause: Cause | None, notes: Observations, epoch: int) -> RestartCause:
    """Return the cause for which an epoch is opened.

    Args:
        cause: the failure that ended the previous epoch, if it was detected.
        notes: observations, for the first pod that has reached the new one.
        epoch: the new one.
    """
    if cause is None:
        newest, pod, node = notes.opener
        known = newest == epoch
        return RestartCause(
            reason=keys.POD_RESTARTED_REASON, pod=pod if known else "", node=node if known else ""
        )
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
