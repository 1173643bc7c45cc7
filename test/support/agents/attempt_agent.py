"""Agents with the Go project's names for restart in place, by its documented protocol.

They only decide; the player of the kubelet executes the steps.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from jobsetpy.api import keys


class Step(enum.Enum):
    """Reaction of an agent to a state of its JobSet."""

    NOTHING = enum.auto()
    REPORT = enum.auto()
    LIFT = enum.auto()
    EXIT = enum.auto()


class AttemptAgent:
    """One run of one pod's agent.

    Attributes:
        attempt: that it has reported, if any.
        lifted: True if its workers run.
    """

    def __init__(self) -> None:
        self.attempt: int | None = None
        self.lifted = self._bypassed = False

    @property
    def annotations(self) -> dict[str, str]:
        """All annotations that it applies to its pod."""
        return {keys.ATTEMPT_ANNOTATION: str(self.attempt)}

    def hear(self, jobset: Mapping[str, Any]) -> Step:
        """Return the step for the JobSet's current state, which is taken with this call."""
        status = jobset.get("status") or {}
        current = status.get("currentInPlaceRestartAttempt")
        previous = status.get("previousInPlaceRestartAttempt")
        policy = jobset["spec"].get("failurePolicy") or {}
        annotations = jobset["metadata"].get("annotations") or {}
        if (
            self._bypassed
            or policy.get("restartStrategy") != "InPlaceRestart"
            or keys.DISABLE_IN_PLACE_ANNOTATION in annotations
        ):
            self._bypassed = True
            return self._lift()
        if self.attempt is None:
            self.attempt = 0 if current is None else current + 1
            return Step.REPORT
        if previous is not None and self.attempt <= previous:
            return Step.EXIT
        return self._lift() if self.attempt == current else Step.NOTHING

    def _lift(self) -> Step:
        step = Step.NOTHING if self.lifted else Step.LIFT
        self.lifted = True
        return step
