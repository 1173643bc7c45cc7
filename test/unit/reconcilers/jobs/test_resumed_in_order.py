"""Suspended Jobs of which some pods have succeeded count as started by nobody."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, replicated_job

A, B = "test-js-a-0", "test-js-b-0"

SIZES = {
    "as many succeeded as run at once": ({"parallelism": 2, "completions": 6}, 2),
    "more succeeded than run at once": ({"parallelism": 2, "completions": 6}, 5),
    "no pods wanted": ({"parallelism": 0, "completions": 0}, 0),
}


def preempted(size, succeeded, **spec):
    """A JobSet that ran for a while, was suspended, and may go on; its second part runs too."""
    depends_on = [("a", "Ready")] if spec.pop("depends", False) else []
    cluster = ModelCluster(
        jobset_json(
            replicated_job("a", job_spec=size),
            replicated_job("b", depends_on=depends_on),
            **spec,
        )
    )
    cluster.reconcile()
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


def suspended(cluster):
    """Which Jobs are suspended."""
    return {name: job["spec"]["suspend"] for name, job in cluster.jobs.items()}


@pytest.mark.parametrize("name", SIZES)
def test_the_first_is_resumed_before_the_second(name):
    """In order, the second waits until the first has been resumed and is ready again."""
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
    assert cluster.condition(keys.STARTUP_COMPLETED_CONDITION) == (
        "True",
        keys.IN_ORDER_COMPLETED_REASON,
    )


@pytest.mark.parametrize("name", SIZES)
def test_what_depends_on_it_waits_for_it(name):
    """A suspended Job is not Ready for those that depend on it."""
    size, succeeded = SIZES[name]
    cluster = preempted(size, succeeded, depends=True)

    assert [action.name for action in cluster.plan().actions] == [A]
    cluster.reconcile()
    assert suspended(cluster) == {A: False, B: False}


def test_a_restart_is_not_over_before_its_jobs_are_resumed():
    """All Jobs are ready only once none of them is suspended any more."""
    size = {"parallelism": 2, "completions": 6}
    cluster = preempted(size, 2, failurePolicy={"maxRestarts": 1})
    cluster.change_spec(suspend=True)
    restarting = {
        "type": keys.RESTARTING_CONDITION,
        "status": "True",
        "reason": "DefaultFailurePolicy",
        "message": "",
    }
    cluster.object["status"]["conditions"].append(restarting)
    cluster.set_status(B, succeeded=1)
    cluster.change_spec(suspend=False)
    cluster.carry_out(cluster.plan())

    assert cluster.condition(keys.RESTARTING_CONDITION)[0] == "True"


def test_the_counters_stay_as_users_know_them():
    """What is stored as ready follows pods only."""
    cluster = preempted({"parallelism": 2, "completions": 6}, 2)
    cluster.change_spec(suspend=True)
    cluster.reconcile()

    assert cluster.counters()["a"] == {"ready": 1, "suspended": 1}
