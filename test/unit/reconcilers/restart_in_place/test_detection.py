"""Causes of restarts among the failures that were observed, as tables in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.observed import Histogram, Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import (
    RESTARTING,
    at,
    condition,
    failure,
    gone,
    job,
    jobset,
    observed,
)


class TestCause:
    def test_a_failure_deprecates_the_epoch(self):
        """The first one that counts is the cause; the others of the epoch belong to it."""
        notes = Observations((failure(at=3.0), failure(9, at=4.0)))
        plan = plan_epochs(observed(jobset(), {1: 4}, notes=notes), EpochState(), at(5))

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert condition(plan, RESTARTING) == [
            (
                "True",
                (
                    "pod 'p', container 'worker' exited with 7 (Error): "
                    "restarting in place from epoch 1 to 2, 4 pods to follow"
                ),
            )
        ]
        assert plan.begun.cause.container.exit_code == 7
        assert plan.begun.times.began == 3.0
        assert plan.judged

    def test_a_failure_that_proves_nothing_is_passed_over(self):
        """The next one may be the cause."""
        notes = Observations((failure(0), failure(1)))
        plan = plan_epochs(observed(jobset(), {1: 4}, notes=notes), EpochState(), at(5))

        assert plan.memory.cause.container.exit_code == 1

    @pytest.mark.parametrize(
        ("of", "notes", "more"),
        [
            (jobset(2, 1), Observations((failure(epoch=1),)), {}),
            (jobset(1, 1), Observations((failure(),)), {}),
            (jobset(max_restarts=0), Observations((failure(),)), {}),
            (jobset(), Observations((failure(),)), {"job_of": lambda _pod: None}),
            (
                jobset(),
                Observations((gone(),)),
                {"job_of": lambda _: job(conditions=[{"type": "Complete", "status": "True"}])},
            ),
        ],
        ids=[
            "older epoch",
            "already deprecated",
            "no restarts left",
            "no Job",
            "its Job has ended",
        ],
    )
    def test_what_is_no_cause(self, of, notes, more):
        """Nothing is written, and the failure is not looked at again."""
        epoch = of.status.synced_epoch
        plan = plan_epochs(observed(of, {epoch: 4}, notes=notes, **more), EpochState(), at(5))

        assert (plan.status, plan.memory.cause, plan.judged) == (None, None, True)

    def test_once_per_epoch(self):
        """An epoch that has ended early does not end again."""
        first = plan_epochs(
            observed(jobset(), {1: 4}, notes=Observations((failure(),))), EpochState(), at(5)
        )
        again = plan_epochs(
            observed(jobset(), {1: 4}, notes=Observations((failure(9),))), first.memory, at(6)
        )

        assert again.memory.cause.container.exit_code == 7

    def test_a_job_that_is_recreated(self):
        """Its restart is not counted."""
        of = jobset(max_restarts=0)
        plan = plan_epochs(
            observed(of, {1: 4}, notes=Observations(remade="j")), EpochState(), at(5)
        )

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert plan.status.status.in_place_restart.uncounted_epochs == 1
        assert not plan.begun.charge.restarts

    def test_pods_that_go_with_a_suspension_are_no_failures(self):
        """What was noted while the JobSet was suspended does not count when it is resumed."""
        away = plan_epochs(observed(jobset(suspend=True), {1: 4}), EpochState(), at(0))
        back = plan_epochs(
            observed(jobset(), Histogram({}), notes=Observations((gone(),))), away.memory, at(9)
        )

        assert away.memory.left
        assert not back.memory.left
        assert back.status is None
