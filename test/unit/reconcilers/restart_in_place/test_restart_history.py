"""Records of restarts in place in the history."""

from __future__ import annotations

from datetime import timedelta

from jobsetpy.api.jobset import RestartCause
from jobsetpy.reconcilers.restart_in_place.observed import Observations
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import START, at, failure, jobset, observed, stored


class TestHistory:
    def test_record_has_the_observed_failure_when_all_pods_come_together(self):
        """A restart has one cause and one beginning, also if a single write has all of it."""
        notes = Observations((failure(7, at=4.0),), opened=(2, 4.5))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (one.cause.reason, one.cause.exit_code, one.detection_millis, one.outcome) == (
            "ContainerFailed",
            7,
            1000,
            "Completed",
        )
        assert plan.begun.cause.container.exit_code == 7

    def test_record_has_phases_when_the_restart_does_not_count(self):
        """They are measured as those of any other restart."""
        of = jobset()
        began = plan_epochs(
            observed(of, {1: 4}, notes=Observations(remade="j")), EpochState(), at(5)
        )
        notes = Observations(opened=(2, 6.0), single=(2, 7.0))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (one,) = ended.status.status.restart_history

        assert (one.counted, one.deprecation_millis, one.gathering_millis) == (False, 2000, 3000)

    def test_a_restart_by_a_failure_that_was_seen(self):
        """Cause and detection come with the first write, phases and the last pod with the second."""
        notes = Observations((failure(137, at=4.0),))
        of = jobset()
        began = plan_epochs(observed(of, {1: 4}, notes=notes), EpochState(), at(5))
        (begun,) = began.status.status.restart_history
        notes = Observations(opened=(2, 6.0), single=(2, 7.0), latest=(2, "q", "n2"))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (done,) = ended.status.status.restart_history

        assert ("InPlace", 2, True, START + timedelta(seconds=4), 1000, "") == (
            begun.kind,
            begun.number,
            begun.counted,
            begun.began_at,
            begun.detection_millis,
            begun.outcome,
        )
        assert (
            RestartCause(
                reason="ContainerFailed",
                pod="p",
                container="worker",
                exit_code=137,
                message="Error",
            )
            == begun.cause
        )
        assert (
            done.deprecation_millis,
            done.gathering_millis,
            done.last_pod,
            done.last_node,
            done.outcome,
        ) == (2000, 3000, "q", "n2", "Completed")

    def test_the_lift_is_reported_with_the_next_write(self):
        """Its end is known only once the write is done that ends it."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        of = stored(of, began)
        ended = plan_epochs(observed(of, {2: 4}), began.memory, at(10)).stored(10.25)
        of = stored(of, ended)
        again = plan_epochs(observed(of, {2: 3, 3: 1}), ended.memory, at(20))

        assert [one.lift_millis for one in again.status.status.restart_history] == [250, None]

    def test_a_restart_that_a_pod_opened(self):
        """Without a failure that was seen, the first pod at the new epoch is named."""
        notes = Observations(opened=(2, 4.0), opener=(2, "p", "n1"))
        plan = plan_epochs(observed(jobset(), {1: 3, 2: 1}, notes=notes), EpochState(), at(5))

        assert RestartCause(reason="PodRestarted", pod="p", node="n1") == (
            plan.status.status.restart_history[-1].cause
        )

    def test_all_pods_come_at_once(self):
        """The restart is remembered by the one write there is."""
        notes = Observations(opened=(2, 4.0), opener=(2, "p", "n1"), latest=(2, "q", "n2"))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (
            one.outcome,
            one.cause.pod,
            one.last_pod,
            one.detection_millis,
        ) == ("Completed", "p", "q", 1000)

    def test_another_manager_ends_it(self):
        """What it did not see itself, it reckons by the clock on the wall."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        ended = plan_epochs(observed(stored(of, began), {2: 4}), EpochState(), at(9))
        (one,) = ended.status.status.restart_history

        assert (
            one.gathering_millis,
            one.deprecation_millis,
            one.outcome,
        ) == (4000, None, "Completed")

    def test_a_job_recreated_by_hand(self):
        """It is remembered, and not counted."""
        plan = plan_epochs(
            observed(jobset(), {1: 3}, notes=Observations(remade="j")), EpochState(), at(5)
        )
        (one,) = plan.status.status.restart_history

        assert (
            one.kind,
            one.counted,
            one.cause.reason,
            one.cause.job,
        ) == ("InPlace", False, "JobRemade", "j")

    def test_a_gathering_of_new_pods_is_no_restart(self):
        """Neither the first start nor what comes of recreated Jobs is one more."""
        first = plan_epochs(observed(jobset(0, 0), {1: 4}), EpochState(), at(5))

        assert first.status.status.restart_history == ()
