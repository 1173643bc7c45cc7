"""Checklist of the controller, cases 13-18: success policies, and Jobs that remain at the end."""

import pytest

from jobsetpy.api.batch import Job
from support.features.checklist_kit import A0, ALL, B0, B1, B2, RA, RB, standard_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]


async def test_case_13_all_of_all(js):
    """``All`` without targets needs every Job of every ReplicatedJob."""
    await js.started(standard_jobset().success_policy("All"))
    await js.complete(A0)
    await js.stays_active()

    await js.complete(B0, B1, B2)
    await js.until_completed()


async def test_case_14_all_of_the_targets(js):
    """``All`` with a target needs all Jobs of that ReplicatedJob, and no others."""
    await js.started(standard_jobset().success_policy("All", RB))
    await js.complete(A0)
    await js.stays_active()

    await js.complete(B1)
    await js.stays_active()

    await js.complete(B0, B2)
    await js.until_completed()


async def test_case_15_any_of_the_targets(js):
    """``Any`` with a target needs one Job of that ReplicatedJob; others do not suffice."""
    await js.started(standard_jobset().success_policy("Any", RB))
    await js.complete(A0)
    await js.stays_active()

    await js.complete(B1)
    await js.until_completed()


@pytest.mark.parametrize("name", [A0, B2], ids=["of-a", "of-b"])
async def test_case_16_any_of_all(js, name):
    """``Any`` without targets needs any one Job."""
    await js.started(standard_jobset().success_policy("Any"))
    await js.complete(name)
    await js.until_completed()


async def only_left(js, name):
    """Collect the deleted Jobs, assert that only this one is left, and return its conditions."""
    gone = set(ALL) - {name}
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating=gone)
    await js.collect()
    await js.settled()
    assert await js.job_names() == [name]
    conditions = (await js.read(Job, name))["status"]["conditions"]
    return [item["type"] for item in conditions if item["status"] == "True"]


async def test_case_17_completion_deletes_active_jobs(js):
    """When ``Any`` is satisfied the other Jobs are deleted in the foreground and not recreated."""
    await js.started(standard_jobset().success_policy("Any"))
    await js.ready(B0)
    await js.complete(A0)
    await js.until_completed()

    assert "Complete" in await only_left(js, A0)
    assert await js.counters() == [(RB, {}), (RA, {"succeeded": 1})]


async def test_case_18_failure_deletes_active_jobs(js):
    """After a failure the other Jobs are deleted; the failed one stays for inspection."""
    await js.started()
    await js.fail(B1)
    await js.until_failed("FailedJobs")

    assert "Failed" in await only_left(js, B1)
    assert await js.counters() == [(RB, {"failed": 1}), (RA, {})]
