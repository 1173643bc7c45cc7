"""What restarts cost, and when there are too many before the barrier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.budget import account
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.decision import decide_epochs, needs_decision
from jobsetpy.reconcilers.restart_in_place.observed import Crash, Histogram
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

AGENT_ENV = [{"name": name, "value": "x"} for name in ("POD_NAME", "JOBSET_NAME")]
T1, T2 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def resumed(at):
    """The condition of a JobSet that was suspended once."""
    return {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": at}]}


def jobset(synced=1, deprecated=0, *, record=None, pods=4, max_restarts=10, **status):
    """A JobSet of four pods whose group was complete at an epoch."""
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    stored = {"pods": 4, **(record or {})}
    status = {
        "syncedEpoch": synced, "deprecatedEpoch": deprecated, "inPlaceRestart": stored, **status
    }  # fmt: skip
    pod_spec = {
        "containers": [{"name": "worker"}],
        "initContainers": [
            {"name": "fetch"},
            {"name": "logs", "restartPolicy": "Always"},
            {"name": "agent", "restartPolicy": "Always", "env": AGENT_ENV},
        ],
    }
    item = replicated_job("a", 1, parallelism=pods, pod_spec=pod_spec)
    return decoded(JobSet, jobset_json(item, failurePolicy=policy, status=status))


# status, newest epoch, how many pods are expected, why it does not count, what is spent
ACCOUNTS = {
    "the first run": (jobset(0, 0), 1, 4, "", 0),
    "no restart since": (jobset(3, 2), 3, 4, "", 2),
    "a restart": (jobset(3, 2), 4, 4, "", 3),
    "all Jobs were recreated": (
        jobset(3, 2, restarts=1, restartsCountTowardsMax=1),
        4,
        4,
        "recreated",
        3,
    ),
    "by a rule that ignores the maximum": (jobset(3, 2, restarts=1), 4, 4, "recreated", 2),
    "they were recreated before": (
        jobset(3, 2, restarts=1, record={"allJobsRestartsAtSync": 1, "uncountedEpochs": 1}),
        4,
        4,
        "",
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
        "recreated",
        1,
    ),
    "twice before the barrier lifted": (
        jobset(1, 1, restarts=2, restartsCountTowardsMax=2),
        2,
        4,
        "recreated",
        2,
    ),
    "the JobSet was resumed": (jobset(3, 2, **resumed(T1)), 4, 4, "resumed", 2),
    "it was resumed before": (jobset(3, 2, record={"resumeTime": T1}, **resumed(T1)), 4, 4, "", 3),
    "it was resumed again": (
        jobset(3, 2, record={"resumeTime": T1, "uncountedEpochs": 1}, **resumed(T2)),
        4,
        4,
        "resumed",
        1,
    ),
    "it was resized": (jobset(3, 2), 4, 6, "resized", 2),
    "no record yet": (jobset(3, 2, record={"pods": 0}), 4, 6, "", 3),
    "decided earlier": (
        jobset(3, 3, record={"lastUncountedEpoch": 4, "uncountedEpochs": 1}),
        4,
        4,
        "remade",
        2,
    ),
}


@pytest.mark.parametrize("case", ACCOUNTS)
def test_account(case):
    """Each epoch after the first is a restart, unless its pods only came anew."""
    observed, newest, expected, renewed, spent = ACCOUNTS[case]
    charged = account(observed, newest, expected)

    assert (renewed, spent) == (charged.renewed, charged.spent)


def stored(observed, decision):
    """The JobSet after a decision was written."""
    status = observed.status
    changes = {"in_place_restart": decision.record or status.in_place_restart}
    if decision.synced is not None:
        changes["synced_epoch"] = decision.synced
    if decision.deprecated is not None:
        changes["deprecated_epoch"] = decision.deprecated
    return evolve(observed, status=evolve(status, **changes))


@pytest.mark.parametrize(
    ("change", "counts"),
    [({}, True), ({"restarts": 1}, False), (resumed(T1), False)],
)
def test_an_epoch_is_charged_once(change, counts):
    """Over both writes of a restart, and all that follow, each epoch is charged once."""
    before = jobset(1, 0)
    conditions = jobset(**change).status.conditions
    changed = evolve(
        before,
        status=evolve(before.status, conditions=conditions, restarts=change.get("restarts", 0)),
    )
    opened = decide_epochs(changed, Histogram({1: 3, 2: 1}))
    half = stored(changed, opened)
    whole = stored(half, decide_epochs(half, Histogram({2: 4})))

    assert (whole.status.synced_epoch, whole.status.deprecated_epoch) == (2, 1)
    assert (0 if counts else 1) == whole.status.in_place_restart.uncounted_epochs
    assert (1 if counts else 0) == account(whole, 2, 4).spent
    assert (2 if counts else 1) == account(whole, 3, 4).spent


def test_a_resize_that_is_taken_back_in_the_middle():
    """What the first write decided holds."""
    grown = jobset(1, 0, pods=6)
    half = stored(grown, decide_epochs(grown, Histogram({1: 4, 2: 1})))
    back = evolve(half, spec=jobset().spec)
    whole = stored(back, decide_epochs(back, Histogram({2: 4})))

    assert whole.status.in_place_restart.uncounted_epochs == 1
    assert whole.status.in_place_restart.pods == 4
    assert account(whole, 2, 4).spent == 0


def cut_short(observed, at, pods=4):
    """A failure, after which the JobSet is suspended and resumed, or resized, and goes on."""
    epoch = observed.status.synced_epoch
    half = stored(observed, decide_epochs(observed, Histogram({epoch: 3, epoch + 1: 1})))
    assert half.status.deprecated_epoch == epoch
    conditions = jobset(**resumed(at)).status.conditions if at else half.status.conditions
    back = evolve(
        half,
        spec=jobset(pods=pods, max_restarts=1).spec,
        status=evolve(half.status, conditions=conditions),
    )
    return stored(back, decide_epochs(back, Histogram({epoch + 1: pods})))


@pytest.mark.parametrize(("at", "pods"), [(T1, 4), (None, 3), (None, 5), (T1, 5)])
def test_a_failure_stays_charged_when_its_restart_is_cut_short(at, pods):
    """With one restart allowed the second failure ends a JobSet that a queue suspends each time."""
    once = cut_short(jobset(1, 0, max_restarts=1), at, pods)

    assert (once.status.synced_epoch, once.status.in_place_restart.uncounted_epochs) == (2, 0)
    assert once.status.in_place_restart.restarts == 1
    end = decide_epochs(once, Histogram({2: pods - 1, 3: 1})).failed
    assert end.reason == "ReachedMaxRestarts"


def test_a_restart_that_is_cut_short_reports_no_completion():
    """The suspension ended it; that its pods gather is the resumption's."""
    half = stored(jobset(1, 0), decide_epochs(jobset(1, 0), Histogram({1: 3, 2: 1})))
    conditions = jobset(**resumed(T1)).status.conditions
    back = evolve(half, status=evolve(half.status, conditions=conditions))
    decision = decide_epochs(back, Histogram({2: 4}))

    assert (decision.synced, decision.restart, decision.events) == (2, False, ())


