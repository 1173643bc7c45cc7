"""Status conditions, changed according to the Kubernetes API conventions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from jobsetpy.aio import LoopClock
from jobsetpy.api._wire import evolve
from jobsetpy.api.meta import Condition


def set_condition(
    conditions: tuple[Condition, ...],
    type: str,  # noqa: A002 - the field's name
    status: Literal["True", "False", "Unknown"] | bool | None,
    reason: str,
    message: str = "",
    *,
    observed_generation: int = 0,
    now: datetime | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions with one of them set; the same tuple if nothing changes.

    The transition time changes only with the status, and a condition keeps its position.

    Args:
        conditions: conditions of the object.
        type: type of the condition.
        status: a boolean, ``None`` for Unknown, or the text.
        reason: one word in CamelCase.
        message: for people.
        observed_generation: ``metadata.generation`` that this was derived from.
        now: transition time, stored in whole seconds as in the API; the current time when absent.

    Raises:
        ValueError: another status, or no reason.
    """
    text = {True: "True", False: "False", None: "Unknown"}.get(status, status)  # type: ignore[arg-type]
    if text not in {"True", "False", "Unknown"}:
        msg = f"the status of condition {type!r} is True, False or Unknown, not {status!r}"
        raise ValueError(msg)
    if not reason:
        raise ValueError(f"condition {type!r} needs a reason, one word in CamelCase")
    at = (LoopClock().now() if now is None else now).replace(microsecond=0)
    wanted = Condition(
        type=type,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=at,
        observed_generation=observed_generation,
    )
    for number, old in enumerate(conditions):
        if old.type == type:
            if old.status == text:
                wanted = evolve(wanted, last_transition_time=old.last_transition_time)
            if wanted == old:
                return conditions
            return (*conditions[:number], wanted, *conditions[number + 1 :])
    return (*conditions, wanted)


def condition_of(conditions: tuple[Condition, ...], type: str) -> Condition | None:  # noqa: A002
    """Return the condition of a type, with any status; ``None`` if there is none."""
    return next((each for each in conditions if each.type == type), None)
