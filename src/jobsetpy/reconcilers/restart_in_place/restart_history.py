"""Records of restarts in place in the JobSet's history (``reconcilers.rules.history``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import RestartCause, RestartRecord
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.restart import Restart
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now


def write_history(
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
