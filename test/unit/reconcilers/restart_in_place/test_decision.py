"""The rule of restarts in place: which epoch is synced, which are deprecated."""

from __future__ import annotations

import pytest

from jobsetpy.agent.protocol.barrier import Barrier
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.barrier import expected_pods, takes_part
from jobsetpy.reconcilers.restart_in_place.barrier_state import INVALID, parse_epoch
from jobsetpy.reconcilers.restart_in_place.decision import decide_epochs
from jobsetpy.reconcilers.restart_in_place.observed import Histogram
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

FOUR = (replicated_job("a", 2, parallelism=2),)


def jobset(synced=0, deprecated=0, *, items=FOUR, max_restarts=10, status=None, **spec):
    """A JobSet of four pods that restarts in place."""
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    data = jobset_json(
        *items,
        status={"syncedEpoch": synced, "deprecatedEpoch": deprecated, **(status or {})},
        **{"failurePolicy": policy, **spec},
    )
    return decoded(JobSet, data)


# status (synced, deprecated), epochs, succeeded pods, wanted (synced, deprecated)
CASES = {
    "no pod has started": ((0, 0), {}, 0, (None, None)),
    "first start, not all there": ((0, 0), {1: 3}, 0, (None, None)),
    "first start, all there": ((0, 0), {1: 4}, 0, (1, None)),
    "all in sync": ((1, 0), {1: 4}, 0, (None, None)),
    "all just came in sync": ((1, 1), {2: 4}, 0, (2, None)),
    "one restarted into a new epoch": ((1, 0), {1: 3, 2: 1}, 0, (None, 1)),
    "a second one follows": ((1, 1), {1: 2, 2: 2}, 0, (None, None)),
    "one pod is being replaced, which the plan looks after": ((1, 0), {1: 3}, 0, (None, None)),
    "a further failure during a restart": ((1, 1), {1: 1, 2: 2, 3: 1}, 0, (None, 2)),
    "a pod too many": ((1, 0), {1: 5}, 0, (None, None)),
    "a pod too many at a new epoch": ((1, 0), {2: 5}, 0, (None, 1)),
    "one succeeded, the others are in sync": ((1, 1), {2: 3}, 1, (2, None)),
    "one succeeded, the others restart": ((1, 0), {1: 2, 2: 1}, 1, (None, 1)),
    "all succeeded": ((1, 0), {}, 4, (None, None)),
    "recreated pods arrive": ((3, 2), {4: 2}, 0, (None, 3)),
    "recreated pods are all there": ((3, 3), {4: 4}, 0, (4, None)),
    "pods are behind the status": ((3, 2), {2: 4}, 0, (None, None)),
    "an old pod does not undo a deprecation": ((3, 3), {1: 1, 3: 1}, 0, (None, None)),
}


@pytest.mark.parametrize("case", CASES)
def test_decision(case):
    """Synced when all are at one epoch, otherwise everything before the newest is deprecated."""
    (synced, deprecated), epochs, succeeded, expected = CASES[case]
    decision = decide_epochs(jobset(synced, deprecated), Histogram(epochs, succeeded))

    assert expected == (decision.synced, decision.deprecated)
    assert decision.empty is (expected == (None, None))


@pytest.mark.parametrize("synced", [0, 5])
def test_an_epoch_without_workers_is_not_reported(synced):
    """Before the first start, and where all have run at a later one, nothing is restarted."""
    decision = decide_epochs(jobset(synced), Histogram({1: 3, 2: 1}))

    assert (decision.synced, decision.deprecated) == (None, 1)
    assert (decision.conditions, decision.events, decision.restart) == ((), (), False)


# maxRestarts, newest epoch, status, whether the JobSet fails
BUDGET = {
    "first run, no restarts allowed": (0, 1, {}, False),
    "first restart, none allowed": (0, 2, {}, True),
    "last restart allowed": (2, 3, {}, False),
    "one restart too many": (2, 4, {}, True),
    "restarts of all Jobs count": (1, 3, {"restarts": 1, "restartsCountTowardsMax": 1}, True),
    "restarts that ignore the maximum do not": (1, 3, {"restarts": 1}, False),
    "single restarts that ignore the maximum do not": (
        1,
        3,
        {"replicatedJobsStatus": [{"name": "a", "jobRestarts": [1, 0]}]},
        False,
    ),
}


