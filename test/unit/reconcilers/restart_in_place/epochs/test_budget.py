"""Costs of restarts, and limits of restarts before the barrier."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.reconcilers.restart_in_place.epochs.budget import account
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    Fail,
    Record,
    Wait,
    decide_epochs,
    needs_decision,
)
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Crash, GroupCounts
from jobsetpy.reconcilers.rules.in_place_record import Renewal
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import epochs_of

AGENT_ENV = [{"name": name, "value": "x"} for name in ("POD_NAME", "JOBSET_NAME")]
T1, T2 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def resumed(at):
    """Return the condition of a JobSet that was suspended once."""
    return {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": at}]}


def jobset(synced=1, deprecated=0, *, record=None, pods=4, max_restarts=10, **status):
    """Return a JobSet of four pods whose group was complete at an epoch."""
    status["inPlaceRestart"] = {"pods": 4, **(record or {})}
    pod_spec = {
        "containers": [{"name": "worker"}],
        "initContainers": [
            {"name": "fetch"},
            {"name": "logs", "restartPolicy": "Always"},
            {"name": "agent", "restartPolicy": "Always", "env": AGENT_ENV},
        ],
    }
    item = replicated_job("a", 1, parallelism=pods, pod_spec=pod_spec)
    given = {"items": [item], "max_restarts": max_restarts, "status": status}
    return epoch_plans.jobset(synced, deprecated, **given)


# JobSet, newest epoch, expected pods, reason why the epoch does not count, restarts spent
ACCOUNTS = {
    "the first run": (jobset(0, 0), 1, 4, Renewal.NONE, 0),
    "no restart since": (jobset(3, 2), 3, 4, Renewal.NONE, 2),
    "a restart": (jobset(3, 2), 4, 4, Renewal.NONE, 3),
    "all Jobs were recreated": (
        jobset(3, 2, restarts=1, restartsCountTowardsMax=1),
        4,
        4,
        Renewal.RECREATED,
        3,
    ),
    "by a rule that ignores the maximum": (jobset(3, 2, restarts=1), 4, 4, Renewal.RECREATED, 2),
    "they were recreated before": (
        jobset(3, 2, restarts=1, record={"allJobsRestartsAtSync": 1, "uncountedEpochs": 1}),
        4,
        4,
        Renewal.NONE,
        2,
    ),
    "a single Job was recreated": (
        jobset(
            replicatedJobsStatus=[
                {"name": "a", "jobRestarts": [1], "jobRestartsCountTowardsMax": [1]}
            ]
        ),
        2,
        4,
        Renewal.RECREATED,
        1,
    ),
    "twice before the barrier lifted": (
        jobset(1, 1, restarts=2, restartsCountTowardsMax=2),
        2,
        4,
        Renewal.RECREATED,
        2,
    ),
    "the JobSet was resumed": (jobset(3, 2, **resumed(T1)), 4, 4, Renewal.RESUMED, 2),
    "it was resumed before": (
        jobset(3, 2, record={"resumeTime": T1}, **resumed(T1)),
        4,
        4,
        Renewal.NONE,
        3,
    ),
    "it was resumed again": (
        jobset(3, 2, record={"resumeTime": T1, "uncountedEpochs": 1}, **resumed(T2)),
        4,
        4,
        Renewal.RESUMED,
        1,
    ),
    "it was resized": (jobset(3, 2), 4, 6, Renewal.RESIZED, 2),
    "no record yet": (jobset(3, 2, record={"pods": 0}), 4, 6, Renewal.NONE, 3),
    "decided earlier": (
        jobset(3, 3, record={"lastUncountedEpoch": 4, "uncountedEpochs": 1}),
        4,
        4,
        Renewal.UNCOUNTED,
        2,
    ),
}


@pytest.mark.parametrize("case", ACCOUNTS)
def test_epoch_is_charged_or_not_when(case):
    """Each epoch after the first is a restart, unless its pods are only new ones."""
    observed, newest, expected, renewal, spent = ACCOUNTS[case]
    charged = account(observed, newest, expected)

    assert (charged.renewal, charged.spent) == (renewal, spent)


def stored(observed, decision):
    """Return the JobSet after a decision was written."""
    return evolve(observed, status=evolve(observed.status, **decision.fields))


def decided(observed, *epochs):
    """Return the JobSet after a decision for each of these numbers of pods by epoch."""
    for pods in epochs:
        observed = stored(observed, decide_epochs(observed, GroupCounts(pods)))
    return observed


@pytest.mark.parametrize(
    ("change", "counts"), [({}, True), ({"restarts": 1}, False), (resumed(T1), False)]
)
def test_epoch_is_charged_once(change, counts):
    """Over both writes of a restart, and all that follow."""
    whole = decided(jobset(1, 0, **change), {1: 3, 2: 1}, {2: 4})

    assert (whole.status.synced_epoch, whole.status.deprecated_epoch) == (2, 1)
    record = whole.status.in_place_restart
    assert (record.uncounted_epochs, record.restarts) == ((0, 1) if counts else (1, 0))
    assert account(whole, 2, 4).spent == (1 if counts else 0)
    assert account(whole, 3, 4).spent == (2 if counts else 1)


def test_decision_of_the_first_write_holds_when_a_resize_is_reverted_in_the_middle():
    """The epoch stays uncounted."""
    half = decided(jobset(1, 0, pods=6), {1: 4, 2: 1})
    whole = decided(evolve(half, spec=jobset().spec), {2: 4})

    assert whole.status.in_place_restart.uncounted_epochs == 1
    assert whole.status.in_place_restart.pods == 4
    assert account(whole, 2, 4).spent == 0


def resumed_in_the_middle(observed, **status):
    """Return the JobSet after a failure, a suspension and a resumption."""
    half = decided(observed, {1: 3, 2: 1})
    conditions = jobset(**resumed(T1)).status.conditions
    return evolve(half, status=evolve(half.status, conditions=conditions, **status))


def cut_short(observed, at, pods=4):
    """Return the JobSet after a failure, a suspension or resize, and the barrier's lift."""
    half = resumed_in_the_middle(observed) if at else decided(observed, {1: 3, 2: 1})
    assert half.status.deprecated_epoch == 1
    return decided(evolve(half, spec=jobset(pods=pods, max_restarts=1).spec), {2: pods})


