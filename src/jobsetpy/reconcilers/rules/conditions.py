"""Update rule for a JobSet's conditions, and all conditions that the controllers set.

The update rule has two properties that users' tools rely on: a condition appears only when it
becomes True (never as False), and an unchanged condition is neither written nor announced.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.meta import Condition, condition_true

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_PAIRS: Final = (
    (keys.STARTUP_IN_PROGRESS_CONDITION, keys.STARTUP_COMPLETED_CONDITION),
    (keys.GROUP_IN_PROGRESS_CONDITION, keys.GROUP_COMPLETED_CONDITION),
    (keys.COSCHEDULING_IN_PROGRESS_CONDITION, keys.COSCHEDULING_COMPLETED_CONDITION),
)
_EXCLUSIVE: Final = {**dict(_PAIRS), **{other: one for one, other in _PAIRS}}


@attrs.frozen
class DesiredCondition:
    """Desired condition, with the type of the event that announces a change."""

    type: str
    status: bool
    reason: str
    message: str
    event_type: str = NORMAL


def updated(
    conditions: tuple[Condition, ...], wanted: DesiredCondition, now: datetime
) -> tuple[Condition, ...] | None:
    """Return the conditions with ``wanted`` applied, or ``None`` if that changes nothing.

    * Another status replaces the condition, with a new transition time.
    * Another reason or message replaces it and keeps the transition time.
    * A missing condition is appended if desired as True; if desired as False it stays missing.
    * When one of two exclusive conditions becomes True, only the *status* of the other flips.

    Args:
        conditions: conditions of the JobSet.
        wanted: the desired condition.
        now: aware time; stored in whole seconds, as in the API.
    """
    status = "True" if wanted.status else "False"
    exclusive = _EXCLUSIVE.get(wanted.type) if wanted.status else None
    out: list[Condition] = []
    found = False
    for old in conditions:
        new = old
        if old.type == wanted.type and not found:
            found = True
            since = old.last_transition_time if old.status == status else None
            if (old.status, old.reason, old.message) != (status, wanted.reason, wanted.message):
                new = _condition(wanted, status, since or now)
        elif old.type == exclusive and old.status == "True":
            new = evolve(old, status="False")
        out.append(new)
    if not found and wanted.status:
        out.append(_condition(wanted, status, now))
    return None if tuple(out) == conditions else tuple(out)


def finished(conditions: tuple[Condition, ...]) -> Condition | None:
    """Return the first of ``Completed`` and ``Failed`` that is True; that is final."""
    for condition in conditions:
        if condition.status == "True" and condition.type in {
            keys.COMPLETED_CONDITION,
            keys.FAILED_CONDITION,
        }:
            return condition
    return None


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Return True if a condition of that type is True."""
    return condition_true(conditions, kind) is not None


def _condition(wanted: DesiredCondition, status: str, since: datetime) -> Condition:
    return Condition(
        type=wanted.type,
        status=status,
        reason=wanted.reason,
        message=wanted.message,
        last_transition_time=since.replace(microsecond=0),
    )


def _restart_ended(reason: str, message: str) -> DesiredCondition:
    return DesiredCondition(keys.RESTARTING_CONDITION, False, reason, message)


COMPLETED: Final = DesiredCondition(
    keys.COMPLETED_CONDITION, True, keys.ALL_JOBS_COMPLETED_REASON, "jobset completed successfully"
)
SUSPENDED: Final = DesiredCondition(
    keys.SUSPENDED_CONDITION, True, keys.SUSPENDED_REASON, "jobset is suspended"
)
RESUMED: Final = DesiredCondition(
    keys.SUSPENDED_CONDITION, False, keys.RESUMED_REASON, "jobset is resumed"
)
RESTART_ENDED_READY: Final = _restart_ended(keys.JOBS_READY_REASON, "all jobs are ready")
RESTART_ENDED_FAILED: Final = _restart_ended(keys.JOBSET_FAILED_REASON, "jobset failed")
RESTART_ENDED_COMPLETED: Final = _restart_ended(
    keys.JOBSET_COMPLETED_REASON, "jobset completed successfully"
)
RESTART_ENDED_SUSPENDED: Final = _restart_ended(keys.JOBSET_SUSPENDED_REASON, "jobset is suspended")
STARTUP_IN_PROGRESS: Final = DesiredCondition(
    keys.STARTUP_IN_PROGRESS_CONDITION,
    True,
    keys.IN_ORDER_IN_PROGRESS_REASON,
    "in order startup policy is in progress",
)
STARTUP_COMPLETED: Final = DesiredCondition(
    keys.STARTUP_COMPLETED_CONDITION,
    True,
    keys.IN_ORDER_COMPLETED_REASON,
    "in order startup policy has completed",
)


def failed(reason: str, message: str) -> DesiredCondition:
    """Return the condition that ends a JobSet as failed."""
    return DesiredCondition(keys.FAILED_CONDITION, True, reason, message, WARNING)


def restarting(reason: str, message: str) -> DesiredCondition:
    """Return the condition that all Jobs are being recreated."""
    return DesiredCondition(keys.RESTARTING_CONDITION, True, reason, message, WARNING)
