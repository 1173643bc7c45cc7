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
from jobsetpy.api.meta import ObjectMeta
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import replicated_job_of

STALLED_AFTER_S: Final = 300.0
"""Time after which a deletion is reported that waits for pods, in seconds; their own time to end
comes in addition."""

_GARBAGE_COLLECTOR: Final = "foregroundDeletion"
_MAX_TEXT: Final = 400
_MAX_NAMED: Final = 5


@attrs.frozen
class StalledDeletions:
    """Deleted Jobs that are still there, so that no other can be created in their place.

    Args:
        names: their names, sorted; of those that only finalizers of others keep, these, too.
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
            names.append(_named(job.metadata))
        else:
            waits.append(left_s)
    return StalledDeletions(tuple(sorted(names)), min(waits, default=None))


def _named(meta: ObjectMeta) -> str:
    """Return the name of a Job, with the finalizers that keep it although its pods are gone."""
    if not meta.finalizers or _GARBAGE_COLLECTOR in meta.finalizers:
        return meta.name
    return f"{meta.name} (kept by {', '.join(meta.finalizers)[:_MAX_TEXT]})"
