"""Conditions of a JobSet about its gangs, and the intervals between their updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.gangs import Gang
from jobsetpy.reconcilers.coscheduling.tally import GangCounts
from jobsetpy.reconcilers.rules.conditions import WARNING, DesiredCondition

TELL_AFTER_S: Final = 1.0
"""Delay in seconds before waiting gangs are reported; faster ones are reported once bound."""

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""Minimum and maximum interval between updates of the numbers, in seconds."""

NAMED: Final = 3
"""Maximum number of waiting gangs that are listed with their numbers."""


@attrs.frozen
class GangStanding:
    """State of one gang and its pods.

    Args:
        gang: gang by the spec.
        left: number of pods that still have work together.
        minimum: number of pods that it needs now.
        counts: counters of its pods.
    """

    gang: Gang
    left: int
    minimum: int
    counts: GangCounts

    @property
    def complete(self) -> bool:
        """Return whether enough of its pods are bound."""
        return self.left <= 0 or self.counts.bound >= self.minimum

    @property
    def mixed(self) -> tuple[int, ...]:
        """Priorities of its pods, if they differ."""
        priorities = sorted(self.counts.priorities)
        return tuple(priorities) if len(priorities) > 1 else ()

    def __str__(self) -> str:
        """Return a description for users."""
        counts = self.counts
        waiting = counts.open
        return (
            f"{self.gang.title or 'the group'}: {counts.members} of {self.minimum} members, "
            f"{waiting} waiting, {counts.bound} bound ({self._why()})"
        )

    def _why(self) -> str:
        counts = self.counts
        if counts.members < self.minimum:
            return f"{self.minimum - counts.members} pods are missing"
        if counts.gated:
            return f"{counts.gated} are held by scheduling gates"
        if counts.unschedulable:
            return f"no node for {counts.unschedulable}"
        return "being scheduled"


def waiting(standings: Sequence[GangStanding]) -> DesiredCondition:
    """Return the condition while some gang is incomplete."""
    incomplete = [standing for standing in standings if not standing.complete]
    done = len(standings) - len(incomplete)
    more = len(incomplete) - NAMED
    named = "; ".join(map(str, incomplete[:NAMED])) + (f"; and {more} more" if more > 0 else "")
    ahead = f"{done} of {len(standings)} groups are bound; " if len(standings) > 1 else ""
    return DesiredCondition(
        keys.COSCHEDULING_IN_PROGRESS_CONDITION, True, keys.POD_GROUPS_WAITING_REASON, ahead + named
    )


def bound(number: int) -> DesiredCondition:
    """Return the condition when all gangs are complete."""
    return DesiredCondition(
        keys.COSCHEDULING_COMPLETED_CONDITION,
        True,
        keys.POD_GROUPS_BOUND_REASON,
        "the group has its pods bound" if number == 1 else f"all {number} groups are bound",
    )


def not_served(why: str) -> DesiredCondition:
    """Return the condition while no scheduler handles gangs as a unit."""
    absent = why in {NO_COSCHEDULER, SILENT_COSCHEDULER}
    return DesiredCondition(
        keys.COSCHEDULING_NOT_SERVED_CONDITION,
        True,
        keys.NO_COSCHEDULER_REASON if absent else keys.POD_GROUPS_NOT_SERVED_REASON,
        why,
        WARNING,
    )


def next_pause(pause: float) -> float:
    """Return the interval until the next update, in seconds."""
    return min(max(FIRST_PAUSE_S, pause * 2), LONGEST_PAUSE_S)


NO_COSCHEDULER: Final = (
    "no coscheduler is installed, and coscheduling.backend names no other scheduler of groups "
    "(coscheduling.backend): pods are labelled, and scheduled one by one"
)
SILENT_COSCHEDULER: Final = (
    "nothing has been heard of the coscheduler for a while: groups wait until there is one"
)
SERVED: Final = DesiredCondition(
    keys.COSCHEDULING_NOT_SERVED_CONDITION,
    False,
    keys.COSCHEDULING_SERVED_REASON,
    "groups are scheduled as such",
)
SUSPENDED: Final = DesiredCondition(
    keys.COSCHEDULING_IN_PROGRESS_CONDITION,
    False,
    keys.POD_GROUPS_SUSPENDED_REASON,
    "jobset is suspended",
)
FINISHED: Final = DesiredCondition(
    keys.COSCHEDULING_IN_PROGRESS_CONDITION,
    False,
    keys.POD_GROUPS_FINISHED_REASON,
    "jobset has finished",
)
