"""Limits for large JobSets and the number of Jobs created by one plan."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import CREATED_AT_ONCE, plan_jobs
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.membership import MAX_JOBS
from jobsetpy.reconcilers.validation.create import validate_create
from support.jobsets import ModelCluster, jobset_json, replicated_job

HUGE = 2**31 - 1


@pytest.mark.parametrize(
    ("sizes", "at", "total"),
    [
        ([HUGE], 0, HUGE),
        ([MAX_JOBS + 1], 0, MAX_JOBS + 1),
        ([MAX_JOBS, 1], 1, MAX_JOBS + 1),
        ([1, 2, HUGE - 3], 2, HUGE),
    ],
)
def test_jobset_with_too_many_jobs_is_refused(sizes, at, total):
    """The error names field, value, total and limit."""
    items = [replicated_job("abc"[n], size) for n, size in enumerate(sizes)]
    (problem,) = validate_create(jobset_json(*items))

    assert problem.field == f"spec.replicatedJobs[{at}].replicas"
    assert problem.message.startswith(f"Invalid value: {sizes[at]}: ")
    assert f"{total} Jobs" in problem.message
    assert f"must not exceed {MAX_JOBS}" in problem.message


@pytest.mark.parametrize("sizes", [[MAX_JOBS], [MAX_JOBS - 1, 1], [0, 0]])
def test_largest_jobset_is_accepted(sizes):
    """The limit itself is allowed."""
    items = [replicated_job("ab"[n], size) for n, size in enumerate(sizes)]

    assert validate_create(jobset_json(*items)) == []


@pytest.mark.parametrize("status", [{}, {"terminalState": "Failed", "restarts": 1}])
@pytest.mark.parametrize("suspend", [False, True])
def test_stored_jobset_that_is_too_large_is_left_alone(status, suspend):
    """It is reported once; an older manager may have accepted it."""
    cluster = ModelCluster(
        jobset_json(
            replicated_job("w", HUGE),
            suspend=suspend,
            status=status,
            failurePolicy={"maxRestarts": 3},
            groupSchedulingConfig={},
        )
    )
    plan = cluster.plan()

    assert plan.empty
    (notice,) = plan.notices
    assert notice.reason == keys.TOO_MANY_JOBS_REASON
    assert f"{HUGE} Jobs" in notice.message
    assert plan_jobs(cluster.observe(), plan.memory, cluster.now).notices == ()


def test_large_jobset_of_another_controller_is_not_reported():
    """It may have other limits."""
    cluster = ModelCluster(jobset_json(replicated_job("w", HUGE), managedBy="example.com/other"))
    plan = cluster.plan()

    assert (plan.empty, plan.notices) == (True, ())


def creations(plan):
    """Return the names of the Jobs that a plan creates."""
    return [action.name for action in plan.actions if isinstance(action, p.CreateJob)]


def test_plan_creates_a_limited_number_of_jobs():
    """The next plans create the others, once each and in the order of the spec."""
    sizes = {"a": CREATED_AT_ONCE - 500, "b": CREATED_AT_ONCE + 200, "c": 10}
    cluster = ModelCluster(jobset_json(*[replicated_job(name, n) for name, n in sizes.items()]))
    names = [f"test-js-{name}-{index}" for name, n in sizes.items() for index in range(n)]
    made = []
    for expected in (CREATED_AT_ONCE, len(names) - CREATED_AT_ONCE, 0):
        plan = cluster.plan()
        assert len(creations(plan)) == expected
        made += creations(plan)
        cluster.carry_out(plan)

    assert made == names


def test_largest_jobset_is_begun_as_any_other():
    """The first plan creates its first Jobs."""
    cluster = ModelCluster(jobset_json(replicated_job("w", MAX_JOBS), failurePolicy={}))
    made = creations(cluster.plan())

    assert (len(made), made[0]) == (CREATED_AT_ONCE, "test-js-w-0")
