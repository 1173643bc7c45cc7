"""Barriers that stay closed, in virtual time."""

from __future__ import annotations

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from support.restarts.epoch_plans import STALLED, at, condition, job, jobset, observed, pod, stored


class TestStalls:
    def looks(self, until, pods):
        """When the pods of a barrier that stays closed are looked at, over so many seconds."""
        of, now, memory, seen = jobset(1, 1), 0.0, EpochState(), []

        def members():
            seen.append(now)
            return [job()], pods

        while now < until:
            plan = plan_epochs(observed(of, {1: 1, 2: 3}, members=members), memory, at(now))
            memory, of = plan.memory, stored(of, plan)
            now += plan.result.delay.total_seconds()
        return seen

    def test_looks_become_rare(self):
        """First after a minute, then less and less often, up to ten minutes apart."""
        pods = [pod("a", 1), *(pod(f"b{i}", 2) for i in range(3))]
        times = self.looks(3000, pods)

        assert times[:7] == [60, 120, 240, 480, 960, 1560, 2160]

    def test_the_condition_and_the_event(self):
        """Both name who holds it; the event comes once per epoch, the condition keeps up."""
        of, pods = jobset(1, 1), [pod("a", 1)]
        view = observed(of, {1: 1, 2: 3}, pods=[*pods, *(pod(f"b{i}", 2) for i in range(3))])
        first = plan_epochs(view, EpochState(), at(0))
        told = plan_epochs(view, first.memory, at(60))
        later = plan_epochs(
            attrs.evolve(view, jobset=stored(of, told), members=lambda: ([job()], [])),
            told.memory,
            at(120),
        )
        text = "1 of 4 pods has not come to epoch 2 for more than 60 s: pod 'a' (at epoch 1)"

        assert (first.status, first.memory.missing, first.memory.stalled) == (None, 1, False)
        assert [("True", text)] == condition(told, STALLED)
        assert [(keys.BARRIER_STALLED_CONDITION, text)] == [
            (event.reason, event.message) for event in told.status.events
        ]
        assert (told.memory.missing, told.memory.stalled) == (1, True)
        assert later.status.events == ()
        assert "job 'j' is missing 4 pods" in condition(later, STALLED)[0][1]

    def test_a_barrier_that_opens_is_forgotten(self):
        """When all have come, the time starts anew."""
        memory = EpochState(
            uid="js-uid", waiting_since=0.0, look_at=9.0, stall_reported=2, missing=1, stalled=True
        )
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), memory, at(100))

        assert plan.status.patch["syncedEpoch"] == 2
        assert (
            plan.memory.waiting_since,
            plan.memory.stall_reported,
            plan.memory.missing,
            plan.memory.stalled,
        ) == (None, 0, 0, False)
