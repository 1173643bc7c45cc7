"""Accounting of JobSets' time by activity.

Every JobSet that has not ended has one activity at a time. The number of JobSets (and of their
pods) per activity, integrated over time, shows how paid time was used. Only the current activity of
each JobSet is kept, so a change costs O(1), regardless of their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import summary

RUNNING: Final = "running"
RESTARTING: Final = "restarting"
SUSPENDED: Final = "suspended"
QUEUE: Final = "queue"
GATES: Final = "gates"
BARRIER: Final = "barrier"
BACKOFF: Final = "backoff"
DEPENDENCIES: Final = "dependencies"
LOST_NODE: Final = "lost_node"
MISSING_PODS: Final = "missing_pods"
NOT_READY: Final = "not_ready"

ACTIVITIES: Final = (
    *(RUNNING, RESTARTING, SUSPENDED, QUEUE, GATES, BARRIER, BACKOFF, DEPENDENCIES),
    *(LOST_NODE, MISSING_PODS, NOT_READY),
)


def activity(
    jobset: JobSet,
    *,
    pauses: bool = False,
    depends: bool = False,
    lost: bool = False,
    lacks_pods: bool = False,
) -> str:
    """Return the activity of a JobSet, the most important obstacle first; "" if it has ended.

    Args:
        jobset: JobSet with the current status, whether stored yet or not.
        pauses: True if a restart waits for the end of the back-off.
        depends: True if a ReplicatedJob waits for another one.
        lost: True if pods are being deleted on an unreachable node.
        lacks_pods: True if a Job has fewer pods than desired.
    """
    word, conditions = summary.state(jobset), jobset.status.conditions
    if word in {keys.COMPLETED_CONDITION, keys.FAILED_CONDITION}:
        return ""
    if word == summary.SUSPENDED:
        return QUEUE if keys.KUEUE_QUEUE_LABEL in jobset.metadata.labels else SUSPENDED
    if word == summary.RUNNING:
        return RUNNING
    for holds, name in (
        (lost, LOST_NODE),
        (pauses, BACKOFF),
        (cond.is_true(conditions, keys.COSCHEDULING_IN_PROGRESS_CONDITION), GATES),
        (cond.is_true(conditions, keys.BARRIER_STALLED_CONDITION), BARRIER),
        (word == summary.RESTARTING, RESTARTING),
        (depends, DEPENDENCIES),
        (lacks_pods, MISSING_PODS),
        (cond.is_true(conditions, keys.GROUP_IN_PROGRESS_CONDITION), BARRIER),
    ):
        if holds:
            return name
    return NOT_READY


@attrs.frozen
class Total:
    """Totals of one activity.

    Args:
        seconds: seconds that JobSets have spent so far.
        pod_seconds: the same times the number of pods that they request.
        jobsets: current number of JobSets.
    """

    seconds: float = 0.0
    pod_seconds: float = 0.0
    jobsets: int = 0


Owner = tuple[str, ...]
"""Values of labels that name the owner of a JobSet; () if there are none."""
Totals = Mapping[tuple[Owner, str], Total]
"""Totals by owner and activity."""


class ActivityTimes:
    """Sums of JobSets' time by owner and activity; times are seconds on a monotonic clock."""

    __slots__ = ("_of", "_sums")

    def __init__(self) -> None:
        self._of: dict[ObjectKey, tuple[tuple[Owner, str], int]] = {}
        self._sums: dict[tuple[Owner, str], _Sum] = {}

    def note(self, key: ObjectKey, does: str, pods: int, now: float, owner: Owner = ()) -> None:
        """Set the current activity, pods and owner of a JobSet; "" if it has ended. O(1)."""
        new = ((owner, does), pods) if does else None
        old = self._of.get(key)
        if old == new:
            return
        if old is not None:
            del self._of[key]
            self._sums[old[0]].change(-1, -old[1], now)
        if new is not None:
            self._of[key] = new
            self._sums.setdefault(new[0], _Sum()).change(1, pods, now)

    def totals(self, now: float) -> Totals:
        """Return the totals so far."""
        return {name: each.total(now) for name, each in self._sums.items()}


class _Sum:
    """Integral over time of the numbers of JobSets and pods."""

    __slots__ = ("_at", "_jobsets", "_pod_seconds", "_pods", "_seconds")

    def __init__(self) -> None:
        self._at = self._seconds = self._pod_seconds = 0.0
        self._jobsets = self._pods = 0

    def change(self, jobsets: int, pods: int, now: float) -> None:
        self.total(now)
        self._jobsets += jobsets
        self._pods += pods

    def total(self, now: float) -> Total:
        passed = max(0.0, now - self._at) if self._jobsets else 0.0
        self._seconds += self._jobsets * passed
        self._pod_seconds += self._pods * passed
        self._at = now
        return Total(self._seconds, self._pod_seconds, self._jobsets)
