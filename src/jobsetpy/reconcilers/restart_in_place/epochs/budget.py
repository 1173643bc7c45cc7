"""Charges to the restart budget: epochs that count towards ``maxRestarts``.

``maxRestarts`` bounds the sum of all restarts of a JobSet: the group's restarts in place, those of
all Jobs (``status.restartsCountTowardsMax``) and those of single Jobs. The first kind is one for
each epoch after the first, except for epochs that were not opened by a failure. New pods join at
``syncedEpoch + 1`` like those that restart, so the epoch also increases when

* all Jobs or single ones were recreated: counted, or not, by their own rule;
* the JobSet was resumed;
* it was resized.

A restart that was charged for a failure stays charged when a suspension or a resize cuts it short:
otherwise a queue that suspends and resumes would make failures free. Only a recreation of Jobs
replaces it, as the two are then one restart.

A comparison of the JobSet with ``status.inPlaceRestart``, its record as of the latest synced epoch,
shows if one of these has happened since. Both are written together with the epochs, so each epoch
is charged once, even if the manager crashes in between.
"""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.durations import in_words
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.in_place_record import Renewal, renewal


@attrs.frozen
class EpochCharge:
    """Charge for a new epoch of a JobSet.

    Args:
        epoch: the newest epoch.
        renewal: reason for not counting it; ``NONE`` if it is a restart, or no new epoch.
        kept: True if it still counts because it was charged for a failure before.
        spent: number of restarts of all kinds that count so far, including this one.
    """

    epoch: int
    renewal: Renewal
    spent: int
    kept: bool = False

    @property
    def counts(self) -> bool:
        """Return True if the epoch is a restart that counts."""
        return self.epoch > 1 and (not self.renewal or self.kept)

    @property
    def is_in_place_restart(self) -> bool:
        """Return True if it is a restart in place of its own that counts."""
        return self.epoch > 1 and not self.renewal


def account(
    jobset: JobSet, newest: int, expected: int, *, uncounted_cause: bool = False
) -> EpochCharge:
    """Charge the newest epoch.

    Args:
        jobset: JobSet with the record of the latest synced epoch.
        newest: highest epoch of a pod, or the one that is about to be opened.
        expected: number of pods that the group needs now.
        uncounted_cause: True if its cause does not count: a Job is recreated on request, the group
            restarts on request, a pod is evicted or deleted.
    """
    status = jobset.status
    record = record_of(jobset)
    opened = newest > status.synced_epoch > 0
    reason = Renewal.NONE
    if opened:
        reason = Renewal.UNCOUNTED if uncounted_cause else renewal_of_group(jobset, expected)
        if not reason and record.last_uncounted_epoch == newest:
            # Decided earlier, perhaps by another manager; the cause may no longer be visible.
            reason = Renewal.UNCOUNTED
    # An epoch above the synced one that is among the restarts so far.
    charged = record.restarts > restart_budget.in_place(status.synced_epoch, record)
    kept = charged and reason in {Renewal.RESUMED, Renewal.RESIZED}
    spent = restart_budget.in_place(newest, record)
    if reason and not kept and record.last_uncounted_epoch != newest:
        spent = max(0, spent - 1)
    return EpochCharge(newest, reason, spent + restart_budget.recreations(status), kept)


def renewal_of_group(jobset: JobSet, expected: int) -> Renewal:
    """Return the change since the latest synced epoch that creates new pods without a failure."""
    pods = record_of(jobset).pods
    resized = bool(pods) and pods != expected
    return renewal(jobset) or (Renewal.RESIZED if resized else Renewal.NONE)


OVER_BUDGET: Final = cond.failed(
    keys.REACHED_MAX_RESTARTS_REASON, "jobset failed due to reaching max number of restarts"
)


def over_budget(pace: Pace) -> cond.DesiredCondition:
    """Return the failure of a JobSet whose restarts are used up."""
    if not pace.window_s:
        return OVER_BUDGET
    return cond.failed(
        OVER_BUDGET.reason, f"{OVER_BUDGET.message} within {in_words(pace.window_s)}"
    )


def missing_pods_failure(missing: str) -> cond.DesiredCondition:
    """Return the failure of a JobSet with missing pods and no restarts left to replace them."""
    return cond.failed(keys.REACHED_MAX_RESTARTS_REASON, f"{OVER_BUDGET.message}: {missing}")
