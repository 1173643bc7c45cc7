"""Restarts of groups in which pods have succeeded, and records of restarts in the history."""

from __future__ import annotations

from datetime import timedelta

from jobsetpy.api import keys
from jobsetpy.api.jobset import RestartCause
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import (
    Arrival,
    EpochSeen,
    GroupCounts,
    Observations,
)
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from support.restarts.epoch_plans import (
    RESTARTING,
    START,
    at,
    condition,
    failure,
    jobset,
    observed,
    stored,
)


class TestMembersThatHaveSucceeded:
    """One of four pods has succeeded when another one fails."""

    COUNTS = GroupCounts({1: 2, 2: 1}, succeeded=1)

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
        status = self.plan("Recreate", GroupCounts({1: 3, 2: 1})).status.status

        assert (status.deprecated_epoch, status.restarts) == (1, 0)


class TestHistory:
    def test_record_has_the_observed_failure_when_all_pods_come_together(self):
        """A restart has one cause and one beginning, also if it takes a single write."""
        notes = Observations((failure(7, at=4.0),), newest_epoch_seen=EpochSeen(2, 4.5))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (one.cause.reason, one.cause.exit_code) == ("ContainerFailed", 7)
        assert (one.detection_millis, one.outcome) == (1000, "Completed")
        assert plan.measured.begun.cause.container.exit_code == 7

    def test_record_has_phases_when_the_restart_does_not_count(self):
        """They are measured as those of any other restart."""
        of, notes = jobset(), Observations(remade="j")
        began = plan_epochs(observed(of, {1: 4}, notes=notes), EpochState(), at(5))
        notes = Observations(newest_epoch_seen=EpochSeen(2, 6.0), single=EpochSeen(2, 7.0))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (one,) = ended.status.status.restart_history

        assert (one.counted, one.deprecation_millis, one.gathering_millis) == (False, 2000, 3000)

    def test_record_has_cause_and_phases_when_the_failure_was_observed(self):
        """Cause and detection come with the first write, phases and the last pod with the second."""
        notes = Observations((failure(137, at=4.0),))
        of = jobset()
        began = plan_epochs(observed(of, {1: 4}, notes=notes), EpochState(), at(5))
        (begun,) = began.status.status.restart_history
        notes = Observations(
            newest_epoch_seen=EpochSeen(2, 6.0),
            single=EpochSeen(2, 7.0),
            latest=Arrival(2, "q", "n2"),
        )
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (done,) = ended.status.status.restart_history

        assert (begun.kind, begun.number, begun.counted) == ("InPlace", 2, True)
        assert (begun.began_at, begun.detection_millis) == (START + timedelta(seconds=4), 1000)
        assert begun.outcome == ""
        assert begun.cause == RestartCause(
            reason="ContainerFailed", pod="p", container="worker", exit_code=137, message="Error"
        )
        assert (done.deprecation_millis, done.gathering_millis) == (2000, 3000)
        assert (done.last_pod, done.last_node, done.outcome) == ("q", "n2", "Completed")

    def test_time_of_the_lift_is_stored_with_the_next_write(self):
        """It is known only when the write that lifts the barrier is done."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        of = stored(of, began)
        ended = plan_epochs(observed(of, {2: 4}), began.memory, at(10)).stored(10.25)
        of = stored(of, ended)
        again = plan_epochs(observed(of, {2: 3, 3: 1}), ended.memory, at(20))

        assert [one.lift_millis for one in again.status.status.restart_history] == [250, None]

    def test_cause_is_the_first_pod_when_no_failure_was_observed(self):
        """The first one at the new epoch."""
        notes = Observations(newest_epoch_seen=EpochSeen(2, 4.0), opener=Arrival(2, "p", "n1"))
        plan = plan_epochs(observed(jobset(), {1: 3, 2: 1}, notes=notes), EpochState(), at(5))
        cause = plan.status.status.restart_history[-1].cause

        assert cause == RestartCause(reason="PodRestarted", pod="p", node="n1")

    def test_restart_is_recorded_by_one_write_when_all_pods_come_together(self):
        """There is no other write."""
        notes = Observations(
            newest_epoch_seen=EpochSeen(2, 4.0),
            opener=Arrival(2, "p", "n1"),
            latest=Arrival(2, "q", "n2"),
        )
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (one.outcome, one.cause.pod, one.last_pod) == ("Completed", "p", "q")
        assert one.detection_millis == 1000

    def test_phases_are_computed_by_the_wall_clock_when_another_manager_ends_the_restart(self):
        """It has not observed their beginning."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        ended = plan_epochs(observed(stored(of, began), {2: 4}), EpochState(), at(9))
        (one,) = ended.status.status.restart_history

        assert (one.gathering_millis, one.deprecation_millis) == (4000, None)
        assert one.outcome == "Completed"

    def test_restart_is_recorded_and_not_counted_when_a_user_recreates_a_job(self):
        """The record names the Job; no restart has to be left."""
        view = observed(jobset(max_restarts=0), {1: 4}, notes=Observations(remade="j"))
        plan = plan_epochs(view, EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert plan.status.status.in_place_restart.uncounted_epochs == 1
        assert not plan.measured.begun.charge.is_in_place_restart
        assert (one.kind, one.counted) == ("InPlace", False)
        assert (one.cause.reason, one.cause.job) == ("JobRemade", "j")