@pytest.mark.parametrize(("at", "pods"), [(T1, 4), (None, 3), (None, 5), (T1, 5)])
def test_failure_stays_charged_when_its_restart_is_cut_short(at, pods):
    """With one restart allowed the second failure ends a JobSet that a queue suspends each time."""
    once = cut_short(jobset(1, 0, max_restarts=1), at, pods)

    assert (once.status.synced_epoch, once.status.in_place_restart.uncounted_epochs) == (2, 0)
    assert once.status.in_place_restart.restarts == 1
    end = decide_epochs(once, GroupCounts({2: pods - 1, 3: 1})).failure
    assert end.reason == "ReachedMaxRestarts"


def test_completion_is_not_reported_when_a_restart_is_cut_short():
    """The suspension ended it; its pods gather because of the resumption."""
    decision = decide_epochs(resumed_in_the_middle(jobset(1, 0)), GroupCounts({2: 4}))

    assert epochs_of(decision) == (2, None)
    assert (decision.charge.is_in_place_restart, decision.events) == (False, ())


def test_recreation_replaces_a_restart_that_it_cuts_short():
    """The two are one restart, counted as that of the Jobs, even after a resumption."""
    whole = decided(resumed_in_the_middle(jobset(1, 0), restarts=1), {2: 4})

    assert whole.status.in_place_restart.restarts == 0


def test_group_keeps_running_when_it_becomes_smaller():
    """Pods that are deleted because they are in excess restart no others."""
    observed = jobset(1, 0, pods=3)

    assert decide_epochs(observed, GroupCounts({1: 4})) == Wait()
    decision = decide_epochs(observed, GroupCounts({1: 3}))
    assert isinstance(decision, Record)

    smaller = stored(observed, decision)
    assert decide_epochs(smaller, GroupCounts({1: 3})) == Wait()
    assert account(smaller, 2, 3).spent == 1


def test_resize_is_reported_by_an_event():
    """Running pods restart; but it does not count as a restart of the group."""
    decision = decide_epochs(jobset(pods=6), GroupCounts({1: 4, 2: 1}))

    assert [event.reason for event in decision.events] == [keys.IN_PLACE_GROUP_RESIZED_REASON]
    assert (decision.conditions, decision.charge.is_in_place_restart) == ((), False)


CAUSE = Cause(1, FailureKind.POD_FAILED, "p")


