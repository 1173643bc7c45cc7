"""One account of restarts, read by both reconcilers that restart something."""

from __future__ import annotations

import pytest

from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus, ReplicatedJobStatus
from jobsetpy.reconcilers.restart_in_place.barrier import expected_pods
from jobsetpy.reconcilers.restart_in_place.budget import account
from jobsetpy.reconcilers.rules.restart_budget import spent
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, replicated_job


def record(**fields):
    """What restarts in place have stored, as JSON."""
    return {"pods": 4, **fields}


STATUSES = {
    "nothing yet": ({}, 0),
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
    "before workers ever ran": ({"deprecatedEpoch": 2}, 1),
    "restarts of Jobs": (
        {"restarts": 4, "restartsCountTowardsMax": 3, "syncedEpoch": 1},
        3,
    ),
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
    """Four Jobs that restart in place, with a status."""
    counters = {"name": "w", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    status = {
        **status,
        "replicatedJobsStatus": [
            {**counters, **item} for item in status.get("replicatedJobsStatus", [{"name": "w"}])
        ],
    }
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    return ModelCluster(jobset_json(replicated_job("w", 4), failurePolicy=policy, status=status))


@pytest.mark.parametrize("name", STATUSES)
def test_what_is_spent(name):
    """All kinds of restarts are added up, and the reconciler of the epochs comes to the same."""
    status, expected = STATUSES[name]
    jobset = cluster(status, 9).jobset
    opened = max(jobset.status.synced_epoch, jobset.status.deprecated_epoch)

    assert expected == spent(jobset.status)
    settled = {"resumeTime": None, "allJobsRestartsAtSync": jobset.status.restarts}
    settled["jobRestartsAtSync"] = 0
    settled |= status.get("inPlaceRestart", {"pods": 4})
    again = cluster({**status, "inPlaceRestart": settled}, 9).jobset
    assert expected == account(again, opened, expected_pods(again)).spent


@pytest.mark.parametrize("name", STATUSES)
def test_a_failed_job_is_held_against_what_is_spent(name):
    """All Jobs are restarted as long as less than maxRestarts is spent, by whatever restarts."""
    status, used = STATUSES[name]
    for max_restarts, ends in ((used + 1, False), (used, True)):
        one = cluster(status, max_restarts)
        one.reconcile()
        before = one.status.restarts
        one.fail("test-js-w-0")
        one.carry_out(one.plan())

        assert ends is (one.condition("Failed") == ("True", "ReachedMaxRestarts"))
        assert before + (not ends) == one.status.restarts


def test_nothing_stored_is_nothing_spent():
    """Objects of older managers have no record."""
    status = JobSetStatus(
        replicated_jobs_status=(ReplicatedJobStatus(name="w"),),
        in_place_restart=InPlaceRestartStatus(),
    )

    assert spent(status) == 0
