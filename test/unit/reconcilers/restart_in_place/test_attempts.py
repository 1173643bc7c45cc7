"""Agents of the Go project: attempts read as epochs, and written beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.attempts import (
    adopt_go_controller_state,
    managed_by_go_controller,
    with_attempts,
)
from jobsetpy.reconcilers.restart_in_place.barrier_report import laggards
from jobsetpy.reconcilers.restart_in_place.barrier_state import INVALID
from jobsetpy.reconcilers.restart_in_place.decision import decide_epochs
from jobsetpy.reconcilers.restart_in_place.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.reports import parse_report
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.status_draft import status_patch
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

NOW = Now(datetime(2026, 1, 1, tzinfo=UTC), 0.0)
SUSPENDED = {"type": "Suspended", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def jobset(current=None, previous=None, *, max_restarts=3, metadata=None, spec=None, **status):
    """A JobSet of one Job with four pods; ``None`` leaves an attempt out."""
    attempts = {
        "currentInPlaceRestartAttempt": current,
        "previousInPlaceRestartAttempt": previous,
    }
    status |= {name: value for name, value in attempts.items() if value is not None}
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    data = jobset_json(
        replicated_job("w", 1, parallelism=4),
        status=status,
        **{"failurePolicy": policy, **(spec or {})},
    )
    data["metadata"] |= metadata or {}
    return decoded(JobSet, data)


def pods(epochs, **more):
    """So many pods with the Go project's agents at each epoch."""
    return Histogram(epochs, attempts=sum(epochs.values()), **more)


def planned(of, counts, memory=None, **more):
    return plan_epochs(ObservedEpochs(jobset=of, pods=counts, **more), memory or EpochState(), NOW)


def after(of, plan):
    """The JobSet once the plan is carried out."""
    return of if plan.status is None else evolve(of, status=plan.status.status)


def pod(name="p", **annotations):
    """A pod of a Job."""
    names = {"epoch": keys.EPOCH_ANNOTATION, "attempt": keys.ATTEMPT_ANNOTATION}
    owner = {"kind": "Job", "uid": "job", "controller": True}
    meta = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [owner]}
    meta["annotations"] = {names[key]: value for key, value in annotations.items()}
    return decoded(ChildPod, {"metadata": meta, "status": {"phase": "Running"}})


def job():
    """Its Job."""
    owner = {"apiVersion": f"{keys.GROUP}/v1alpha2", "kind": "JobSet", "uid": "js", "name": "js",
             "controller": True}  # fmt: skip
    meta = {"name": "job", "namespace": "ns", "uid": "job", "ownerReferences": [owner],
            "labels": {keys.RESTART_ATTEMPT: "0", keys.REPLICATED_JOB_NAME: "w"}}  # fmt: skip
    return decoded(Job, {"metadata": meta})


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
    def test_an_attempt_is_the_epoch_after_it(self, text, epoch):
        """Attempts count from 0, epochs from 1."""
        assert epoch == parse_report(text, is_attempt=True)

    def test_they_are_counted_by_what_pods_carry(self):
        """Pods with an attempt count as at the epoch, and tell which agents there are."""
        ledger, group = EpochLedger(), AttemptKey("ns", "js", "js", 0)
        ledger.job_changed(None, job())
        ledger.pod_changed(None, pod("a", attempt="0"))
        ledger.pod_changed(None, pod("b", epoch="1"))
        both = pod("c", epoch="1", attempt="7")
        ledger.pod_changed(None, both)
        found = ledger.histogram(group)
        assert (found.epochs, found.attempts) == ({1: 3}, 1)

        ledger.pod_changed(pod("a", attempt="0"), pod("a", attempt="1"))
        found = ledger.histogram(group)
        assert (found.epochs, found.attempts) == ({1: 2, 2: 1}, 1)

        ledger.pod_changed(pod("a", attempt="1"), None)
        assert ledger.histogram(group).attempts == 0

    def test_an_unusable_one_is_reported_by_its_name(self):
        """The event names the annotation that the pod has."""
        ledger, group = EpochLedger(), AttemptKey("ns", "js", "js", 0)
        ledger.job_changed(None, job())
        ledger.pod_changed(None, pod("a", attempt="x"))
        plan = planned(jobset(), Histogram(), invalid=ledger.invalid(group))
        (notice,) = plan.notices
        assert f"{keys.ATTEMPT_ANNOTATION} has the unusable value 'x'" in notice.message

    def test_who_holds_the_barrier_is_reported_in_plain_words(self):
        """A pod that is late is shown with the attempt that it has."""
        of = jobset(1, 0)
        found = laggards(of, [job()], [pod("a", attempt="1"), pod("b")], 3, 60.0)
        assert "pod 'a' (at attempt 1)" in found.message
        assert "pod 'b' (not scheduled)" in found.message