@pytest.mark.parametrize("case", BUDGET)
def test_budget(case):
    """The JobSet fails when its restarts that count are more than maxRestarts."""
    maximum, newest, status, expected = BUDGET[case]
    observed = jobset(newest - 1, 0, max_restarts=maximum, status=status)
    decision = decide_epochs(observed, Histogram({newest: 4}))

    assert expected is (decision.failed is not None)
    if decision.failed is not None:
        assert decision.failed.reason == keys.REACHED_MAX_RESTARTS_REASON
        assert (decision.synced, decision.deprecated) == (None, None)


OUT = {
    "suspended": {"suspend": True},
    "another manager": {"managedBy": "example.com/x"},
    "no failure policy": {"failurePolicy": None},
    "another strategy": {"failurePolicy": {"restartStrategy": "Recreate"}},
    "completed": {"status": {"conditions": [{"type": "Completed", "status": "True"}]}},
    "failed": {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
}


@pytest.mark.parametrize("case", OUT)
def test_who_takes_no_part(case):
    """Finished, suspended and other JobSets are left alone."""
    observed = jobset(**OUT[case])

    assert not takes_part(observed)
    assert decide_epochs(observed, Histogram({1: 3, 9: 1})).empty


def test_a_jobset_being_deleted_takes_no_part():
    """Nothing is written to a JobSet that goes."""
    data = jobset_json(failurePolicy={"restartStrategy": "InPlaceRestart"})
    data["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert not takes_part(decoded(JobSet, data))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 0), ("1", 1), ("2000000000", 2_000_000_000), ("2000000001", INVALID), ("2147483647", INVALID), ("2147483648", INVALID), ("0", INVALID),
     ("-1", INVALID), ("", INVALID), ("one", INVALID), ("1.0", INVALID), ("1_0", INVALID),
     (" 1", INVALID), ("٣", INVALID), ("1" * 5000, INVALID), ("007", 7)],
)  # fmt: skip
def test_parse_epoch(text, expected):
    """An epoch is a decimal number up to 2000000000; none at all means not started."""
    assert expected == parse_epoch(text)


def test_a_pod_at_the_highest_int32_does_not_leave_the_others_without_an_epoch():
    """Agents join one above the highest that counts, and that has to fit int32."""
    assert parse_epoch(str(keys.INT32_MAX)) == INVALID
    barrier = Barrier()
    (joining,) = barrier.observe("u", keys.MAX_EPOCH, 0)
    assert joining.epoch <= keys.INT32_MAX


def test_expected_pods():
    """Replicas times parallelism over all ReplicatedJobs; parallelism defaults to one."""
    items = (replicated_job("a", 2, parallelism=3), replicated_job("b", 5), replicated_job("c", 0))
    data = jobset_json(*items)
    del data["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"]

    assert expected_pods(decoded(JobSet, data)) == 11


def test_barrier_lifts_when_a_job_has_fewer_completions_than_parallel_pods():
    """The Job controller creates no more pods than completions, so the group has no more either."""
    items = (replicated_job("a", 2, parallelism=4, job_spec={"completions": 3}),)
    decision = decide_epochs(jobset(items=items), Histogram({1: 6}))

    assert decision.synced == 1


class TestEvents:
    def events(self, synced, deprecated, epochs, **status):
        """Reason and message of what would be told."""
        decision = decide_epochs(jobset(synced, deprecated, status=status), Histogram(epochs))
        return [(event.reason, event.message) for event in decision.events]

    def test_the_first_start_is_no_restart(self):
        """Epoch 1 is the first run."""
        assert self.events(0, 0, {1: 4}) == []

    def test_a_restart_starts(self):
        """The event says how many pods have to follow."""
        assert self.events(1, 0, {1: 3, 2: 1}) == [
            (
                keys.IN_PLACE_RESTART_STARTED_REASON,
                "a pod has restarted: restarting in place from epoch 1 to 2, 3 pods to follow",
            )
        ]

    def test_a_restart_is_complete(self):
        """The event says that workers may run."""
        assert self.events(1, 1, {2: 4}) == [
            (keys.IN_PLACE_RESTART_COMPLETED_REASON, "4 pods are at epoch 2: workers may run")
        ]

    def test_recreated_pods_do_not_restart_in_place(self):
        """When all pods are new nobody has to follow."""
        assert self.events(1, 0, {2: 2}, restarts=1) == []
        assert self.events(1, 1, {2: 4}, restarts=1) == []