def test_a_recreation_takes_the_place_of_a_restart_that_it_cuts_short():
    """The two are one restart, which that of the Jobs counts, whatever was resumed meanwhile."""
    half = stored(jobset(1, 0), decide_epochs(jobset(1, 0), Histogram({1: 3, 2: 1})))
    conditions = jobset(**resumed(T1)).status.conditions
    back = evolve(half, status=evolve(half.status, conditions=conditions, restarts=1))
    whole = stored(back, decide_epochs(back, Histogram({2: 4})))

    assert whole.status.in_place_restart.restarts == 0


def test_a_smaller_group_continues():
    """Pods that go because there are too many of them restart nobody."""
    observed = jobset(1, 0, pods=3)

    assert decide_epochs(observed, Histogram({1: 4})).empty
    decision = decide_epochs(observed, Histogram({1: 3}))
    assert (decision.synced, decision.deprecated) == (None, None)

    noted = stored(observed, decision)
    assert decide_epochs(noted, Histogram({1: 3})).empty
    assert account(noted, 2, 3).spent == 1


def test_report_of_a_resize():
    """Running pods restart, so there is an event; but it is no restart of the group's."""
    decision = decide_epochs(jobset(pods=6), Histogram({1: 4, 2: 1}))

    assert [event.reason for event in decision.events] == [keys.IN_PLACE_GROUP_RESIZED_REASON]
    assert (decision.conditions, decision.restart) == ((), False)


CAUSE = Cause(1, FailureSignal.POD_FAILED, "p")


class TestEarly:
    def test_the_synced_epoch_is_deprecated(self):
        """Before any pod has come to the next one, and with the reason in a condition."""
        decision = decide_epochs(jobset(1, 0), Histogram({1: 4}), CAUSE)
        (condition,) = decision.conditions

        assert (decision.deprecated, decision.synced) == (1, None)
        assert (
            condition.type,
            condition.status,
            condition.reason,
        ) == (keys.RESTARTING_IN_PLACE_CONDITION, True, keys.POD_FAILED_REASON)
        assert condition.message == (
            "pod 'p' failed: restarting in place from epoch 1 to 2, 4 pods to follow"
        )

    def test_only_once(self):
        """Nothing is left to do when it is deprecated, or when the group has moved on."""
        assert decide_epochs(jobset(1, 1), Histogram({1: 4}), CAUSE).empty
        assert decide_epochs(jobset(1, 1), Histogram({1: 2, 2: 2}), CAUSE).empty
        assert decide_epochs(jobset(2, 1), Histogram({2: 4}), CAUSE).empty

    def test_it_ends_no_jobset(self):
        """A JobSet without restarts left ends when the failed pod's agent tells."""
        observed = jobset(1, 0, max_restarts=0)

        assert decide_epochs(observed, Histogram({1: 4}), CAUSE).empty
        assert decide_epochs(observed, Histogram({1: 3, 2: 1}), CAUSE).failed is not None

    def test_a_job_that_is_recreated_costs_nothing(self):
        """It was asked for."""
        cause = Cause(1, None, "j", counted=False)
        observed = jobset(1, 0, max_restarts=0)
        half = stored(observed, decide_epochs(observed, Histogram({1: 4}), cause))
        whole = stored(half, decide_epochs(half, Histogram({2: 4})))

        assert (whole.status.synced_epoch, whole.status.deprecated_epoch) == (2, 1)
        assert account(whole, 2, 4).spent == 0


