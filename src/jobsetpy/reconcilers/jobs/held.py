"""Deleted Jobs that finalizers keep: nothing can be created in their place.

The garbage collector removes its own finalizer once the pods are gone. Whoever has set another one
(a queue, a backup, a controller that was uninstalled) has to remove it, which may never happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.plan import EmitEvent

REPORTED_AFTER_S: Final = 60.0
"""Time after which a Job that only finalizers keep is reported, in seconds."""

_GARBAGE_COLLECTOR: Final = "foregroundDeletion"
_MAX_TEXT: Final = 400


def held(jobs: Iterable[Job], known: Mapping[str, float], now: float) -> dict[str, float]:
    """Return since when Jobs are kept by others' finalizers alone, by UID.

    Args:
        jobs: of the JobSet.
        known: the result of the plan before.
        now: on the monotonic clock.
    """
    return {
        job.metadata.uid: known.get(job.metadata.uid, now)
        for job in jobs
        if job.metadata.deletion_timestamp is not None
        and job.metadata.finalizers
        and _GARBAGE_COLLECTOR not in job.metadata.finalizers
    }


def report_after_s(since: Mapping[str, float], now: float) -> float | None:
    """Seconds until another Job is to be reported; ``None`` if there is none."""
    waits = [at + REPORTED_AFTER_S - now for at in since.values()]
    return min((wait for wait in waits if wait > 0), default=None)


def held_notices(jobs: Iterable[Job], since: Mapping[str, float], now: float) -> list[EmitEvent]:
    """Events about the Jobs that have been kept for too long, in the order of their names."""
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
