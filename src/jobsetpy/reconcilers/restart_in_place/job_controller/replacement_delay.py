"""Delay with which the Job controller replaces pods that have failed.

Source: the Job controller of Kubernetes 1.36, "Pod backoff failure policy"
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy): no pod
is created for 10 s after the first failure, for 20 s after the second and so on up to 10 minutes. A
success resets the series; the series is in the controller's memory only, so a restart of it ends
the delay. A Job with ``backoffLimitPerIndex`` has a series for each index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # commands of the plugin import this and have to start quickly
    from jobsetpy.api.batch import Job

FIRST_S: Final = 10.0
MAX_S: Final = 600.0


def delay_s(failures: int) -> float:
    """Return the delay after a number of failures in a row, in seconds."""
    return min(FIRST_S * 2.0 ** min(failures - 1, 10), MAX_S) if failures > 0 else 0.0


def counts(failures: int) -> str:
    """Return the beginning of a sentence about a Job's failures."""
    return f"the Job controller counts {failures} failed pod{'' if failures == 1 else 's'}"


def failures_of(job: Job) -> int:
    """Return the number of pods that a Job counts as failed."""
    return job.status.failed + len(job.status.uncounted_terminated_pods.failed)


class FailureTimes:
    """Times at which this manager has observed the latest failure of each Job's pods."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[str, float] = {}  # by UID of the Job

    def job_changed(self, old: Job | None, new: Job | None, now: float) -> bool:
        """Process a Job's change at a monotonic time; return True if it counts more failures."""
        if old is None:
            return False
        if new is None or new.metadata.uid != old.metadata.uid:
            self._times.pop(old.metadata.uid, None)
            return False
        if failures_of(new) <= failures_of(old):
            return False
        self._times[new.metadata.uid] = now
        return True

    def of(self, job: Job) -> float | None:
        """Return the monotonic time of a Job's latest failure; ``None`` if it was not observed."""
        return self._times.get(job.metadata.uid)


def explain(job: Job) -> str:
    """Return why the Job controller may delay the replacement of a pod; "" if it does not."""
    failures = failures_of(job)
    if not failures:
        return ""
    delay, after = delay_s(failures), "the latest failure"
    if job.spec.backoff_limit_per_index is not None:
        delay, after = MAX_S, "each failure of an index"
    return f"{counts(failures)} and waits for up to {delay:g} s after {after}"
