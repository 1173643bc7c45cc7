"""Agents of the Go project: attempts read as epochs, and written next to them."""

from __future__ import annotations

from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.epoch_report import INVALID
from jobsetpy.api.worker_reports import parse_report
from jobsetpy.reconcilers.restart_in_place.epochs.decision import Fail, decide_epochs
from jobsetpy.reconcilers.restart_in_place.epochs.go_agents import (
    adopt_go_controller_state,
    managed_by_go_controller,
    with_attempts,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.waiting import Waiting
from jobsetpy.reconcilers.rules import restart_budget
from support.restarts import epoch_plans
from support.restarts.epoch_plans import at, epochs_of, job, stored


def jobset(current=None, previous=None, *, max_restarts=3, notes=None, spec=None, **status):
    """Return a JobSet of one Job with four pods; ``None`` leaves an attempt out."""
    status |= {"currentInPlaceRestartAttempt": current, "previousInPlaceRestartAttempt": previous}
    given = {"max_restarts": max_restarts, "notes": notes, "status": status}
    return epoch_plans.jobset(0, 0, **given, **(spec or {}))


def pods(epochs, **more):
    """Return numbers of pods by epoch, all with the Go project's agents."""
    return GroupCounts(epochs, attempts=sum(epochs.values()), **more)


def planned(of, counts, memory=None, *, seconds=0.0, **more):
    """Return the plan of one reconcile."""
    observed = ObservedEpochs(jobset=of, pods=counts, **more)
    return plan_epochs(observed, memory or EpochState(), at(seconds))


def pod(name="p", epoch=None, attempt=None):
    """Return a pod of a Job."""
    return epoch_plans.pod(name, epoch, notes={keys.ATTEMPT_ANNOTATION: attempt})


def ledger(*pods):
    """Return a ledger that knows these pods."""
    book = EpochLedger()
    book.job_changed(None, job())
    for each in pods:
        book.pod_changed(None, each)
    return book


class TestReports:
    @pytest.mark.parametrize(
        ("text", "epoch"),
        [
            (None, INVALID),
            ("0", 1),
            ("7", 8),
            (str(keys.MAX_EPOCH - 1), keys.MAX_EPOCH),
            (str(keys.MAX_EPOCH), INVALID),
            (str(keys.INT32_MAX), INVALID),
            ("-1", INVALID),
            ("1_0", INVALID),
            ("", INVALID),
            ("9" * 4000, INVALID),
        ],
    )
    def test_attempt_is_parsed_as_the_epoch_after_it(self, text, epoch):
        """Attempts count from 0, epochs from 1."""
        assert parse_report(text, is_attempt=True) == epoch


@pytest.mark.parametrize(
    ("epochs", "attempts"),
    [
        ((0, 0), (None, None)),
        ((1, 0), (0, None)),
        ((3, 2), (2, 1)),
        ((3, 3), (2, 2)),
        # An agent always joins at the current attempt + 1: later attempts must not be over.
        ((3, 5), (2, 2)),
        ((0, 4), (None, None)),
    ],
)
def test_epochs_are_written_as_attempts(epochs, attempts):
    """In the status for the Go project's agents."""
    status = evolve(jobset().status, synced_epoch=epochs[0], deprecated_epoch=epochs[1])
    new = with_attempts(status)
    found = (new.current_in_place_restart_attempt, new.previous_in_place_restart_attempt)
    assert found == attempts


class TestTakingOver:
    @pytest.mark.parametrize(
        ("status", "epochs"),
        [
            ({"current": 0}, (1, 0)),
            ({"current": 3, "previous": 2}, (4, 3)),
            ({"current": 3, "previous": 3}, (4, 4)),
            # The Go project's controller managed it again in between.
            ({"current": 5, "previous": 4, "syncedEpoch": 4, "deprecatedEpoch": 3}, (6, 5)),
        ],
    )
    def test_jobset_continues_at_the_newer_numbers(self, status, epochs):
        """It is adopted at its stored attempt by one write."""
        of = jobset(max_restarts=9, **status)
        counts = pods({epochs[0]: 4})
        assert needs_plan(of, counts, EpochState())
        plan = planned(of, counts)
        status = plan.status.status
        assert (status.synced_epoch, status.deprecated_epoch) == epochs
        assert {"syncedEpoch", "inPlaceRestart"} <= set(plan.status.patch)
        assert plan.status.events == ()
        assert adopt_go_controller_state(stored(of, plan), counts) is None

    @pytest.mark.parametrize(
        ("status", "spent"),
        [
            ({}, 2),
            ({"restarts": 1, "restartsCountTowardsMax": 1}, 2),
            ({"restarts": 1}, 1),
            ({"restarts": 2, "restartsCountTowardsMax": 1}, 1),
            ({"restarts": 9}, 0),
        ],
    )
    def test_restarts_are_charged_as_by_the_go_controller(self, status, spent):
        """Its attempts, less recreations that do not count."""
        of = jobset(2, 1, max_restarts=2, **status)
        of = stored(of, planned(of, pods({3: 4})))
        assert restart_budget.spent(of.status) == spent
        assert isinstance(decide_epochs(of, pods({3: 3, 4: 1})), Fail) is (spent == 2)

    @pytest.mark.parametrize(
        "of",
        [
            jobset(),
            jobset(3, 2, spec={"failurePolicy": {"restartStrategy": "Recreate"}}),
            jobset(3, 2, spec={"managedBy": "example.com/other"}),
            jobset(3, 2, spec={"deleted": True}),
            jobset(3, 2, conditions=[{"type": "Completed", "status": "True"}]),
        ],
        ids=["no attempts", "Recreate", "another manager", "deleted", "completed"],
    )
    def test_state_is_not_adopted_when_there_is_none_to_continue(self, of):
        """Nothing is written."""
        assert adopt_go_controller_state(of, GroupCounts({1: 4})) is None


class TestWrites:
    def test_epochs_and_attempts_are_written_together(self):
        """Two writes for each restart."""
        of = jobset()
        first = planned(of, pods({1: 4}))
        assert numbers(first) == {"syncedEpoch": 1, "currentInPlaceRestartAttempt": 0}
        of = stored(of, first)
        begun = planned(of, pods({1: 3, 2: 1}))
        assert numbers(begun) == {"deprecatedEpoch": 1, "previousInPlaceRestartAttempt": 0}
        of = stored(of, begun)
        assert planned(of, pods({1: 1, 2: 3})).status is None
        done = planned(of, pods({2: 4}))
        assert numbers(done) == {"syncedEpoch": 2, "currentInPlaceRestartAttempt": 1}

    def test_attempts_are_not_written_when_all_agents_are_ours(self):
        """They would only confuse users."""
        assert numbers(planned(jobset(), GroupCounts({1: 4}))) == {"syncedEpoch": 1}

    def test_attempts_are_kept_when_no_pod_has_reported_again(self):
        """Once written they are updated with the epochs."""
        of = jobset(0, None, syncedEpoch=1)
        assert epochs_of(decide_epochs(of, GroupCounts({2: 4}))) == (2, None)
        assert numbers(planned(of, GroupCounts({2: 4})))["currentInPlaceRestartAttempt"] == 1


class TestBypass:
    ON: ClassVar = {keys.DISABLE_IN_PLACE_ANNOTATION: ""}

    def test_no_pod_is_awaited_when_agents_have_no_barrier(self):
        """Neither before a first report nor after restarts."""
        for of, counts in (
            (jobset(notes=self.ON), GroupCounts()),
            (jobset(1, 0, syncedEpoch=2, deprecatedEpoch=1, notes=self.ON), pods({2: 3})),
        ):
            assert managed_by_go_controller(of, counts)
            plan = planned(of, counts, EpochState(uid=of.metadata.uid, waiting=Waiting(since=-1e6)))
            assert (plan.status, plan.result.delay) == (None, None)
            assert not needs_plan(of, counts, EpochState())

    def test_barrier_of_our_agents_lifts_as_usual(self):
        """They do not know the annotation."""
        assert numbers(planned(jobset(notes=self.ON), GroupCounts({1: 4}))) == {"syncedEpoch": 1}


def numbers(plan):
    """Return epochs and attempts of a plan's write."""
    patch = {} if plan.status is None else plan.status.patch
    return {key: patch[key] for key in patch if "Epoch" in key or "Attempt" in key}
