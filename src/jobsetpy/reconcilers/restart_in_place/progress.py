"""Progress of the runs between restarts, as pods report it."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.reconcilers.restart_in_place.barrier import record_of
from jobsetpy.reconcilers.restart_in_place.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.observed import Histogram
from jobsetpy.reconcilers.rules import conditions as cond


def no_progress(
    jobset: JobSet, charged: EpochCharge, pods: Histogram, digest: int
) -> tuple[InPlaceRestartStatus, cond.DesiredCondition] | None:
    """Return record and failure of a JobSet whose consecutive restarts led to no new step."""
    allowed = max_without_progress(jobset)
    record = with_progress(jobset, record_of(jobset), charged, pods, digest)
    without = record.restarts_without_progress
    if not allowed or without < allowed or not charged.counts:
        return None
    highest = record.highest_step
    reached = "no step was ever reached" if highest is None else f"step {highest} was the highest"
    restarts = f"{without} {'restart' if without == 1 else 'restarts'} in a row"
    message = f"jobset failed due to {restarts} without a new step: {reached}"
    return record, cond.failed(keys.NO_PROGRESS_REASON, message)


def with_progress(
    jobset: JobSet, record: InPlaceRestartStatus, charged: EpochCharge, pods: Histogram, digest: int
) -> InPlaceRestartStatus:
    """Return the record to store with an epoch that is about to be synced, with its pods' progress.

    Touches count as progress until there has been a step: a program reports steps or it does not. A
    run counts as one without progress only if some pod has reported on it; without any reported
    step, only if no pod is new, as the one that reports steps may have been lost. A pod is new if
    the digest of all differs from that in the record. ``digest`` is that of the pods that will run:
    after a swap of seats others than those that have run.
    """
    (epoch, step), best = pods.progress, record.highest_step
    limited, shown = max_without_progress(jobset) > 0, epoch == charged.epoch
    complete = record_of(jobset).pods_digest in {0, pods.digest}
    known = shown or (pods.ended == charged.epoch and complete)
    if shown and (best is None or step > best):
        best = best if step < 0 else step
        record = evolve(record, highest_step=best, restarts_without_progress=0)
    elif known and charged.counts and (limited or best is not None):
        without = min(record.restarts_without_progress + 1, keys.INT32_MAX)
        record = evolve(record, restarts_without_progress=without)
    return evolve(record, pods_digest=digest) if limited or best is not None else record


def max_without_progress(jobset: JobSet) -> int:
    """Return the maximum number of consecutive restarts without a new step; 0 for no limit."""
    text = jobset.metadata.annotations.get(keys.MAX_WITHOUT_PROGRESS_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
