"""When a finished JobSet is deleted."""

from __future__ import annotations

from datetime import timedelta

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.conditions import finished
from jobsetpy.reconcilers.rules.pinned_time import PinnedTime, pin
from jobsetpy.reconcilers.rules.plan import Now


def deletion_time(jobset: JobSet, known: PinnedTime | None, now: Now) -> PinnedTime | None:
    """Time at which the JobSet has to be deleted.

    ``None`` if it has no ``ttlSecondsAfterFinished``, is not finished, or does not say since when
    (then it is kept, since nothing is lost by keeping it).

    Args:
        jobset: finished or not.
        known: the result of the plan before.
        now: on both clocks.
    """
    ttl = jobset.spec.ttl_seconds_after_finished
    end = finished(jobset.status.conditions)
    if ttl is None or end is None or end.last_transition_time is None:
        return None
    return pin(known, end.last_transition_time + timedelta(seconds=ttl), now, longest_s=ttl)
