"""Slice of batch/v1 Job: the fields that reconcilers read."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from functools import lru_cache
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, condition_true, resource


@wire
class JobSpec:
    """Slice of batch/v1 JobSpec; the pod template is never read back."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None


@lru_cache(maxsize=64)  # called for each of thousands of pods that succeed together
def _intervals(text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return first and last numbers of the ranges in a text such as ``0,3-5,7``, ascending."""
    parts = [part.partition("-") for part in text.split(",")]
    ranges = [(first, last or first) for first, _, last in parts]
    known = [(int(a), int(b)) for a, b in ranges if a.isdecimal() and b.isdecimal()]
    return tuple([first for first, _ in known]), tuple([last for _, last in known])


def _includes(text: str, index: int) -> bool:
    first, last = _intervals(text)
    at = bisect_right(first, index) - 1
    return at >= 0 and index <= last[at]


@wire
class UncountedPods:
    """UIDs of terminated pods that are not in the Job's counters yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@wire
class JobStatus:
    """Slice of batch/v1 JobStatus."""

    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedPods = UncountedPods()

    def has_completed(self, index: int) -> bool:
        """Return whether the Job counts a completion index as succeeded; O(log ranges)."""
        return _includes(self.completed_indexes, index)

    def has_failed(self, index: int) -> bool:
        """Return whether the Job counts a completion index as failed finally; O(log ranges)."""
        return _includes(self.failed_indexes or "", index)

    @property
    def first_index_is_over(self) -> bool:
        """True if completion index 0 succeeded or failed finally: no pod will have it again.

        Both lists are texts such as ``0,3-5,7`` in ascending order.
        """
        return any(
            text is not None and (text == "0" or text.startswith(("0,", "0-")))
            for text in (self.completed_indexes, self.failed_indexes)
        )

    @property
    def finished(self) -> Condition | None:
        """The condition ``Complete`` or ``Failed`` that is True, or ``None``."""
        return condition_true(self.conditions, "Complete") or self.failed_condition

    @property
    def failed_condition(self) -> Condition | None:
        """The ``Failed`` condition if it is True."""
        return condition_true(self.conditions, "Failed")


@resource("batch", "v1", "Job", "jobs")
@wire
class Job:
    """A Job."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
