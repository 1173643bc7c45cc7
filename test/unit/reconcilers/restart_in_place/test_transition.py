"""Restarts of groups in which pods have succeeded."""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.observed import Histogram
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import RESTARTING, at, condition, jobset, observed


class TestMembersThatHaveSucceeded:
    """One of four pods has succeeded when another one fails."""

    COUNTS = Histogram({1: 2, 2: 1}, succeeded=1)

    def plan(self, choice=None, counts=COUNTS):
        """Return the plan for a JobSet with the user's choice."""
        of = jobset(notes=choice and {keys.AFTER_SUCCESS_ANNOTATION: choice})
        return plan_epochs(observed(of, counts), EpochState(uid="js-uid"), at(0))

    def test_others_restart_in_place_unless_the_user_chooses_otherwise(self):
        """The condition says that the pod that has succeeded does not restart."""
        plan = self.plan()
        ((held, message),) = condition(plan, RESTARTING)

        assert (plan.status.status.deprecated_epoch, plan.status.status.restarts) == (1, 0)
        assert held == "True"
        assert message.endswith("1 pod has succeeded and will not come along")

    def test_all_jobs_are_recreated_when_the_user_asks_for_it(self):
        """It is one restart that counts, and no epoch is deprecated."""
        status = self.plan("Recreate").status.status
        ((held, message),) = condition(self.plan("Recreate"), keys.RESTARTING_CONDITION)
        (record,) = status.restart_history

        assert (status.restarts, status.restarts_count_towards_max) == (1, 1)
        assert (status.synced_epoch, status.deprecated_epoch) == (1, 0)
        assert (record.kind, record.number, record.counted) == ("Recreate", 1, True)
        assert held == "True"
        assert "recreating all jobs, since 1 pod has succeeded already" in message

    def test_group_restarts_in_place_when_no_pod_has_succeeded(self):
        """The choice is about groups that cannot become complete again."""
        status = self.plan("Recreate", Histogram({1: 3, 2: 1})).status.status

        assert (status.deprecated_epoch, status.restarts) == (1, 0)
