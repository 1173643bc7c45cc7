"""Plans of single reconciles of epochs, as tables in virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, Observations
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from support.restarts.epoch_plans import RESTARTING, at, condition, failure, jobset, observed


@pytest.mark.parametrize(
    ("status", "pods", "start"),
    [
        ({"startTime": "2020-01-01T00:00:00Z"}, {1: 3, 2: 1}, 100),
        ({"startTime": "2020-01-01T00:00:00Z"}, {2: 4}, 100),
        ({}, {1: 3, 2: 1}, None),
    ],
)
def test_restart_in_place_starts_the_deadline_again(status, pods, start):
    """As a restart of all Jobs does; a JobSet without a start time gets it with its Jobs."""
    now = at(100)
    plan = plan_epochs(observed(jobset(status=status), pods), EpochState(uid="js-uid"), now)
    expected = None if start is None else now.wall.replace(microsecond=0)
    assert plan.status.status.start_time == expected


class TestJobSetsWithoutAPlan:
    def test_state_is_replaced_when_another_jobset_has_the_name(self):
        """The state of the former one does not count."""
        memory = EpochState(uid="other", waiting=Waiting(since=0.0))
        plan = plan_epochs(observed(jobset(), {1: 4}), memory, at(100))

        assert plan.memory == EpochState(uid="js-uid")

    def test_nothing_is_decided_when_the_cache_lacks_an_own_write(self):
        """The observed failures are kept for the next plan."""
        memory = EpochState(uid="js-uid", waiting=Waiting(since=1.0))
        plan = plan_epochs(
            observed(jobset(), {1: 3, 2: 1}, notes=Observations((failure(),)), wait_s=2.5),
            memory,
            at(9),
        )

        assert (plan.status, plan.memory, plan.judged) == (None, memory, False)
        assert plan.result.delay == timedelta(seconds=2.5)

    @pytest.mark.parametrize("state", ["suspended", "completed", "another manager's"])
    def test_condition_of_a_restart_is_cleared_when_the_jobset_is(self, state):
        """A restart is over when the JobSet is suspended or has ended; others' are left alone."""
        conditions = [{"type": RESTARTING, "status": "True", "reason": "r", "message": "m"}]
        spec = {}
        if state == "suspended":
            spec = {"suspend": True}
        elif state == "completed":
            conditions.append({"type": "Completed", "status": "True"})
        else:
            spec = {"managedBy": "example.com/other"}
        plan = plan_epochs(
            observed(jobset(status={"conditions": conditions}, **spec), {1: 4}),
            EpochState(uid="js-uid"),
            at(0),
        )

        if state == "another manager's":
            assert plan.status is None
        else:
            message = f"jobset {'is ' * (state == 'suspended')}{state}"
            assert condition(plan, RESTARTING) == [("False", message)]
            assert (keys.JOBSET_SUSPENDED_REASON in str(plan.status.patch)) is (
                state == "suspended"
            )
            assert plan.status.events == ()


@pytest.mark.parametrize(
    ("of", "epochs", "notes", "memory", "expected"),
    [
        (jobset(), {1: 4}, Observations(), EpochState(), False),
        (jobset(), {1: 3, 2: 1}, Observations(), EpochState(), True),
        (jobset(), {1: 4}, Observations((failure(),)), EpochState(), True),
        (jobset(1, 1), {1: 4}, Observations((failure(),)), EpochState(), False),
        (jobset(2, 1), {2: 4}, Observations((failure(),)), EpochState(), False),
        (jobset(), {1: 4}, Observations(remade="j"), EpochState(), True),
        (jobset(suspend=True), {1: 3, 2: 1}, Observations(), EpochState(), False),
    ],
    ids=[
        *("at rest", "a new epoch", "a failure", "a failure that is known", "an old failure"),
        *("a recreated Job", "suspended"),
    ],
)
def test_plan_is_needed_when_there_is(of, epochs, notes, memory, expected):
    """The check that is made at each event."""
    assert bool(needs_plan(of, GroupCounts(epochs, notes=notes), memory)) is expected