class TestEarly:
    def test_synced_epoch_is_deprecated_before_a_pod_has_come_to_the_next_one(self):
        """A condition has the reason."""
        decision = decide_epochs(jobset(1, 0), GroupCounts({1: 4}), CAUSE)
        (found,) = decision.conditions
        kind = keys.RESTARTING_IN_PLACE_CONDITION

        assert epochs_of(decision) == (None, 1)
        assert (found.type, found.status, found.reason) == (kind, True, keys.POD_FAILED_REASON)
        assert found.message == (
            "pod 'p' failed: restarting in place from epoch 1 to 2, 4 pods to follow"
        )

    def test_epoch_is_deprecated_only_once(self):
        """Nothing is left to do when it is deprecated, or when the group has a later one."""
        assert decide_epochs(jobset(1, 1), GroupCounts({1: 4}), CAUSE) == Wait()
        assert decide_epochs(jobset(1, 1), GroupCounts({1: 2, 2: 2}), CAUSE) == Wait()
        assert decide_epochs(jobset(2, 1), GroupCounts({2: 4}), CAUSE) == Wait()

    def test_jobset_without_restarts_left_fails_only_when_an_agent_reports(self):
        """An early sign does not end it."""
        observed = jobset(1, 0, max_restarts=0)

        assert decide_epochs(observed, GroupCounts({1: 4}), CAUSE) == Wait()
        assert isinstance(decide_epochs(observed, GroupCounts({1: 3, 2: 1}), CAUSE), Fail)


# JobSet, epochs, worst crashes by container, whether the JobSet fails, with at most two restarts
CRASHES = {
    "none": (jobset(0, 0, max_restarts=2), {}, {}, False),
    "as many as are allowed": (jobset(0, 0, max_restarts=2), {1: 1}, {"worker": 2}, False),
    "before the first barrier": (jobset(0, 0, max_restarts=2), {1: 1}, {"worker": 3}, True),
    "before any agent reported": (jobset(0, 0, max_restarts=2), {}, {"worker": 3}, True),
    "an agent": (jobset(0, 0, max_restarts=2), {}, {"agent": 3, "worker": 1}, True),
    "an init container": (jobset(0, 0, max_restarts=2), {}, {"fetch": 3}, True),
    "a container that the JobSet does not name": (
        jobset(0, 0, max_restarts=2),
        {1: 1},
        {"istio-proxy": 99},
        False,
    ),
    "a sidecar next to the agent": (jobset(0, 0, max_restarts=2), {1: 1}, {"logs": 99}, False),
    "workers run": (jobset(2, 1, max_restarts=2), {2: 4}, {"worker": 9}, False),
    "during a restart": (jobset(2, 2, max_restarts=2), {3: 2, 2: 2}, {"worker": 3}, True),
    "counted by another manager": (
        jobset(2, 2, max_restarts=2, record={"crashes": 3, "crashingPod": "p"}),
        {3: 2, 2: 2},
        {},
        True,
    ),
    "Jobs were recreated": (jobset(2, 1, max_restarts=2), {}, {"worker": 3}, True),
}


def crashes(counts):
    """Return the worst crashes, as the ledger has them."""
    return {("a", name): Crash(count, "p", name) for name, count in counts.items()}


@pytest.mark.parametrize("case", CRASHES)
def test_crashes_before_the_barrier_end_the_jobset_or_not_when_they_are_of(case):
    """A container that keeps failing does not block its group forever."""
    observed, epochs, counts, expected = CRASHES[case]
    pods = GroupCounts(epochs, crashes=crashes(counts))
    decision = decide_epochs(observed, pods)

    assert isinstance(decision, Fail) is expected
    assert needs_decision(observed, pods) is (decision != Wait())


def test_crashes_are_stored_for_the_next_manager():
    """Once for each that is worse than those before, until the barrier lifts."""
    observed = jobset(2, 2, max_restarts=5)
    pods = GroupCounts({3: 2, 2: 2}, crashes=crashes({"worker": 2}))
    after = stored(observed, decide_epochs(observed, pods))
    record = after.status.in_place_restart

    assert (record.crashes, record.crashing_pod, record.crashing_container) == (2, "p", "worker")
    assert decide_epochs(after, pods) == Wait()
    assert not needs_decision(after, pods)
    record = decided(after, {3: 4}).status.in_place_restart
    assert (record.crashes, record.crashing_pod) == (0, "")


def test_restart_counts_are_stored_by_the_first_write_of_a_restart():
    """Later restarts of containers are counted from there, also by the next manager."""
    decision = decide_epochs(jobset(1, 0), GroupCounts({1: 3, 2: 1}, restarts={2: 3, 5: 1}))

    assert decision.record.container_restarts == 5
