"""Checklist of the controller, cases 19-41: failure policies and restarts.

All gates are on here; rules of gates that are off are tested with the plan of the jobs reconciler.
"""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from support.features.checklist_kit import A0, ALL, B0, B1, B2, RA, standard_jobset
from support.model_kit import rule

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]


def with_rules(*rules, max_restarts=1, **policy):
    """The standard JobSet with a failure policy."""
    return standard_jobset().failure_policy(max_restarts=max_restarts, rules=rules, **policy)


async def check_restarted_once(js):
    """The JobSet restarted once, and continues."""
    await js.until_restarts(1, 1)
    await js.stays_active()
    assert await js.restarts() == (1, 1)


async def test_case_20_max_restarts(js):
    """The first failure recreates all Jobs; the second exceeds ``maxRestarts``."""
    await js.started(standard_jobset().failure_policy(max_restarts=1))
    before = {job["metadata"]["uid"] for job in (await js.read_all(Job)).values()}
    await js.fail(B0)
    await js.until_restarts(1, 1)
    await js.restarted(1)
    await js.stays_active()
    after = {job["metadata"]["uid"] for job in (await js.read_all(Job)).values()}
    assert not before & after

    await js.fail(A0)
    await js.until_failed("ReachedMaxRestarts")
    assert await js.restarts() == (1, 1)


async def test_case_28_restart_jobset(js):
    """``RestartJobSet`` counts restarts of all Jobs only; single Jobs have no counts."""
    await js.started(with_rules(rule("RestartJobSet")))
    await js.fail(A0)

    await check_restarted_once(js)
    assert await js.own_restarts() == {}


async def test_case_29_restarting_condition(js):
    """The condition names the rule while Jobs are recreated, until all are ready."""
    await js.started(with_rules(rule("RestartJobSet", name="Rule1")))
    await js.fail(A0)
    await js.until_condition("RestartingJobSet", "True", "FailurePolicy_Rule1")
    await js.restarted(1)
    await js.ready(A0, B0, B1)
    await js.settled()
    assert await js.condition("RestartingJobSet") == ("True", "FailurePolicy_Rule1")

    await js.ready(B2)
    await js.until_condition("RestartingJobSet", "False", "JobsReady")


async def own_restart(js, action, job, counts):
    """A rule for single Jobs recreates that Job alone."""
    await js.started(with_rules(rule(action)))
    others = {name: one["metadata"]["uid"] for name, one in (await js.read_all(Job)).items()}
    failed = others.pop(job)
    await js.fail(job)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating={job})
    await js.collect()

    async def recreated() -> None:
        jobs = await js.read_all(Job)
        assert sorted(jobs) == ALL
        assert jobs[job]["metadata"]["labels"][keys.JOB_RESTART_ATTEMPT] == "1"

    await js.until(recreated)
    await js.stays_active()
    now = {name: one["metadata"]["uid"] for name, one in (await js.read_all(Job)).items()}
    assert now.pop(job) != failed
    assert now == others
    assert await js.restarts() == (0, 0)
    assert await js.own_restarts() == counts
    assert await js.condition("RestartingJobSet") is None


async def test_case_30_restart_job(js):
    """``RestartJob`` restarts the failed Job alone, and counts."""
    counts = {RA: {"jobRestarts": [1], "jobRestartsCountTowardsMax": [1]}}
    await own_restart(js, "RestartJob", A0, counts)


async def test_case_33_blocking_recreate(js):
    """With ``BlockingRecreate`` no Job is recreated before the last predecessor is gone."""
    await js.started(standard_jobset().failure_policy(max_restarts=1, strategy="BlockingRecreate"))
    await js.fail(A0)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating=set(ALL))
    await js.collect(A0, B0, B1)
    await js.settled()
    assert await js.attempts() == ({B2: 0}, {B2})

    await js.collect(B2)
    await js.until_attempts(dict.fromkeys(ALL, 1))


async def test_case_41_restart_after_partial_success(js):
    """One failure restarts Jobs that have succeeded too; then the JobSet can complete."""
    await js.started(standard_jobset().failure_policy(max_restarts=1))
    await js.complete(B0)
    await js.fail(B1)
    await js.until_restarts(1, 1)
    await js.restarted(1)
    await js.stays_active()

    await js.complete(*ALL)
    await js.until_completed()
    assert await js.restarts() == (1, 1)