# status, epochs, worst crashes by container, whether the JobSet fails, with at most two restarts
CRASHES = {
    "none": (jobset(0, 0, max_restarts=2), {}, {}, False),
    "as many as are allowed": (jobset(0, 0, max_restarts=2), {1: 1}, {"worker": 2}, False),
    "before the first barrier": (jobset(0, 0, max_restarts=2), {1: 1}, {"worker": 3}, True),
    "before any agent reported": (jobset(0, 0, max_restarts=2), {}, {"worker": 3}, True),
    "an agent": (jobset(0, 0, max_restarts=2), {}, {"agent": 3, "worker": 1}, True),
    "what runs before the workers": (jobset(0, 0, max_restarts=2), {}, {"fetch": 3}, True),
    "a container that the JobSet does not name": (
        jobset(0, 0, max_restarts=2),
        {1: 1},
        {"istio-proxy": 99},
        False,
    ),
    "a sidecar beside the agent": (jobset(0, 0, max_restarts=2), {1: 1}, {"logs": 99}, False),
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
    """Worst crashes, as the ledger has them."""
    return {("a", name): Crash(count, "p", name) for name, count in counts.items()}


@pytest.mark.parametrize("case", CRASHES)
def test_restarts_before_the_barrier(case):
    """A container that keeps failing does not hold its group for ever."""
    observed, epochs, counts, expected = CRASHES[case]
    pods = Histogram(epochs, crashes=crashes(counts))
    decision = decide_epochs(observed, pods)

    assert expected is (decision.failed is not None)
    assert needs_decision(observed, pods) is (not decision.empty)


def test_crashes_are_noted_for_the_next_manager():
    """Once for each that is worse than those before, and not beyond the barrier."""
    observed = jobset(2, 2, max_restarts=5)
    decision = decide_epochs(observed, Histogram({3: 2, 2: 2}, crashes=crashes({"worker": 2})))
    noted = stored(observed, decision)
    record = noted.status.in_place_restart

    assert (record.crashes, record.crashing_pod, record.crashing_container) == (2, "p", "worker")
    again = Histogram({3: 2, 2: 2}, crashes=crashes({"worker": 2}))
    assert decide_epochs(noted, again).empty
    assert not needs_decision(noted, again)
    synced = stored(noted, decide_epochs(noted, Histogram({3: 4})))
    assert (
        synced.status.in_place_restart.crashes,
        synced.status.in_place_restart.crashing_pod,
    ) == (0, "")


def crashed(*minutes):
    """Crashes of one container, so many minutes ago."""
    at = tuple(NOW - timedelta(minutes=ago) for ago in minutes)
    return Histogram({3: 2, 2: 2}, crashes={("a", "worker"): Crash(len(at), "p", "worker", at)})


def test_crashes_within_a_window():
    """Only those end the JobSet, and each is noted once, for the next manager."""
    pace = Pace(NOW, window_s=3600)
    observed = jobset(2, 2, max_restarts=2)

    assert decide_epochs(observed, crashed(50, 40, 30), pace=pace).failed is not None
    noted = stored(observed, decide_epochs(observed, crashed(90, 40, 30), pace=pace))
    record = noted.status.in_place_restart
    assert (record.crashes, len(record.crash_times)) == (2, 2)
    assert decide_epochs(noted, crashed(90, 40, 30), pace=pace).empty
    assert not needs_decision(noted, crashed(40, 30))
    assert needs_decision(noted, crashed(40, 30, 20))
    assert decide_epochs(noted, crashed(40, 30, 20), pace=pace).failed is not None
    later = Pace(NOW + timedelta(minutes=25), window_s=3600)
    again = stored(noted, decide_epochs(noted, crashed(40, 30, 20), pace=later))
    assert again.status.in_place_restart.crashes == 2


def test_the_first_write_of_a_restart_notes_the_restart_counts():
    """So that what comes on top is known, also to the next manager."""
    decision = decide_epochs(jobset(1, 0), Histogram({1: 3, 2: 1}, restarts={2: 3, 5: 1}))

    assert decision.record.container_restarts == 5
