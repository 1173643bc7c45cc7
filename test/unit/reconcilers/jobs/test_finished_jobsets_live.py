"""Finished JobSets of a manager have no running Jobs, even after random faults."""

from __future__ import annotations

import random

import pytest

from jobsetpy.api import keys
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

ACTIONS = ("FailJobSet", "RestartJobSet", "RestartReplicatedJob", "RestartJob")


def rules(chance):
    """Return a rule with a random action for each of the two ReplicatedJobs."""
    return [
        {"name": f"r-{name}", "action": chance.choice(ACTIONS), "targetReplicatedJobs": [name]}
        for name in ("a", "b")
    ]


def running(rig):
    """Return the Jobs that are neither finished nor terminating."""
    return [
        job["metadata"]["name"]
        for job in rig.world.list("jobs")
        if not job.get("status", {}).get("conditions")
        and "deletionTimestamp" not in job["metadata"]
    ]


def end(rig):
    """End the JobSet as the reconciler of restart in place does when no restart is left."""
    if rig.condition("Completed") or rig.condition("Failed"):
        return
    ended = {
        "type": "Failed",
        "status": "True",
        "reason": keys.REACHED_MAX_RESTARTS_REASON,
        "message": "all restarts are used up",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [*rig.status().get("conditions", []), ended]
    patch = {"status": {"conditions": conditions, "terminalState": "Failed"}}
    rig.world.patch("jobsets.jobset.x-k8s.io", "test-js", patch, subresource="status")


@pytest.mark.parametrize("seed", range(20))
async def test_no_job_runs_when_its_jobset_has_finished(rig, seed):
    """Requests fail, caches are late, Jobs fail together and another writer ends the JobSet."""
    chance = random.Random(seed)
    async with rig.manager(epochs=False):
        rig.create(
            replicated_job("a", 3),
            replicated_job("b", 2),
            failurePolicy={"maxRestarts": chance.randint(0, 2), "rules": rules(chance)},
            successPolicy={"operator": chance.choice(["Any", "All"])},
        )
        await rig.settle(chance.choice([0.05, 1.0]))
        for _ in range(chance.randint(1, 6)):
            verb = chance.choice(["delete", "create"])
            rig.faults.status(500, verb=verb, resource="jobs", count=3)
            late = rig.faults.stall(verb="watch", resource=chance.choice(["jobs", "jobsets"]))
            for name in ("a", "b"):
                live = [job for job in running(rig) if f"-{name}-" in job]
                if live:
                    rig.finish(chance.choice(live), chance.choice(["Failed"] * 3 + ["Complete"]))
            await rig.settle(chance.choice([0.01, 0.3, 2.0]))
            late.lift()
            await rig.settle(chance.choice([0.001, 0.01, 0.3]))
        end(rig)
        rig.faults.clear()
        await rig.settle(120)

        assert rig.condition("Completed") or rig.condition("Failed")
        assert running(rig) == []
