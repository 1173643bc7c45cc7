"""Conditions of a JobSet about its gangs, and the intervals between their updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.meta import Condition, condition_true
from jobsetpy.reconcilers.coscheduling.gangs import Gang
from jobsetpy.reconcilers.coscheduling.pod_groups import DISRUPTED, SCHEDULED
from jobsetpy.reconcilers.coscheduling.tally import GangCounts
from jobsetpy.reconcilers.rules.conditions import WARNING, DesiredCondition

TELL_AFTER_S: Final = 1.0
"""Delay in seconds before waiting gangs are reported; faster ones are reported once bound."""

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""Minimum and maximum interval between updates of the numbers, in seconds."""

_MESSAGE: Final = 300
"""Maximum number of characters of a scheduler's message."""

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
        reported: conditions of its ``PodGroup``, set by the scheduler.
    """

    gang: Gang
    left: int
    minimum: int
    counts: GangCounts
    reported: Sequence[Condition] = ()

    @property
    def complete(self) -> bool:
        """Return whether enough of its pods are bound."""
        return self.left <= 0 or self.counts.bound >= self.minimum

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
        why = f"no node for {counts.unschedulable}" if counts.unschedulable else "being scheduled"
        return why + self._reported()

    def _reported(self) -> str:
        """Return the scheduler's report about the whole gang."""
        if self.disrupted is not None:
            return f"; preempted as a whole: {self.disrupted.message}"
        for each in self.reported:
            if each.type == SCHEDULED and each.status == "False":
                verb = "found no nodes" if each.reason == "Unschedulable" else "failed"
                return f"; the scheduler {verb}: {each.message[:_MESSAGE]}"
        return ""

    @property
    def disrupted(self) -> Condition | None:
        """Condition of a gang that the scheduler removes for another one; ``None`` if it is not."""
        return condition_true(tuple(self.reported), DISRUPTED)


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


def bound(number: int, scheduler: str = "") -> DesiredCondition:
    """Return the condition when all gangs are complete.

    Args:
        number: number of gangs.
        scheduler: scheduler of gangs; "" if none is known.
    """
    by = f" (by {scheduler})" if scheduler else ""
    return DesiredCondition(
        keys.COSCHEDULING_COMPLETED_CONDITION,
        True,
        keys.POD_GROUPS_BOUND_REASON,
        ("the group has its pods bound" if number == 1 else f"all {number} groups are bound") + by,
    )


def refused(kind: str, name: str, error: Exception) -> DesiredCondition:
    """Return the condition while an object that pods wait for cannot be created."""
    return DesiredCondition(
        keys.COSCHEDULING_IN_PROGRESS_CONDITION,
        True,
        keys.POD_GROUP_REFUSED_REASON,
        f"{kind} {name!r} could not be created, so that its pods wait: {error}",
        WARNING,
    )


def not_served(why: str) -> DesiredCondition:
    """Return the condition while no scheduler handles gangs as a unit."""
    absent = why.startswith((NO_SCHEDULER, SILENT_COSCHEDULER))
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


NO_SCHEDULER: Final = (
    "the API server serves no PodGroup and Workload (scheduling.k8s.io, feature gate "
    "GenericWorkload), no coscheduler is installed, and the manager's setting coscheduling.backend "
    "names no other scheduler of groups: pods are labelled, and scheduled one by one"
)
NO_POD_GROUPS: Final = (
    "the backend 'podgroup' of coscheduling needs PodGroup and Workload (scheduling.k8s.io, "
    "feature gate GenericWorkload), and this API server does not serve them: pods are labelled, "
    "and scheduled one by one"
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
UNBOUND: Final = attrs.evolve(SUSPENDED, type=keys.COSCHEDULING_COMPLETED_CONDITION)
"""Condition of a suspended JobSet: its pods have gone, and may wait again when it is resumed."""
FINISHED: Final = DesiredCondition(
    keys.COSCHEDULING_IN_PROGRESS_CONDITION,
    False,
    keys.POD_GROUPS_FINISHED_REASON,
    "jobset has finished",
)
