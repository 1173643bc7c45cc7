"""What a JobSet does, in one word; and how long it took until it did."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.summary import state
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

READY = {"name": "w", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
IN_PLACE = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}


def holds(kind):
    """A condition that is True."""
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
    "a lifted barrier": (
        {"replicatedJobsStatus": [READY], "syncedEpoch": 1},
        IN_PLACE,
        "Running",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_state(case):
    """The end first, then what the user asked for, then what is waited for."""
    status, spec, word = case
    data = jobset_json(replicated_job("w", 1), status=status, **spec)

    assert word == state(decoded(JobSet, data))


class TestTimeToReady:
    def test_from_the_creation_and_from_a_restart(self):
        """Once each; what was ready and is again, without a restart, is not counted."""
        policy = {"maxRestarts": 3, "rules": [{"name": "r", "action": "RestartJobSet"}]}
        of = ModelCluster(jobset_json(replicated_job("w", 1), failurePolicy=policy))
        of.object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        of.reconcile()
        of.clock += timedelta(seconds=20)
        of.ready("test-js-w-0")

        assert of.plan().status.ready_s == 20.0
        of.reconcile()
        assert of.plan().status.ready_s is None

        of.fail("test-js-w-0")
        of.clock += timedelta(seconds=7)
        of.reconcile()
        of.collect()
        of.reconcile()
        of.ready("test-js-w-0")
        assert of.plan().status.ready_s == 7.0

    def test_readiness_that_comes_and_goes(self):
        """A manager that remembers the wait that is over does not count it again."""
        from jobsetpy.reconcilers.jobs.plan import plan_jobs

        of = ModelCluster(jobset_json(replicated_job("w", 1)))
        of.object["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        of.reconcile()
        of.ready("test-js-w-0")
        first = of.plan()
        of.carry_out(first)
        of.set_status("test-js-w-0", ready=0)
        away = plan_jobs(of.observe(), first.memory, of.now)
        of.carry_out(away)
        of.clock += timedelta(days=3)
        of.ready("test-js-w-0")

        again = plan_jobs(of.observe(), away.memory, of.now)
        assert again.status.patch
        assert again.status.ready_s is None
