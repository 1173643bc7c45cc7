"""What JobSets do and wait for, and for how long: the account of their time.

Every JobSet that has not ended does one thing at a time. How many JobSets (and pods of theirs) do
which, summed over time, is the answer to "what did we pay for". Nothing is kept of single JobSets
but what they do now, so a change costs O(1), however many there are.
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
    """What a JobSet does, by what is most in the way first; "" if it has ended.

    Args:
        jobset: with the status as it is now, whether or not that is stored yet.
        pauses: a restart waits for the end of the back-off.
        depends: some ReplicatedJob is not started before another one.
        lost: pods of it are being deleted on a node that does not answer.
        lacks_pods: some Job has fewer pods than it wants.
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
    """All JobSets that do the same.

    Args:
        seconds: that JobSets have spent with it so far.
        pod_seconds: that their pods have, by how many they ask for.
        jobsets: how many do it now.
    """

    seconds: float = 0.0
    pod_seconds: float = 0.0
    jobsets: int = 0


class ActivityTimes:
    """Sums up how long JobSets do what; times are seconds on a monotonic clock."""

    __slots__ = ("_of", "_sums")

    def __init__(self) -> None:
        self._of: dict[ObjectKey, tuple[str, int]] = {}
        self._sums = {name: _Sum() for name in ACTIVITIES}

    def note(self, key: ObjectKey, does: str, pods: int, now: float) -> None:
        """A JobSet does this from now on, with so many pods; "" for nothing any more. O(1)."""
        new = (does, pods) if does else None
        old = self._of.get(key)
        if old == new:
            return
        if old is not None:
            del self._of[key]
            self._sums[old[0]].change(-1, -old[1], now)
        if new is not None:
            self._of[key] = new
            self._sums[does].change(1, pods, now)

    def totals(self, now: float) -> Mapping[str, Total]:
        """What each activity comes to by now."""
        return {name: each.total(now) for name, each in self._sums.items()}


class _Sum:
    """The integral over time of how many JobSets and pods there are."""

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
