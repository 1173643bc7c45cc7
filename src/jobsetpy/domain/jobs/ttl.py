"""When a finished JobSet is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta

from jobsetpy.api.jobset import JobSet
from jobsetpy.domain.conditions import finished


def remaining(jobset: JobSet, now: datetime) -> timedelta | None:
    """Time until the JobSet has to be deleted: zero or less when it is due.

    ``None`` if it has no ``ttlSecondsAfterFinished``, is not finished, or does not say since when
    (then it is kept, since nothing is lost by keeping it).
    """
    ttl = jobset.spec.ttl_seconds_after_finished
    end = finished(jobset.status.conditions)
    if ttl is None or end is None or end.last_transition_time is None:
        return None
    return end.last_transition_time + timedelta(seconds=ttl) - now
