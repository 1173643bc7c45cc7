"""Deleted Jobs that finalizers keep, so that their replacements cannot be created.

The garbage collector removes its own finalizer once the pods are gone. Any other finalizer has to
be removed by the program that set it (a queue, a backup, a controller that was uninstalled), which
may never happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import replicated_job_of
from jobsetpy.reconcilers.rules.plan import EmitEvent

STALLED_AFTER_S: Final = 300.0
"""Time after which a deletion is reported that waits for pods, in seconds; their own time to end
comes in addition."""
REPORTED_AFTER_S: Final = 60.0
"""Time after which a Job that only finalizers keep is reported, in seconds."""

_GARBAGE_COLLECTOR: Final = "foregroundDeletion"
_MAX_TEXT: Final = 400
_MAX_NAMED: Final = 5


def held(jobs: Iterable[Job], known: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the time since when each Job is kept only by foreign finalizers, by UID.

    Args:
        jobs: Jobs of the JobSet.
        known: result of the previous plan.
        now: current time on the monotonic clock.
    """
    return {
        job.metadata.uid: known.get(job.metadata.uid, now)
        for job in jobs
        if job.metadata.deletion_timestamp is not None
        and job.metadata.finalizers
        and _GARBAGE_COLLECTOR not in job.metadata.finalizers
    }


@attrs.frozen
class StalledDeletions:
    """Deleted Jobs that are still there, so that no other can be created in their place.

    Args:
        names: their names, sorted.
        next_s: seconds until another one is to be reported; ``None`` if there is none.
    """

    names: tuple[str, ...] = ()
    next_s: float | None = None

    @property
    def condition(self) -> cond.DesiredCondition:
        """The condition that names them."""
        kind = reason = keys.DELETION_STALLED_CONDITION
        if not self.names:
            return cond.DesiredCondition(kind, False, reason, "no deleted job is waited for")
        more = f" and {len(self.names) - _MAX_NAMED} more" if len(self.names) > _MAX_NAMED else ""
        message = (
            f"no job can be created in place of {', '.join(self.names[:_MAX_NAMED])}{more}: they "
            "were deleted, but pods of theirs do not end or finalizers keep them; see kubectl get "
            "pods, and the nodes of pods that are terminating"
        )
        return cond.DesiredCondition(kind, True, reason, message, cond.WARNING)


def stalled_deletions(
    jobs: Iterable[Job], grace_s: Mapping[str, float], now: datetime, after_s: float
) -> StalledDeletions:
    """Return the Jobs whose deletion takes longer than their pods may.

    Args:
        jobs: Jobs of the JobSet.
        grace_s: termination grace period of pods in seconds, by ReplicatedJob.
        now: current time; the API server sets the time of a deletion.
        after_s: seconds after which a deletion is reported, in addition to the grace period.
    """
    names, waits = [], []
    for job in jobs:
        at = job.metadata.deletion_timestamp
        if at is None:
            continue
        limit_s = after_s + grace_s.get(replicated_job_of(job), 0.0)
        left_s = limit_s - (now - at).total_seconds()
        if left_s <= 0:
            names.append(job.metadata.name)
        else:
            waits.append(left_s)
    return StalledDeletions(tuple(sorted(names)), min(waits, default=None))


def report_after_s(since: Mapping[str, float], now: float) -> float | None:
    """Return the seconds until another Job is to be reported; ``None`` if there is none."""
    waits = [at + REPORTED_AFTER_S - now for at in since.values()]
    return min((wait for wait in waits if wait > 0), default=None)


def held_notices(jobs: Iterable[Job], since: Mapping[str, float], now: float) -> list[EmitEvent]:
    """Return events about the Jobs that have been kept for too long, sorted by name."""
    out = []
    for job in sorted(jobs, key=lambda job: job.metadata.name):
        meta = job.metadata
        if now - since.get(meta.uid, now) < REPORTED_AFTER_S:
            continue
        names = ", ".join(meta.finalizers)[:_MAX_TEXT]
        message = (
            f"job {meta.name!r} is deleted, but its finalizers keep it: {names}; no other can be "
            "created in its place until whatever has set them removes them"
        )
        out.append(EmitEvent(cond.WARNING, keys.JOB_HELD_REASON, message, meta.name))
    return out
