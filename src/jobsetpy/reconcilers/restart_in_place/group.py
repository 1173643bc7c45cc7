"""Restart group of a JobSet: its size, its stored record, requests of users."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.reconcilers.restart_in_place.observed import Histogram
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.actions import FAIL_JOB
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.spares import spares_of

LONGEST_REQUEST: Final = 63
"""Maximum length of a restart request's value that is stored unchanged."""

NO_RECORD: Final = InPlaceRestartStatus()


def takes_part(jobset: JobSet) -> bool:
    """Return True for a live, running JobSet with restart in place."""
    return (
        jobset.spec.restarts_in_place
        and jobset.metadata.deletion_timestamp is None
        and jobset.spec.suspend is not True
        and is_ours(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def expected_pods(jobset: JobSet) -> int:
    """Return the size of the restart group: replicas times seats, over all ReplicatedJobs.

    A Job has as many seats as pods, less its spares.
    """
    total = 0
    for item in jobset.spec.replicated_jobs:
        spec = item.template.get("spec")
        parallelism = spec.get("parallelism") if isinstance(spec, Mapping) else None
        # The API server's default is 1.
        pods = parallelism if isinstance(parallelism, int) else 1
        total += item.replicas * (pods - spares_of(jobset, item))
    return total


def group_size(jobset: JobSet, pods: Histogram) -> int:
    """Return the number of pods that the restart group needs now, including succeeded ones.

    Usually a failed Job is recreated, and the group waits for its new pods. Only if a rule of the
    failure policy may leave Jobs failed, the group continues without their pods.
    """
    if pods.lost and leaves_jobs_failed(jobset):
        return expected_pods(jobset) - pods.lost
    return expected_pods(jobset)


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
