"""Runs of a JobSet: start time, number and deadline (KEP-1186 and KEP-1282).

A run begins when the JobSet is first not suspended, with each resumption and with each restart of
all Jobs. A suspension and a restart of all Jobs clear the start time; the next plan that finds none
begins the run, in the same write that counts it, so that each run is counted once. A restart in
place is no new run, but its workers start again, so it sets the start time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet, JobSetStatus
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now, PinnedTime, pin

_LONGEST_S: Final = 10_000_000_000
"""Maximum of a deadline in seconds that is computed with: 317 years."""


def track_run(draft: StatusDraft, features: Features, *, suspended: bool) -> None:
    """Write the start time and the number of runs into a draft."""
    status = draft.status
    attempts, begins = status.execution_attempts, status.start_time is None
    # A JobSet of an older manager has no number: each of its restarts was a run.
    if attempts is None and (status.restarts or not suspended):
        attempts = status.restarts
    elif attempts is not None and begins and not suspended:
        attempts += 1
    if suspended:
        draft.evolve(start_time=None)
    elif begins:
        draft.evolve(start_time=draft.now.replace(microsecond=0))
    if features.execution_attempts:
        draft.evolve(execution_attempts=attempts)


def attempt_annotation(status: JobSetStatus) -> dict[str, str]:
    """Return the annotation of Jobs and pods with the number of the run; {} before the first."""
    attempts = status.execution_attempts
    return {} if attempts is None else {keys.EXECUTION_ATTEMPT_ANNOTATION: str(attempts)}


def deadline_s(jobset: JobSet, features: Features) -> int | None:
    """Return the deadline of a JobSet's runs in seconds; ``None`` if it has none."""
    return jobset.spec.active_deadline_seconds if features.active_deadline else None


def expiry(
    seconds: int, draft: StatusDraft, known: PinnedTime | None, now: Now
) -> PinnedTime | None:
    """Return the time at which the current run exceeds its deadline; ``None`` while suspended.

    A start time in the future was written by another clock: the run is taken to begin now.
    """
    start = draft.status.start_time
    if start is None:
        return None
    seconds = min(seconds, _LONGEST_S)
    return pin(known, start + timedelta(seconds=seconds), now, longest_s=seconds)


def expire(draft: StatusDraft, seconds: int) -> None:
    """End a JobSet whose run exceeds its deadline; it is never restarted."""
    message = f"jobset was active longer than its deadline of {seconds} seconds"
    draft.fail(keys.DEADLINE_EXCEEDED_REASON, message)
