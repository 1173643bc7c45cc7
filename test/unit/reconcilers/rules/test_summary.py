"""State of a JobSet in one word, and the time until it is ready."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.summary import state
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import begin, rule, settle

READY = {"name": "w", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
IN_PLACE = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}

FEWER = {
    "replicatedJobsStatus": [{**READY, "ready": 0}],
    "inPlaceRestart": {"jobSizes": [{"job": "test-js-w-0", "seats": 2, "missing": 1}]},
}


def holds(kind):
    """Return a status with a condition that is True."""
    return {"conditions": [{"type": kind, "status": "True"}], "replicatedJobsStatus": [READY]}


CASES = {
    "nothing yet": ({}, {}, "Waiting"),
    "ready": ({"replicatedJobsStatus": [READY]}, {}, "Running"),
    "not ready": ({"replicatedJobsStatus": [{**READY, "ready": 0}]}, {}, "Waiting"),
    "suspended": ({"replicatedJobsStatus": [READY]}, {"suspend": True}, "Suspended"),
    "failed": (holds("Failed"), {"suspend": True}, "Failed"),
    "completed": (holds("Completed"), {}, "Completed"),
    "recreated": (holds("RestartingJobSet"), {}, "Restarting"),
    "in place": (holds("RestartingInPlace"), IN_PLACE, "Restarting"),
    "one Job restarts": (
        {"restartHistory": [{"kind": "RestartJob"}], "replicatedJobsStatus": [READY]},
        {},
        "Restarting",
    ),
    "a gang gathers": (holds("CoschedulingInProgress"), {}, "Waiting"),
    "a closed barrier": ({"replicatedJobsStatus": [READY]}, IN_PLACE, "Waiting"),
    "fewer pods": ({**FEWER, "syncedEpoch": 2, "deprecatedEpoch": 1}, IN_PLACE, "Running"),
    "fewer pods before": ({**FEWER, "syncedEpoch": 2, "restarts": 1}, IN_PLACE, "Waiting"),
    "a lifted barrier": ({"replicatedJobsStatus": [READY], "syncedEpoch": 1}, IN_PLACE, "Running"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_state_of_a_jobset_in_one_word(case):
    """Its end comes first, then suspension, then what it waits for."""
    status, spec, word = case
    data = jobset_json(replicated_job("w", 1), status=status, **spec)

    assert state(decoded(JobSet, data)) == word


class TestTimeToReady:
    def started(self, **spec):
        """Return a cluster whose JobSet of one Job was created now."""
        cluster = begin(replicated_job("w", 1), **spec)
        cluster.object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return cluster

    def test_time_is_measured_from_creation_and_from_each_restart(self):
        """Once each; a JobSet that becomes ready again without a restart is not counted."""
        policy = {"maxRestarts": 3, "rules": [rule("RestartJobSet")]}
        cluster = self.started(failurePolicy=policy)
        cluster.clock += timedelta(seconds=20)
        cluster.ready("test-js-w-0")

        assert cluster.plan().status.ready_s == 20.0
        cluster.reconcile()
        assert cluster.plan().status.ready_s is None

        cluster.fail("test-js-w-0")
        cluster.clock += timedelta(seconds=7)
        settle(cluster)
        cluster.ready("test-js-w-0")
        assert cluster.plan().status.ready_s == 7.0

    def test_time_is_measured_once_when_readiness_changes(self):
        """A manager remembers that the JobSet has been ready."""
        cluster = self.started()
        cluster.ready("test-js-w-0")
        first = cluster.plan()
        cluster.carry_out(first)
        cluster.set_status("test-js-w-0", ready=0)
        away = plan_jobs(cluster.observe(), first.memory, cluster.now)
        cluster.carry_out(away)
        cluster.clock += timedelta(days=3)
        cluster.ready("test-js-w-0")

        again = plan_jobs(cluster.observe(), away.memory, cluster.now)
        assert again.status.patch
        assert again.status.ready_s is None
