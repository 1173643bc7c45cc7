"""Deleted Jobs that finalizers keep, so that their replacements cannot be created.

The garbage collector removes its own finalizer once the pods are gone. Any other finalizer has to
be removed by the program that set it (a queue, a backup, a controller that was uninstalled), which
may never happen.
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
