"""The rule of restarts in place: which epoch is synced, which are deprecated."""

from __future__ import annotations

from functools import partial

import pytest

from jobsetpy.agent.protocol.barrier import Barrier
from jobsetpy.api import keys
from jobsetpy.api.epoch_report import INVALID, parse_epoch
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods, takes_part
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    Deprecate,
    Fail,
    Wait,
    decide_epochs,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from support.jobsets import decoded, jobset_json, replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import epochs_of

jobset = partial(epoch_plans.jobset, items=[replicated_job("a", 2, parallelism=2)])

# status (synced, deprecated), epochs, succeeded pods, expected (synced, deprecated)
CASES = {
    "no pod has started": ((0, 0), {}, 0, (None, None)),
    "first start, one pod is missing": ((0, 0), {1: 3}, 0, (None, None)),
    "first start, all pods are there": ((0, 0), {1: 4}, 0, (1, None)),
    "all in sync": ((1, 0), {1: 4}, 0, (None, None)),
    "all just came in sync": ((1, 1), {2: 4}, 0, (2, None)),
    "one restarted into a new epoch": ((1, 0), {1: 3, 2: 1}, 0, (None, 1)),
    "a second one follows": ((1, 1), {1: 2, 2: 2}, 0, (None, None)),
    "one pod is being replaced, which the plan looks after": ((1, 0), {1: 3}, 0, (None, None)),
    "a further failure during a restart": ((1, 1), {1: 1, 2: 2, 3: 1}, 0, (None, 2)),
    "one pod more than expected": ((1, 0), {1: 5}, 0, (None, None)),
    "one pod more than expected at a new epoch": ((1, 0), {2: 5}, 0, (None, 1)),
    "one succeeded, the others are in sync": ((1, 1), {2: 3}, 1, (2, None)),
    "one succeeded, the others restart": ((1, 0), {1: 2, 2: 1}, 1, (None, 1)),
    "all succeeded": ((1, 0), {}, 4, (None, None)),
    "recreated pods arrive": ((3, 2), {4: 2}, 0, (None, 3)),
    "recreated pods are all there": ((3, 3), {4: 4}, 0, (4, None)),
    "pods are behind the status": ((3, 2), {2: 4}, 0, (None, None)),
    "an old pod does not undo a deprecation": ((3, 3), {1: 1, 3: 1}, 0, (None, None)),
}


@pytest.mark.parametrize("case", CASES)
def test_epochs_are_decided_when(case):
    """Synced when all are at one epoch, otherwise everything before the newest is deprecated."""
    (synced, deprecated), epochs, succeeded, expected = CASES[case]
    decision = decide_epochs(jobset(synced, deprecated), GroupCounts(epochs, succeeded=succeeded))

    assert epochs_of(decision) == expected
    assert (decision == Wait()) is (expected == (None, None))


@pytest.mark.parametrize("synced", [0, 5])
def test_epoch_is_not_reported_when_it_had_no_workers(synced):
    """Before the first start, and where all have run at a later one, nothing is restarted."""
    decision = decide_epochs(jobset(synced), GroupCounts({1: 3, 2: 1}))

    assert decision == Deprecate(epoch=1)


# maxRestarts, newest epoch, status, whether the JobSet fails
BUDGET = {
    "first run, no restart allowed": (0, 1, {}, False),
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
def test_budget_ends_the_jobset_or_not_when(case):
    """The JobSet fails when its restarts that count are more than maxRestarts."""
    maximum, newest, status, expected = BUDGET[case]
    observed = jobset(newest - 1, 0, max_restarts=maximum, status=status)
    decision = decide_epochs(observed, GroupCounts({newest: 4}))

    reason = decision.failure.reason if isinstance(decision, Fail) else None
    assert reason == (keys.REACHED_MAX_RESTARTS_REASON if expected else None)


EXCLUDED = {
    "suspended": {"suspend": True},
    "another manager": {"managedBy": "example.com/x"},
    "no failure policy": {"failurePolicy": None},
    "another strategy": {"failurePolicy": {"restartStrategy": "Recreate"}},
    "completed": {"status": {"conditions": [{"type": "Completed", "status": "True"}]}},
    "failed": {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
    "being deleted": {"deleted": True},
}


@pytest.mark.parametrize("case", EXCLUDED)
def test_jobset_takes_no_part_when(case):
    """Nothing is written to finished, suspended, deleted and other JobSets."""
    observed = jobset(**EXCLUDED[case])

    assert not takes_part(observed)
    assert decide_epochs(observed, GroupCounts({1: 3, 9: 1})) == Wait()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 0), ("1", 1), ("2000000000", 2_000_000_000), ("2000000001", INVALID), ("2147483647", INVALID), ("2147483648", INVALID), ("0", INVALID),
     ("-1", INVALID), ("", INVALID), ("one", INVALID), ("1.0", INVALID), ("1_0", INVALID),
     (" 1", INVALID), ("٣", INVALID), ("1" * 5000, INVALID), ("007", 7)],
)  # fmt: skip
def test_epoch_is_a_decimal_number_up_to_2000000000(text, expected):
    """A pod without the annotation has not started."""
    assert parse_epoch(text) == expected


def test_next_epoch_fits_int32_when_a_pod_is_at_the_highest_one():
    """Agents join the epoch after the highest valid one."""
    assert parse_epoch(str(keys.INT32_MAX)) == INVALID
    barrier = Barrier()
    (joining,) = barrier.observe("u", keys.MAX_EPOCH, 0)
    assert joining.epoch <= keys.INT32_MAX


def test_expected_pods_are_replicas_times_parallelism():
    """Summed over all ReplicatedJobs; parallelism defaults to one."""
    items = (replicated_job("a", 2, parallelism=3), replicated_job("b", 5), replicated_job("c", 0))
    data = jobset_json(*items)
    del data["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"]

    assert expected_pods(decoded(JobSet, data)) == 11


def test_barrier_lifts_when_a_job_has_fewer_completions_than_parallel_pods():
    """The Job controller creates no more pods than completions, so the group has no more either."""
    items = [replicated_job("a", 2, parallelism=4, job_spec={"completions": 3})]
    decision = decide_epochs(jobset(0, items=items), GroupCounts({1: 6}))

    assert epochs_of(decision) == (1, None)


class TestEvents:
    def events(self, synced, deprecated, epochs, **status):
        """Return reasons and messages of the events."""
        decision = decide_epochs(jobset(synced, deprecated, status=status), GroupCounts(epochs))
        return [(event.reason, event.message) for event in decision.events]

    def test_first_start_is_not_reported(self):
        """Epoch 1 is the first run, no restart."""
        assert self.events(0, 0, {1: 4}) == []

    def test_event_is_emitted_when_a_restart_starts(self):
        """It says how many pods have to follow."""
        assert self.events(1, 0, {1: 3, 2: 1}) == [
            (
                keys.IN_PLACE_RESTART_STARTED_REASON,
                "a pod has restarted: restarting in place from epoch 1 to 2, 3 pods to follow",
            )
        ]

    def test_event_is_emitted_when_a_restart_is_complete(self):
        """It says that workers may run."""
        assert self.events(1, 1, {2: 4}) == [
            (keys.IN_PLACE_RESTART_COMPLETED_REASON, "4 pods are at epoch 2: workers may run")
        ]

    def test_restart_is_not_reported_when_pods_are_recreated(self):
        """All pods are new, and none has to follow."""
        assert self.events(1, 0, {2: 2}, restarts=1) == []
        assert self.events(1, 1, {2: 4}, restarts=1) == []
