"""Restarts that wait for the deletion of an old Job, on a real API server."""

import pytest

from jobsetpy.api.jobset import JobSet
from support.features.checklist_kit import A0, B0, NAME, standard_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = {"deletion_stalled_after_s": 2.0}


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
async def test_restart_names_the_job_whose_deletion_stalls(js, strategy):
    """Foreground deletion waits for a pod that does not end; the condition goes with the Job."""
    made = standard_jobset().failure_policy(max_restarts=1, strategy=strategy).build()
    for item in made["spec"]["replicatedJobs"]:
        item["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    await js.started(made)
    await js.fail(B0)
    await js.until_condition("DeletionStalled", "True", "DeletionStalled")
    conditions = (await js.client.get(JobSet, js.namespace, NAME)).status.conditions
    (message,) = [each.message for each in conditions if each.type == "DeletionStalled"]
    assert A0 in message
    assert [event["type"] for event in await js.events("DeletionStalled")] == ["Warning"]

    await js.collect()
    await js.until_condition("DeletionStalled", "False", "DeletionStalled")
