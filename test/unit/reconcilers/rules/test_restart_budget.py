"""Budget of restarts, shared by both reconcilers that restart something."""

from __future__ import annotations

import pytest

from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus, ReplicatedJobStatus
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods
from jobsetpy.reconcilers.restart_in_place.epochs.budget import account
from jobsetpy.reconcilers.rules.restart_budget import spent
from support.jobsets import ModelCluster, jobset_json, replicated_job


def record(**fields):
    """Return what restarts in place store, as JSON."""
    return {"pods": 4, **fields}


STATUSES = {
    "no restart": ({}, 0),
    "the first epoch": ({"syncedEpoch": 1, "inPlaceRestart": record()}, 0),
    "two restarts in place": ({"syncedEpoch": 3, "inPlaceRestart": record()}, 2),
    "one of them after a resume": (
        {"syncedEpoch": 3, "inPlaceRestart": record(uncountedEpochs=1, lastUncountedEpoch=3)},
        1,
    ),
    "one that has only begun": (
        {"syncedEpoch": 2, "deprecatedEpoch": 2, "inPlaceRestart": record()},
        1,
    ),
    "one, and an uncounted one that has only begun": (
        {
            "syncedEpoch": 2,
            "deprecatedEpoch": 2,
            "inPlaceRestart": record(uncountedEpochs=1, lastUncountedEpoch=3),
        },
        1,
    ),
    "before workers ever ran": ({"deprecatedEpoch": 2}, 1),
    "restarts of Jobs": ({"restarts": 4, "restartsCountTowardsMax": 3, "syncedEpoch": 1}, 3),
    "all kinds": (
        {
            "restarts": 1,
            "restartsCountTowardsMax": 1,
            "replicatedJobsStatus": [{"name": "w", "jobRestartsCountTowardsMax": [1, 0, 1, 0]}],
            "syncedEpoch": 4,
            "deprecatedEpoch": 3,
            "inPlaceRestart": record(uncountedEpochs=2, lastUncountedEpoch=4),
        },
        4,
    ),
}


def cluster(status, max_restarts):
    """Return a cluster with four Jobs that restart in place and this status."""
    counters = {"name": "w", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    items = status.get("replicatedJobsStatus", [{"name": "w"}])
    status = {**status, "replicatedJobsStatus": [{**counters, **item} for item in items]}
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    return ModelCluster(jobset_json(replicated_job("w", 4), failurePolicy=policy, status=status))


@pytest.mark.parametrize("name", STATUSES)
def test_all_kinds_of_restarts_are_charged(name):
    """Both reconcilers come to the same sum."""
    status, expected = STATUSES[name]
    jobset = cluster(status, 9).jobset
    opened = max(jobset.status.synced_epoch, jobset.status.deprecated_epoch)

    assert spent(jobset.status) == expected
    settled = {"resumeTime": None, "allJobsRestartsAtSync": jobset.status.restarts}
    settled["jobRestartsAtSync"] = 0
    settled |= status.get("inPlaceRestart", {"pods": 4})
    again = cluster({**status, "inPlaceRestart": settled}, 9).jobset
    assert account(again, opened, expected_pods(again)).spent == expected


@pytest.mark.parametrize("name", STATUSES)
def test_failed_job_ends_the_jobset_when_the_budget_is_spent(name):
    """Before that, all Jobs are restarted."""
    status, charged = STATUSES[name]
    for max_restarts, ends in ((charged + 1, False), (charged, True)):
        one = cluster(status, max_restarts)
        one.reconcile()
        before = one.status.restarts
        one.fail("test-js-w-0")
        one.carry_out(one.plan())

        assert (one.condition("Failed") == ("True", "ReachedMaxRestarts")) is ends
        assert one.status.restarts == before + (not ends)


def test_nothing_is_charged_without_a_record():
    """JobSets of older managers have none."""
    status = JobSetStatus(
        replicated_jobs_status=(ReplicatedJobStatus(name="w"),),
        in_place_restart=InPlaceRestartStatus(),
    )

    assert spent(status) == 0
