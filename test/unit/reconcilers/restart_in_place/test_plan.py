"""What a reconcile does about epochs, as tables in virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobsetpy.reconcilers.restart_in_place.observed import (
    Histogram,
    InvalidEpoch,
    Observations,
    ObservedEpochs,
)
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import RESTARTING, at, condition, failure, jobset, observed


class TestWhoIsPlannedFor:
    def test_a_jobset_that_is_gone(self):
        """Nothing is done, and nothing remembered."""
        plan = plan_epochs(ObservedEpochs(jobset=None), EpochState(uid="x"), at(0))

        assert (plan.memory, plan.status, plan.result.delay) == (None, None, None)

    def test_another_jobset_of_the_name(self):
        """What is remembered of the one before does not count."""
        reported = frozenset({InvalidEpoch("p", "p", "x")})
        memory = EpochState(uid="other", reported=reported, waiting_since=0.0)
        plan = plan_epochs(observed(jobset(), {1: 4}), memory, at(100))

        assert EpochState(uid="js-uid") == plan.memory

    def test_own_writes_are_waited_for(self):
        """Nothing is decided, and nothing that was noted is lost."""
        memory = EpochState(uid="js-uid", waiting_since=1.0)
        plan = plan_epochs(
            observed(jobset(), {1: 3, 2: 1}, notes=Observations((failure(),)), wait_s=2.5),
            memory,
            at(9),
        )

        assert (None, memory, False) == (plan.status, plan.memory, plan.judged)
        assert timedelta(seconds=2.5) == plan.result.delay

    @pytest.mark.parametrize("state", ["suspended", "completed", "another manager's"])
    def test_what_is_left_over_is_taken_back(self, state):
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
            assert [("False", f"jobset {'is ' * (state == 'suspended')}{state}")] == condition(
                plan, RESTARTING
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
        (jobset(), {1: 4}, Observations(invalid=1), EpochState(), True),
        (jobset(), {1: 4}, Observations(invalid=1), EpochState(invalid=1), False),
        (jobset(suspend=True), {1: 3, 2: 1}, Observations(), EpochState(), False),
    ],
    ids=[
        *("at rest", "a new epoch", "a failure", "a failure that is known", "an old failure"),
        *("a Job made anew", "an unusable annotation", "a known one", "suspended"),
    ],
)
def test_whether_a_plan_is_needed(of, epochs, notes, memory, expected):
    """The one question that is asked at each event."""
    assert expected is bool(needs_plan(of, Histogram(epochs), notes, memory))
