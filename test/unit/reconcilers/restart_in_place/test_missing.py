"""Running groups that are missing pods, in virtual time."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.observed import Histogram, Observations
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import at, job, jobset, observed, stored


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

    @pytest.mark.parametrize("epochs", [{1: 4}, Histogram({1: 3}, succeeded=1)])
    def test_no_pod_is_missing_when_the_others_have_succeeded(self, epochs):
        """Nor in a complete group."""
        assert self.follow(jobset(), epochs, 100) == [(0.0, False)]

    def test_pod_that_is_being_deleted_is_missing(self):
        """Its node may be gone, and its object may stay for hours."""
        pods = Histogram({1: 4}, leaving=1)

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
        counts, known = Histogram({1: 3}), EpochState(lacking_since=1.0)

        assert needs_plan(jobset(), counts, Observations(), EpochState())
        assert not needs_plan(jobset(), counts, Observations(), known)
        assert needs_plan(jobset(), Histogram({1: 4}), Observations(), known)
