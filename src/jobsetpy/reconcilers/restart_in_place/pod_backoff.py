"""Delay with which the Job controller replaces pods that have failed.

Source: the Job controller of Kubernetes 1.36, "Pod backoff failure policy"
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy): no pod
is created for 10 s after the first failure, for 20 s after the second and so on up to 10 minutes. A
success resets the series; the series is in the controller's memory only, so a restart of it ends
the delay. A Job with ``backoffLimitPerIndex`` has a series for each index.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from jobsetpy.api.timestamps import seconds_text

if TYPE_CHECKING:  # commands of the plugin import this and have to start quickly
    from jobsetpy.api.batch import Job
    from jobsetpy.reconcilers.rules.times import Now

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


def explain(job: Job, failed_at: float | None, now: Now) -> str:
    """Return why the Job controller delays the replacement of a pod; "" if it does not.

    Args:
        job: a Job that is missing pods.
        failed_at: monotonic time at which its latest failure was observed; ``None`` if it was not.
        now: time on both clocks.
    """
    failures = failures_of(job)
    if not failures:
        return ""
    if job.spec.backoff_limit_per_index is not None:
        return f"{counts(failures)} and waits for up to {MAX_S:g} s after each failure of an index"
    delay = delay_s(failures)
    if failed_at is None:
        return f"{counts(failures)} and waits for up to {delay:g} s after the latest failure"
    left = failed_at + delay - now.monotonic
    if left <= 0:
        return ""
    until = seconds_text(now.wall + timedelta(seconds=left))
    after = f"{delay:g} s after the latest failure"
    return f"{counts(failures)} and creates no pod before {until}, {after}"
