"""Policies of JobSets whose Jobs have spares: each Job has two seats and three pods."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from support.jobsets import replicated_job
from support.model_kit import begin, settle

A, B = "test-js-a-0", "test-js-b-0"


def cluster(*jobs, rules=(), **spec):
    """Return a cluster with a JobSet of the Jobs a and b, whose pods have one spare each."""
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart", "rules": list(rules)}
    return begin(
        *(replicated_job(name, parallelism=3) for name in jobs or "ab"),
        annotations={keys.IN_PLACE_SPARES_ANNOTATION: "1"},
        failurePolicy=policy,
        **spec,
    )


def running(**spec):
    """Return such a cluster whose Jobs are ready."""
    made = cluster(**spec)
    made.ready(A, B)
    made.reconcile()
    return made


def seats_succeed(made, name, *, over=True):
    """Let a Job's seats succeed; when its spares have ended, the Job is complete as well."""
    reasons = ("SuccessCriteriaMet", "Complete") if over else ("SuccessCriteriaMet",)
    conditions = [{"type": kind, "status": "True", "reason": "SuccessPolicy"} for kind in reasons]
    made.set_status(name, active=0, ready=0, succeeded=2, conditions=conditions)


@pytest.mark.parametrize(
    ("operator", "targets", "succeeded", "completed"),
    [
        ("All", [], [A], False),
        ("All", [], [A, B], True),
        ("All", ["b"], [A], False),
        ("All", ["b"], [B], True),
        ("Any", [], [], False),
        ("Any", [], [B], True),
        ("Any", ["a"], [B], False),
        ("Any", ["a"], [A], True),
    ],
)
def test_success_policy_counts_jobs_whose_seats_have_succeeded(
    operator, targets, succeeded, completed
):
    """A spare that never worked does not delay the end."""
    made = running(successPolicy={"operator": operator, "targetReplicatedJobs": targets})
    for name in succeeded:
        seats_succeed(made, name)
    made.reconcile()

    found = made.condition(keys.COMPLETED_CONDITION)
    assert (found is not None) is completed


def test_job_counts_as_succeeded_when_its_spares_have_ended():
    """Until then it is active, and its succeeded pods count as ready."""
    made = running(successPolicy={"operator": "Any"})
    seats_succeed(made, A, over=False)
    made.reconcile()

    assert made.condition(keys.COMPLETED_CONDITION) is None
    assert made.counters()["a"] == {"ready": 1}

    seats_succeed(made, A)
    made.reconcile()
    assert made.condition(keys.COMPLETED_CONDITION) is not None


@pytest.mark.parametrize(
    ("action", "failed", "restarts", "own"),
    [
        ("FailJobSet", True, 0, 0),
        ("RestartJobSet", False, 1, 0),
        ("RestartJobSetAndIgnoreMaxRestarts", False, 1, 0),
        ("RestartJob", False, 0, 1),
        ("FailJob", False, 0, 0),
    ],
)
def test_failure_policy_acts_when_a_job_with_spares_fails(action, failed, restarts, own):
    """As for any Job; its new incarnation has spares again."""
    made = running(rules=[{"name": "rule", "action": action, "targetReplicatedJobs": ["a"]}])
    made.fail(A)
    settle(made)

    status = made.status
    assert ((made.condition(keys.FAILED_CONDITION) or ("",))[0] == "True") is failed
    assert status.restarts == restarts
    assert sum(sum(each.job_restarts) for each in status.replicated_jobs_status) == own
    for name in {A, B} & set(made.jobs):
        job = made.jobs[name]
        assert job["metadata"]["annotations"][keys.IN_PLACE_SPARES_ANNOTATION] == "1"
        assert job["spec"]["successPolicy"] == {"rules": [{"succeededCount": 2}]}


@pytest.mark.parametrize("ready", [2, 3])
def test_startup_is_complete_when_the_seats_can_be_filled(ready):
    """A missing spare does not delay the startup condition."""
    made = cluster("a", startupPolicy={"startupPolicyOrder": "InOrder"})
    made.set_status(A, active=3, ready=1)
    made.reconcile()
    assert made.condition(keys.STARTUP_COMPLETED_CONDITION) is None

    made.set_status(A, ready=ready)
    made.reconcile()
    assert made.condition(keys.STARTUP_COMPLETED_CONDITION)[0] == "True"
