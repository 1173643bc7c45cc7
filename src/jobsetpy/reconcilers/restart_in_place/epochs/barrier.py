"""Restart group of a JobSet, and the rule of its barrier (KEP-467).

Every pod of the restart group carries the epoch it has reached. When all are at one epoch, that
epoch is *synced* and its workers may run. Otherwise all epochs before the newest are *deprecated*,
and pods at one of those restart. The synced epoch itself is deprecated as soon as a failure is
detected, before the failed pod has reached the next one: an agent that starts joins one above both
numbers.

Epochs start at 1. Both numbers only increase.
"""

from __future__ import annotations

import hashlib
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, JobSize
from jobsetpy.reconcilers.failure_policy.actions import FAIL_JOB
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.in_place_record import NO_RECORD, is_starting
from jobsetpy.reconcilers.rules.membership import is_handled, pods_of_template
from jobsetpy.reconcilers.rules.spares import spares_of

LONGEST_REQUEST: Final = 63
"""Maximum length of a restart request's value that is stored unchanged."""


def is_live(jobset: JobSet) -> bool:
    """Return True for a live JobSet with restart in place, running or suspended."""
    return (
        jobset.spec.restarts_in_place
        and is_handled(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def takes_part(jobset: JobSet) -> bool:
    """Return True for a live, running JobSet with restart in place."""
    return jobset.spec.suspend is not True and is_live(jobset)


def expected_pods(jobset: JobSet) -> int:
    """Return the size of the restart group: Jobs with seats times seats, over all ReplicatedJobs.

    A Job has as many seats as pods, less its spares.
    """
    spares = ((item, spares_of(jobset, item)) for item in jobset.spec.replicated_jobs)
    return sum(
        (item.replicas - spare.jobs) * (pods_of_template(item) - spare.pods)
        for item, spare in spares
    )


def dispensable_pods(jobset: JobSet) -> int:
    """Return the number of pods that may be missing while the group continues."""
    spares = ((item, spares_of(jobset, item)) for item in jobset.spec.replicated_jobs)
    return sum(
        (item.replicas - spare.least_jobs) * (pods_of_template(item) - spare.pods - spare.least)
        for item, spare in spares
        if spare.least or spare.least_jobs
    )


def sizes_of(jobset: JobSet) -> tuple[JobSize, ...]:
    """Return the Jobs that have fewer seats at present; new pods are to fill all of them."""
    return () if is_starting(jobset) else record_of(jobset).job_sizes


def whole_group(jobset: JobSet, pods: GroupCounts) -> int:
    """Return the number of pods of the whole restart group, including succeeded ones.

    Usually a failed Job is recreated, and the group waits for its new pods. Only if a rule of the
    failure policy may leave Jobs failed, the group continues without their pods.
    """
    if pods.lost and leaves_jobs_failed(jobset):
        return expected_pods(jobset) - pods.lost
    return expected_pods(jobset)


def group_size(jobset: JobSet, pods: GroupCounts) -> int:
    """Return the number of pods that the group has seats for at present, as :func:`whole_group`."""
    return whole_group(jobset, pods) - sum(one.missing for one in sizes_of(jobset))


def succeeded_pods(pods: GroupCounts) -> int:
    """Return the number of seats that have succeeded."""
    return pods.succeeded - pods.spares.beyond


def live_pods(jobset: JobSet, pods: GroupCounts) -> int:
    """Return the number of live pods that the restart group needs now."""
    return group_size(jobset, pods) - succeeded_pods(pods)


def leaves_jobs_failed(jobset: JobSet) -> bool:
    """Return True if a rule of the failure policy may leave Jobs failed."""
    policy = jobset.spec.failure_policy
    return policy is not None and any(rule.action == FAIL_JOB for rule in policy.rules)


def record_of(jobset: JobSet) -> InPlaceRestartStatus:
    """Return the stored record; an empty one if there is none."""
    return jobset.status.in_place_restart or NO_RECORD


def requested(jobset: JobSet) -> str:
    """Return the value of a user's request for a restart in place; "" for none.

    A long text is stored as its digest: the status is part of every write.
    """
    text = jobset.metadata.annotations.get(keys.RESTART_IN_PLACE_ANNOTATION, "")
    if len(text) <= LONGEST_REQUEST:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def next_move(
    jobset: JobSet, pods: GroupCounts, cause: Cause | None
) -> tuple[int | None, int | None]:
    """Return the new synced and deprecated epochs; at most one of them is set."""
    status = jobset.status
    over = status.deprecated_epoch
    if pods.epochs:
        newest = max(pods.epochs)
        if len(pods.epochs) == 1 and pods.epochs[newest] == live_pods(jobset, pods):
            # A pod that is being deleted may still arrive; but its worker would end immediately,
            # and its replacement would cause another restart. Of two pods of one index, which the
            # Job controller and the manager may create at the same time, one is about to be
            # deleted, and another index may have none.
            if newest > status.synced_epoch and not pods.leaving and not pods.doubles:
                return newest, None
        else:
            over = max(over, newest - 1)
    if cause is not None and cause.epoch == status.synced_epoch:
        over = max(over, cause.epoch)
    return None, over if over > status.deprecated_epoch else None


def is_gathering(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if no worker runs: the group gathers, initially or after a restart has begun."""
    return not pods.epochs or jobset.status.deprecated_epoch >= jobset.status.synced_epoch


def has_shrunk(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if the group runs with fewer pods than recorded, which no new epoch will show."""
    known = record_of(jobset).pods
    if not known or len(pods.epochs) != 1:
        return False
    expected = group_size(jobset, pods)
    running = pods.epochs.get(jobset.status.synced_epoch)
    return known != expected and running == expected - succeeded_pods(pods)
