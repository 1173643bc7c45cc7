"""Sizes: what is refused, what is left alone, and how much one plan does."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import CREATED_AT_ONCE, plan_jobs
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.membership import MAX_JOBS
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, replicated_job

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
def test_more_jobs_than_can_be_carried_out_are_refused(sizes, at, total):
    """The answer names the field, its value, the total and the bound."""
    names = "abc"
    items = [replicated_job(names[n], size) for n, size in enumerate(sizes)]
    (problem,) = validate_create(jobset_json(*items))

    assert f"spec.replicatedJobs[{at}].replicas" == problem.field
    assert problem.message.startswith(f"Invalid value: {sizes[at]}: ")
    assert f"{total} Jobs" in problem.message
    assert f"must not exceed {MAX_JOBS}" in problem.message


@pytest.mark.parametrize("sizes", [[MAX_JOBS], [MAX_JOBS - 1, 1], [0, 0]])
def test_the_largest_is_accepted(sizes):
    """The bound itself is allowed."""
    items = [replicated_job("ab"[n], size) for n, size in enumerate(sizes)]

    assert validate_create(jobset_json(*items)) == []


@pytest.mark.parametrize("status", [{}, {"terminalState": "Failed", "restarts": 1}])
@pytest.mark.parametrize("suspend", [False, True])
def test_a_stored_jobset_that_is_too_large_is_left_alone(status, suspend):
    """Nothing is done but to say why, once; an older manager may have accepted it."""
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


def test_a_jobset_of_another_controller_is_not_reported():
    """Its size is the other one's business."""
    cluster = ModelCluster(jobset_json(replicated_job("w", HUGE), managedBy="example.com/other"))
    plan = cluster.plan()

    assert (plan.empty, plan.notices) == (True, ())


def creations(plan):
    """Names of the Jobs that a plan creates."""
    return [action.name for action in plan.actions if isinstance(action, p.CreateJob)]


def test_a_plan_creates_a_limited_number_of_jobs_at_most():
    """The next plans create the others, in the order of the spec and each of them once."""
    sizes = {"a": CREATED_AT_ONCE - 500, "b": CREATED_AT_ONCE + 200, "c": 10}
    cluster = ModelCluster(jobset_json(*[replicated_job(name, n) for name, n in sizes.items()]))
    wanted = [f"test-js-{name}-{index}" for name, n in sizes.items() for index in range(n)]
    made = []
    for expected in (CREATED_AT_ONCE, len(wanted) - CREATED_AT_ONCE, 0):
        plan = cluster.plan()
        assert expected == len(creations(plan))
        made += creations(plan)
        cluster.carry_out(plan)

    assert wanted == made


def test_the_largest_jobset_is_begun_as_any_other():
    """Of as many Jobs as there may be, the first ones are created."""
    cluster = ModelCluster(jobset_json(replicated_job("w", MAX_JOBS), failurePolicy={}))
    made = creations(cluster.plan())

    assert (len(made), made[0]) == (CREATED_AT_ONCE, "test-js-w-0")
