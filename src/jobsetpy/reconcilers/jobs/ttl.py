"""Time at which a finished JobSet is deleted."""

from __future__ import annotations

from datetime import timedelta

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.conditions import finished
from jobsetpy.reconcilers.rules.times import Now, PinnedTime, pin


def deletion_time(jobset: JobSet, known: PinnedTime | None, now: Now) -> PinnedTime | None:
    """Return the time at which the JobSet has to be deleted.

    ``None`` if it has no ``ttlSecondsAfterFinished``, is not finished, or has no finish time (it is
    then kept, which is the safe choice).

    Args:
        jobset: finished or not.
        known: result of the previous plan.
        now: current time on both clocks.
    """
    ttl = jobset.spec.ttl_seconds_after_finished
    end = finished(jobset.status.conditions)
    if ttl is None or end is None or end.last_transition_time is None:
        return None
    return pin(known, end.last_transition_time + timedelta(seconds=ttl), now, longest_s=ttl)
