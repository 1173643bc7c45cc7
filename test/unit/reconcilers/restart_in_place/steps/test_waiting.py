"""Closed barriers, and running groups that are missing pods, in virtual time."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from support.restarts.epoch_plans import STALLED, at, condition, job, jobset, observed, pod, stored


class TestStalls:
    def checks(self, until, pods):
        """Return the times until ``until`` at which the pods of a closed barrier are read."""
        of, now, memory, seen = jobset(1, 1), 0.0, EpochState(), []

        def members():
            seen.append(now)
            return [job()], pods

        while now < until:
            plan = plan_epochs(observed(of, {1: 1, 2: 3}, members=members), memory, at(now))
            memory, of = plan.memory, stored(of, plan)
            now += plan.result.delay.total_seconds()
        return seen

    def test_checks_become_rare(self):
        """The first after a minute, then less often, up to ten minutes apart."""
        pods = [pod("a", 1), *(pod(f"b{i}", 2) for i in range(3))]
        times = self.checks(3000, pods)

        assert times[:7] == [60, 120, 240, 480, 960, 1560, 2160]

    def test_condition_and_event_name_the_pods_that_block_the_barrier(self):
        """The event is emitted once per epoch, the condition is kept up to date."""
        of, pods = jobset(1, 1), [pod("a", 1), *(pod(f"b{i}", 2) for i in range(3))]
        view = observed(of, {1: 1, 2: 3}, pods=pods)
        first = plan_epochs(view, EpochState(), at(0))
        stalled = plan_epochs(view, first.memory, at(60))
        view = attrs.evolve(view, jobset=stored(of, stalled), members=lambda: ([job()], []))
        later = plan_epochs(view, stalled.memory, at(120))
        text = "1 of 4 pods has not come to epoch 2 for more than 60 s: pod 'a' (at epoch 1)"
        events = [(event.reason, event.message) for event in stalled.status.events]

        assert (first.status, first.memory.waiting.missing, first.memory.waiting.stalled) == (
            None,
            1,
            False,
        )
        assert condition(stalled, STALLED) == [("True", text)]
        assert events == [(keys.BARRIER_STALLED_CONDITION, text)]
        assert (stalled.memory.waiting.missing, stalled.memory.waiting.stalled) == (1, True)
        assert later.status.events == ()
        assert "job 'j' is missing 4 pods" in condition(later, STALLED)[0][1]

    def test_time_starts_again_when_the_barrier_lifts(self):
        """All pods have come."""
        waiting = Waiting(since=0.0, look_at=9.0, stall_reported=2, missing=1, stalled=True)
        memory = EpochState(uid="js-uid", waiting=waiting)
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), memory, at(100))

        assert plan.status.patch["syncedEpoch"] == 2
        assert plan.memory.waiting == Waiting()


class TestMissingMembers:
    """Workers run, but not all of the group is there."""

    def follow(self, of, epochs, until, jobs=None):
        """Plan whenever a plan is due; return the times and what was done."""
        now, memory, seen = 0.0, EpochState(), []
        while now <= until:
            view = observed(of, epochs, members=lambda: (jobs or [job()], []))
            plan = plan_epochs(view, memory, at(now))
            seen.append((now, plan.result.summary or plan.status is not None))
            memory, of = plan.memory, stored(of, plan)
            if plan.result.delay is None or of.status.deprecated_epoch:
                break
            now += plan.result.delay.total_seconds()
        return seen

    def test_epoch_is_over_after_some_seconds(self):
        """The replacement may come in time."""
        assert self.follow(jobset(), {1: 3}, 100) == [(0.0, False), (10.0, "deprecated 1")]

    @pytest.mark.parametrize("epochs", [{1: 4}, GroupCounts({1: 3}, succeeded=1)])
    def test_no_pod_is_missing_when_the_others_have_succeeded(self, epochs):
        """Nor in a complete group."""
        assert self.follow(jobset(), epochs, 100) == [(0.0, False)]

    def test_pod_that_is_being_deleted_is_missing(self):
        """Its node may be gone, and its object may stay for hours."""
        pods = GroupCounts({1: 4}, leaving=1)

        assert self.follow(jobset(), pods, 100) == [(0.0, False), (10.0, "deprecated 1")]

    def test_pods_are_not_missing_when_their_job_is_about_to_end(self):
        """Checks become less frequent."""
        ending = [job(conditions=[{"type": "FailureTarget", "status": "True"}])]
        times = [time for time, _ in self.follow(jobset(), {1: 3}, 400, jobs=ending)]

        assert times == [0, 10, 20, 40, 80, 160, 320]

    @pytest.mark.parametrize(
        "of",
        [
            jobset(status={"inPlaceRestart": {"pods": 2}}),
            jobset(status={"inPlaceRestart": {"pods": 4, "jobRestartsAtSync": 1}}),
            jobset(status={"inPlaceRestart": {"pods": 4, "resumeTime": "2026-01-01T00:00:00Z"}}),
        ],
        ids=["resized", "recreated", "resumed"],
    )
    def test_new_pods_are_not_missing_when_the_jobset_was(self, of):
        """They are awaited, and the others keep running until then."""
        assert self.follow(of, {1: 3}, 100) == [(0.0, False)]

    def test_plan_is_needed_when_pods_begin_or_cease_to_be_missing(self):
        """In between a timer is enough."""
        counts, known = GroupCounts({1: 3}), EpochState(waiting=Waiting(lacking_since=1.0))

        assert needs_plan(jobset(), counts, EpochState())
        assert not needs_plan(jobset(), counts, known)
        assert needs_plan(jobset(), GroupCounts({1: 4}), known)
