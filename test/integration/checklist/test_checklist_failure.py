"""Checklist of the controller, cases 19-41: failure policies and restarts.

All gates are on here. The cases with a gate off are in ``test_checklist_gates_off.py``.
"""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from support.features.checklist_kit import A0, ALL, B0, B1, B2, NAME, RA, RB, standard_jobset
from support.model_kit import rule

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"


def with_rules(*rules, max_restarts=1, **policy):
    """The standard JobSet with a failure policy."""
    return standard_jobset().failure_policy(max_restarts=max_restarts, rules=rules, **policy)


async def check_failed_immediately(js):
    """The JobSet failed by a rule, without a restart."""
    await js.until_failed("FailJobSetFailurePolicyAction")
    assert await js.restarts() == (0, 0)


async def check_restarted_once(js):
    """The JobSet restarted once, and continues."""
    await js.until_restarts(1, 1)
    await js.stays_active()
    assert await js.restarts() == (1, 1)


async def test_case_19_no_policy(js):
    """Without a policy the first failure fails the JobSet."""
    await js.started()
    await js.fail(A0)
    await js.until_failed("FailedJobs")

    assert await js.restarts() == (0, 0)


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


CRITICAL = "some critical error with a message"
PATTERNS = {"patterns": ["some message"]}
MATCHING = {
    "case-21-any-reason": ({}, "", True),
    "case-22-another-reason": ({"reasons": ["BackoffLimitExceeded"]}, "", False),
    "case-23-another-message": (PATTERNS, CRITICAL, False),
    "case-24-reason-but-another-message": ({**PATTERNS, "reasons": ["PodFailurePolicy"]}, CRITICAL, False),
    "case-25-reason-and-message": ({**PATTERNS, "reasons": ["PodFailurePolicy"]}, "some message", True),
    "case-26-message-within": (PATTERNS, "this is some message with critical error", True),
}  # fmt: skip


@pytest.mark.parametrize(("matcher", "message", "matches"), MATCHING.values(), ids=MATCHING)
async def test_rule_acts_when_reason_and_message_match(js, matcher, message, matches):
    """``FailJobSet`` acts on a failure that matches; others cause the default restart."""
    await js.started(with_rules(rule("FailJobSet", name="matching", **matcher)))
    await js.fail(A0, "PodFailurePolicy", message)

    await (check_failed_immediately if matches else check_restarted_once)(js)


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


async def test_case_31_restart_job_uncounted(js):
    """``RestartJobAndIgnoreMaxRestarts`` restarts the failed Job alone, uncounted."""
    await own_restart(js, "RestartJobAndIgnoreMaxRestarts", A0, {RA: {"jobRestarts": [1]}})


async def test_case_30_several_jobs_fail_together(js):
    """Beyond the case: each of them costs one restart of its own, once.

    One status write may contain several decisions.
    """
    await js.started(with_rules(rule("RestartJob"), max_restarts=3))
    await js.fail(B0)
    await js.fail(B2)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating={B0, B2})
    await js.settled()

    counts = {"jobRestarts": [1, 0, 1], "jobRestartsCountTowardsMax": [1, 0, 1]}
    assert await js.own_restarts() == {RB: counts}


async def test_case_32_recreate(js):
    """With ``Recreate`` each Job is recreated as soon as its predecessor is gone."""
    await js.started(standard_jobset().failure_policy(max_restarts=1, strategy="Recreate"))
    await js.fail(A0)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating=set(ALL))
    await js.collect(A0, B0, B1)
    await js.until_attempts({A0: 1, B0: 1, B1: 1, B2: 0}, terminating={B2})

    await js.collect(B2)
    await js.until_attempts(dict.fromkeys(ALL, 1))


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


async def test_case_35_uncounted_restarts(js):
    """Restarts that ignore the maximum continue beyond it, and count as restarts only."""
    await js.started(with_rules(rule(UNCOUNTED)))
    for attempt, name in enumerate([A0, B0, B2], start=1):
        await js.fail(name)
        await js.until_restarts(attempt, 0)
        await js.restarted(attempt)
        await js.stays_active()

    assert await js.own_restarts() == {}


async def test_case_36_target(js):
    """A rule for replicated-job-b acts on a failure of its Job with the rule's reason."""
    matcher = rule("FailJobSet", reasons=["FailedIndexes"], targets=[RB])
    await js.started(with_rules(matcher))
    await js.fail(B1, "FailedIndexes")

    await check_failed_immediately(js)


async def test_case_37_another_target(js):
    """A rule for replicated-job-a does not apply to a failure of b's Job: default restart."""
    matcher = rule("FailJobSet", reasons=["FailedIndexes"], targets=[RA])
    await js.started(with_rules(matcher))
    await js.fail(B1, "FailedIndexes")

    await check_restarted_once(js)


ORDERS = {
    "case-38-fail-first": (("FailJobSet", "RestartJobSet"), check_failed_immediately),
    "case-39-restart-first": (("RestartJobSet", "FailJobSet"), check_restarted_once),
}


@pytest.mark.parametrize(("actions", "check"), ORDERS.values(), ids=ORDERS)
async def test_first_rule_acts_when_two_match(js, actions, check):
    """The order is that of the list."""
    await js.started(with_rules(*(rule(action, name=f"for{action}") for action in actions)))
    await js.fail(B0)

    await check(js)


async def test_case_40_uncounted_then_catch_all(js):
    """A's failures with one reason restart without limit; any other failure fails the JobSet."""
    reason = "PodFailurePolicy"
    uncounted = rule(UNCOUNTED, name="hostError", reasons=[reason], targets=[RA])
    await js.started(with_rules(uncounted, rule("FailJobSet", name="anyOther")))
    for attempt in (1, 2, 3):
        await js.fail(A0, reason)
        await js.until_restarts(attempt, 0)
        await js.restarted(attempt)
        await js.stays_active()

    await js.fail(B0, "")
    await js.until_failed("FailJobSetFailurePolicyAction")
    assert await js.restarts() == (3, 0)


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


async def test_failures_together_cause_one_restart(js):
    """Beyond the cases: all Jobs fail together; two events report the restart.

    The decision carries the version that it was based on, so that with a stale cache of the manager
    the same failure never counts twice.
    """
    await js.started(standard_jobset().failure_policy(max_restarts=3))
    for name in ALL:
        await js.fail(name)
    await js.until_attempts(dict.fromkeys(ALL, 0), terminating=set(ALL))
    await js.settled()

    assert await js.restarts() == (1, 1)

    async def reported() -> None:
        for reason in ("DefaultFailurePolicy", "RestartJobSetFailurePolicyAction"):
            events = await js.events(reason)
            assert [event["regarding"]["name"] for event in events] == [NAME]
            assert "series" not in events[0]

    await js.until(reported)
