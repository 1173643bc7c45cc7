"""Causes of restarts among the failures that were observed, as tables in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
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
    def test_epoch_is_deprecated_when_a_worker_fails(self):
        """The first failure that counts is the cause; the others of the epoch belong to it."""
        notes = Observations((failure(at=3.0), failure(9, at=4.0)))
        plan = plan_epochs(observed(jobset(), {1: 4}, notes=notes), EpochState(), at(5))
        message = (
            "pod 'p', container 'worker' exited with 7 (Error): "
            "restarting in place from epoch 1 to 2, 4 pods to follow"
        )

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert condition(plan, RESTARTING) == [("True", message)]
        assert plan.measured.begun.cause.container.exit_code == 7
        assert plan.measured.begun.times.began == 3.0
        assert plan.judged

    def test_failure_is_skipped_when_it_is_not_a_cause(self):
        """The next one may be."""
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
    def test_failure_is_no_cause(self, of, notes, more):
        """Nothing is written, and the failure is not judged again."""
        epoch = of.status.synced_epoch
        plan = plan_epochs(observed(of, {epoch: 4}, notes=notes, **more), EpochState(), at(5))

        assert (plan.status, plan.memory.cause, plan.judged) == (None, None, True)

    def test_epoch_ends_only_once(self):
        """The first cause is kept when another failure follows."""
        memory = EpochState()
        for now, code in ((5, 7), (6, 9)):
            view = observed(jobset(), {1: 4}, notes=Observations((failure(code),)))
            memory = plan_epochs(view, memory, at(now)).memory

        assert memory.cause.container.exit_code == 7

    def test_pods_that_a_suspension_deletes_are_no_failures(self):
        """Observations of a suspended JobSet do not count when it is resumed."""
        away = plan_epochs(observed(jobset(suspend=True), {1: 4}), EpochState(), at(0))
        back = plan_epochs(
            observed(jobset(), GroupCounts({}), notes=Observations((gone(),))), away.memory, at(9)
        )

        assert away.memory.left
        assert not back.memory.left
        assert back.status is None