@pytest.mark.parametrize(
    ("epochs", "attempts"),
    [
        ((0, 0), (None, None)),
        ((1, 0), (0, None)),
        ((3, 2), (2, 1)),
        ((3, 3), (2, 2)),
        # An agent joins at the current attempt + 1, whatever is over: more must not be over.
        ((3, 5), (2, 2)),
        ((0, 4), (None, None)),
    ],
)
def test_epochs_as_attempts(epochs, attempts):
    """The status for the Go project's agents."""
    status = evolve(jobset().status, synced_epoch=epochs[0], deprecated_epoch=epochs[1])
    new = with_attempts(status)
    names = (new.current_in_place_restart_attempt, new.previous_in_place_restart_attempt)
    assert attempts == names


class TestTakingOver:
    @pytest.mark.parametrize(
        ("stored", "epochs"),
        [
            ({"current": 0}, (1, 0)),
            ({"current": 3, "previous": 2}, (4, 3)),
            ({"current": 3, "previous": 3}, (4, 4)),
            # The Go project's controller had it again in between.
            ({"current": 5, "previous": 4, "syncedEpoch": 4, "deprecatedEpoch": 3}, (6, 5)),
        ],
    )
    def test_the_newer_numbers_hold(self, stored, epochs):
        """A stored JobSet goes on at the attempt where it was, by one write."""
        of = jobset(max_restarts=9, **stored)
        counts = pods({epochs[0]: 4})
        assert needs_plan(of, counts, ObservedEpochs(jobset=of).notes, EpochState())
        plan = planned(of, counts)
        status = plan.status.status
        assert epochs == (status.synced_epoch, status.deprecated_epoch)
        assert {"syncedEpoch", "inPlaceRestart"} <= set(plan.status.patch)
        assert plan.status.events == ()
        assert None is adopt_go_controller_state(after(of, plan), counts)

    def test_nothing_restarts_and_nothing_ends(self):
        """A group that runs goes on to run, however many restarts it has had."""
        of = jobset(3, 2, restarts=1, restartsCountTowardsMax=1)
        of = after(of, planned(of, pods({4: 4}, restarts={3: 4})))
        plan = planned(of, pods({4: 4}, restarts={3: 4}))
        assert (plan.status, plan.notices) == (None, ())

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
    def test_what_restarts_have_cost(self, status, spent):
        """As the Go project's controller counts: attempts, less recreations that do not count."""
        of = jobset(2, 1, max_restarts=2, **status)
        of = after(of, planned(of, pods({3: 4})))
        assert spent == restart_budget.spent(of.status)
        failed = decide_epochs(of, pods({3: 3, 4: 1})).failed
        assert (spent == 2) is (failed is not None)

    def test_in_the_middle_of_a_restart(self):
        """Pods that are late still follow, and the restart is charged once."""
        of = jobset(1, 1, max_restarts=2)
        of = after(of, planned(of, pods({2: 2, 3: 2})))
        assert (of.status.synced_epoch, of.status.deprecated_epoch) == (2, 2)
        plan = planned(of, pods({3: 4}))
        status = plan.status.status
        assert (status.synced_epoch, status.deprecated_epoch) == (3, 2)
        assert status.current_in_place_restart_attempt == 2
        assert restart_budget.spent(status) == 2

    def test_while_suspended(self):
        """What comes of its resumption is known not to be a restart."""
        stored = {"conditions": [{**SUSPENDED, "status": "True"}]}
        of = jobset(1, 0, max_restarts=1, spec={"suspend": True}, **stored)
        of = after(of, planned(of, Histogram()))
        assert of.status.synced_epoch == 2
        at = datetime(2026, 1, 1, 1, tzinfo=UTC)
        resumed = evolve(of.status.conditions[0], status="False", last_transition_time=at)
        of = evolve(
            of,
            spec=evolve(of.spec, suspend=False),
            status=evolve(of.status, conditions=(resumed,)),
        )
        decision = decide_epochs(of, pods({3: 4}))
        assert (decision.synced, decision.failed) == (3, None)

    @pytest.mark.parametrize(
        "of",
        [
            jobset(),
            jobset(3, 2, spec={"failurePolicy": {"restartStrategy": "Recreate"}}),
            jobset(3, 2, spec={"managedBy": "example.com/other"}),
            jobset(3, 2, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            jobset(3, 2, conditions=[{"type": "Completed", "status": "True"}]),
        ],
    )
    def test_who_is_left_alone(self, of):
        """Nothing is written where there is nothing to go on with."""
        assert None is adopt_go_controller_state(of, Histogram({1: 4}))


class TestOneLife:
    def test_both_are_written_together(self):
        """Two writes a restart, each with the epoch and the attempt."""
        of = jobset()
        first = planned(of, pods({1: 4}))
        assert numbers(first) == {"syncedEpoch": 1, "currentInPlaceRestartAttempt": 0}
        of = after(of, first)
        begun = planned(of, pods({1: 3, 2: 1}))
        assert numbers(begun) == {"deprecatedEpoch": 1, "previousInPlaceRestartAttempt": 0}
        of = after(of, begun)
        assert None is planned(of, pods({1: 1, 2: 3})).status
        done = planned(of, pods({2: 4}))
        assert numbers(done) == {"syncedEpoch": 2, "currentInPlaceRestartAttempt": 1}

    def test_not_where_agents_are_ours(self):
        """Nobody else's names appear."""
        assert numbers(planned(jobset(), Histogram({1: 4}))) == {"syncedEpoch": 1}

    def test_they_stay_while_no_pod_is_there(self):
        """What was written once is kept up, though pods have not reported anew."""
        of = jobset(0, None, syncedEpoch=1)
        decision = decide_epochs(of, Histogram({2: 4}))
        assert decision.synced == 2
        assert numbers(planned(of, Histogram({2: 4})))["currentInPlaceRestartAttempt"] == 1


class TestBypass:
    ON: ClassVar = {"annotations": {keys.DISABLE_IN_PLACE_ANNOTATION: ""}}

    def test_no_pod_is_waited_for(self):
        """Without a barrier no pod holds one: neither before a first report nor after restarts."""
        for of, counts in (
            (jobset(metadata=self.ON), Histogram()),
            (jobset(1, 0, syncedEpoch=2, deprecatedEpoch=1, metadata=self.ON), pods({2: 3})),
        ):
            assert managed_by_go_controller(of, counts)
            plan = planned(of, counts, EpochState(uid=of.metadata.uid, waiting_since=-1e6))
            assert (plan.status, plan.result.delay) == (None, None)
            assert not needs_plan(of, counts, ObservedEpochs(jobset=of).notes, EpochState())

    def test_our_agents_do_not_know_it(self):
        """Where they report, their barrier is lifted as ever."""
        of = jobset(metadata=self.ON)
        assert numbers(planned(of, Histogram({1: 4}))) == {"syncedEpoch": 1}


def numbers(plan):
    """Epochs and attempts of a plan's write."""
    patch = {} if plan.status is None else plan.status.patch
    return {key: patch[key] for key in patch if "Epoch" in key or "Attempt" in key}


def test_a_status_patch_takes_attempts_away_again():
    """An attempt that is no longer there becomes null, not what it was."""
    old = jobset(3, 2).status
    new = evolve(old, current_in_place_restart_attempt=None)
    assert status_patch(old, new) == {"currentInPlaceRestartAttempt": None}


def test_a_stalled_start_is_explained():
    """Agents that have not reported are waited for, and named after a while."""
    of = jobset()
    counts = pods({1: 3})
    memory = planned(of, counts).memory
    late = Now(NOW.wall + timedelta(seconds=61), 61.0)
    plan = plan_epochs(ObservedEpochs(jobset=of, pods=counts), memory, late)
    (condition,) = plan.status.status.conditions
    assert condition.type == keys.BARRIER_STALLED_CONDITION
