"""Times of a restart."""

from __future__ import annotations

from jobsetpy.reconcilers.restart_in_place.observed import Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import at, jobset, observed, stored


class TestMeasures:
    def test_phases_of_a_restart(self):
        """Each phase once: when it is over."""
        of = jobset()
        began = plan_epochs(
            observed(of, {1: 3, 2: 1}, notes=Observations(opened=(2, 4.0))), EpochState(), at(5)
        )
        ended = plan_epochs(
            observed(
                stored(of, began), {2: 4}, notes=Observations(opened=(2, 4.0), single=(2, 7.0))
            ),
            began.memory,
            at(10),
        )

        assert (began.begun.cause, began.begun.times.began, began.ended) == (None, 4.0, None)
        assert ended.ended.times.phases == {"deprecate": 2.0, "gather": 3.0}
        assert (ended.ended.times.lifted, ended.ended.times.began) == (10, 4.0)
        assert ended.begun is None

    def test_all_pods_come_at_once(self):
        """The restart is counted when it ends; nothing of it was to be seen before."""
        plan = plan_epochs(
            observed(jobset(), {2: 4}, notes=Observations(opened=(2, 4.0))), EpochState(), at(5)
        )

        assert plan.begun is plan.ended
        assert plan.ended.times.phases == {}
        assert plan.ended.times.began == 4.0

    def test_a_restart_that_another_manager_began(self):
        """It was counted then."""
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), EpochState(), at(5))

        assert plan.begun is None

    def test_the_first_start_is_no_restart(self):
        """Nothing is counted."""
        plan = plan_epochs(observed(jobset(0, 0), {1: 4}), EpochState(), at(5))

        assert (plan.begun, plan.ended.charge.restarts) == (None, False)
