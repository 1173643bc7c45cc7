"""Times of a restart."""

from __future__ import annotations

from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import EpochSeen, Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from support.restarts.epoch_plans import at, jobset, observed, stored


class TestMeasures:
    def test_each_phase_of_a_restart_is_reported_once(self):
        """When it is over."""
        of = jobset()
        notes = Observations(newest_epoch_seen=EpochSeen(2, 4.0))
        began = plan_epochs(observed(of, {1: 3, 2: 1}, notes=notes), EpochState(), at(5))
        notes = Observations(newest_epoch_seen=EpochSeen(2, 4.0), single=EpochSeen(2, 7.0))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))

        assert (
            began.measured.begun.cause,
            began.measured.begun.times.began,
            began.measured.ended,
        ) == (None, 4.0, None)
        assert ended.measured.ended.times.phases == {"deprecate": 2.0, "gather": 3.0}
        assert (ended.measured.ended.times.lifted, ended.measured.ended.times.began) == (10, 4.0)
        assert ended.measured.begun is None

    def test_restart_is_counted_at_its_end_when_all_pods_come_together(self):
        """It was not visible before."""
        notes = Observations(newest_epoch_seen=EpochSeen(2, 4.0))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))

        assert plan.measured.begun is plan.measured.ended
        assert plan.measured.ended.times.phases == {}
        assert plan.measured.ended.times.began == 4.0

    def test_begin_is_not_counted_again_when_another_manager_has_counted_it(self):
        """The epoch was deprecated then."""
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), EpochState(), at(5))

        assert plan.measured.begun is None

    def test_first_start_is_not_counted(self):
        """It is no restart."""
        plan = plan_epochs(observed(jobset(0, 0), {1: 4}), EpochState(), at(5))

        assert (plan.measured.begun, plan.measured.ended.charge.is_in_place_restart) == (
            None,
            False,
        )
        assert plan.status.status.restart_history == ()
