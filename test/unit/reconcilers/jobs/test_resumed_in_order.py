"""Suspended Jobs with succeeded pods do not count as started."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from support.jobsets import replicated_job
from support.model_kit import begin, suspended

A, B = "test-js-a-0", "test-js-b-0"

SIZES = {
    "succeeded pods equal parallelism": ({"parallelism": 2, "completions": 6}, 2),
    "more succeeded pods than parallelism": ({"parallelism": 2, "completions": 6}, 5),
    "parallelism of zero": ({"parallelism": 0, "completions": 0}, 0),
}


def preempted(size, succeeded, **spec):
    """Return a cluster with a JobSet that ran, was suspended, and is to be resumed."""
    depends_on = [("a", "Ready")] if spec.pop("depends", False) else []
    jobs = (replicated_job("a", job_spec=size), replicated_job("b", depends_on=depends_on))
    cluster = begin(*jobs, **spec)
    cluster.set_status(A, active=size["parallelism"], ready=size["parallelism"])
    cluster.reconcile()
    cluster.ready(B)
    cluster.reconcile()
    cluster.change_spec(suspend=True)
    cluster.reconcile()
    for name in (A, B):
        cluster.set_status(name, active=0, ready=0)
    cluster.set_status(A, succeeded=succeeded)
    cluster.reconcile()
    assert suspended(cluster) == {A: True, B: True}
    cluster.change_spec(suspend=False)
    return cluster


@pytest.mark.parametrize("name", SIZES)
def test_first_job_is_resumed_before_the_second_when_in_order(name):
    """The second one waits until the first is resumed and ready again."""
    size, succeeded = SIZES[name]
    cluster = preempted(size, succeeded, startupPolicy={"startupPolicyOrder": "InOrder"})
    plan = cluster.plan()
    assert [action.name for action in plan.actions] == [A]

    cluster.carry_out(plan)
    assert suspended(cluster) == {A: False, B: True}
    cluster.reconcile()
    cluster.ready(B)
    cluster.reconcile()
    assert suspended(cluster) == {A: False, B: False}
    completed = ("True", keys.IN_ORDER_COMPLETED_REASON)
    assert cluster.condition(keys.STARTUP_COMPLETED_CONDITION) == completed


def test_restart_is_not_over_before_its_jobs_are_resumed():
    """Its condition stays True while a Job is suspended."""
    size = {"parallelism": 2, "completions": 6}
    cluster = preempted(size, 2, failurePolicy={"maxRestarts": 1})
    cluster.change_spec(suspend=True)
    restarting = {"type": keys.RESTARTING_CONDITION, "status": "True"}
    restarting |= {"reason": "DefaultFailurePolicy", "message": ""}
    cluster.object["status"]["conditions"].append(restarting)
    cluster.set_status(B, succeeded=1)
    cluster.change_spec(suspend=False)
    cluster.carry_out(cluster.plan())

    assert cluster.condition(keys.RESTARTING_CONDITION)[0] == "True"
