"""Properties of epochs: the ledger equals a full count, and the rule by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobsetpy.api import keys
from jobsetpy.api.epoch_report import parse_epoch
from jobsetpy.reconcilers.restart_in_place.epochs.decision import Wait, decide_epochs
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP, epochs_of

JOBS = ["j1", "j2", "j3"]
OWNERS = [*JOBS, "unknown", ""]
GROUPS = [
    GROUP._replace(uid="js1"),
    GROUP._replace(uid="js1", attempt=1),
    GROUP._replace(uid="js2"),
]


def make_pod(name, owner, restarts, **fields):
    """Return a pod whose container has failed before each of its restarts."""
    one = {"restartCount": restarts, "lastState": {"terminated": {"exitCode": 1}}}
    return epoch_plans.pod(name, job=owner or None, containers=[one], **fields)


def make_job(uid, group, completed, uncounted):
    """Return a Job; it may list UIDs of pods that it has not counted yet."""
    return epoch_plans.job(
        uid,
        attempt=str(group.attempt),
        owner=group.uid,
        succeeded=len(completed),
        completedIndexes=",".join(map(str, sorted(completed))),
        uncountedTerminatedPods={"succeeded": sorted(uncounted)},
    )


class LedgerMachine(RuleBasedStateMachine):
    """The ledger always equals a full count."""

    def __init__(self):
        super().__init__()
        self.ledger = EpochLedger()
        self.pods = {}
        self.jobs = {}

    @rule(
        name=st.sampled_from([f"p{i}" for i in range(6)]),
        owner=st.sampled_from(OWNERS),
        epoch=st.sampled_from([None, "1", "2", "3", "x", "0"]),
        phase=st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"]),
        restarts=st.integers(0, 2),
        deleted=st.booleans(),
        tracked=st.booleans(),
        index=st.sampled_from([None, 0, 1, 2]),
    )
    def put_pod(self, name, owner, restarts, **fields):
        """Create a pod or change it in any way."""
        new = make_pod(name, owner, restarts, **fields)
        self.ledger.pod_changed(self.pods.get(name), new)
        self.pods[name] = new

    @rule(name=st.sampled_from([f"p{i}" for i in range(6)]))
    def drop_pod(self, name):
        """Delete a pod."""
        if name in self.pods:
            self.ledger.pod_changed(self.pods.pop(name), None)

    @rule(
        uid=st.sampled_from(JOBS),
        group=st.sampled_from(GROUPS),
        completed=st.sets(st.integers(0, 3)),
        uncounted=st.sets(st.sampled_from([f"p{i}" for i in range(6)])),
    )
    def put_job(self, uid, group, completed, uncounted):
        """Create a Job or change it in any way."""
        new = make_job(uid, group, completed, uncounted)
        self.ledger.job_changed(self.jobs.get(uid), new)
        self.jobs[uid] = new

    @rule(uid=st.sampled_from(JOBS))
    def drop_job(self, uid):
        """Delete a Job."""
        if uid in self.jobs:
            self.ledger.job_changed(self.jobs.pop(uid), None)

    @invariant()
    def equals_a_full_count(self):
        """Epochs, succeeded pods and unusable annotations of every group."""
        for group in GROUPS:
            members = {
                uid
                for uid, job in self.jobs.items()
                if (job.metadata.controller.uid, job.metadata.labels[keys.RESTART_ATTEMPT])
                == (group.uid, str(group.attempt))
            }
            epochs, done, restarts = {}, set(), {}
            leaving = 0
            for pod in self.pods.values():
                if pod.metadata.controller_uid not in members or pod.status.phase == "Failed":
                    continue
                if pod.status.phase == "Succeeded":
                    if pod.metadata.tracked and pod.metadata.deletion_timestamp is None:
                        index = pod.metadata.annotations.completion_index
                        name = pod.metadata.uid if index is None else index
                        done.add((pod.metadata.controller_uid, name))
                    continue
                for one in pod.status.restarts:
                    restarts[one.times] = restarts.get(one.times, 0) + 1
                epoch = parse_epoch(pod.metadata.annotations.epoch)
                if epoch > 0:
                    epochs[epoch] = epochs.get(epoch, 0) + 1
                    leaving += pod.metadata.deletion_timestamp is not None
            for uid in members:
                status = self.jobs[uid].status
                done |= {(uid, index) for index in status.completed_indexes.split(",") if index}
                done |= {(uid, pod) for pod in status.uncounted_terminated_pods.succeeded}
            histogram = self.ledger.histogram(group)

            assert epochs == histogram.epochs
            assert restarts == histogram.restarts
            assert histogram.succeeded == len(done)
            assert leaving == histogram.leaving

    def teardown(self):
        """When all objects are deleted, nothing is left."""
        for name in tuple(self.pods):
            self.drop_pod(name)
        for uid in tuple(self.jobs):
            self.drop_job(uid)

        assert len(self.ledger) == 0


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40)


def group(size, synced, deprecated):
    """Return a JobSet of some pods."""
    items = [replicated_job("a", size)]
    return epoch_plans.jobset(synced, deprecated, items=items, max_restarts=1000)


def test_pod_that_is_being_deleted_holds_the_next_epoch():
    """The group waits for its successor, and deprecates nothing in the meantime."""
    assert decide_epochs(group(3, 1, 1), GroupCounts({2: 3}, leaving=1)) == Wait()
    assert decide_epochs(group(3, 1, 0), GroupCounts({1: 3}, leaving=1)) == Wait()
    assert epochs_of(decide_epochs(group(3, 1, 1), GroupCounts({2: 3}))) == (2, None)


@given(
    st.integers(1, 6),
    st.lists(st.dictionaries(st.integers(1, 9), st.integers(1, 6), max_size=4), max_size=8),
)
def test_status_never_decreases(size, histograms):
    """With any epochs of pods both numbers only grow, and the rule is at rest after one write."""
    synced = deprecated = 0
    for epochs in histograms:
        decision = decide_epochs(group(size, synced, deprecated), GroupCounts(epochs))
        new_synced, new_deprecated = epochs_of(decision)
        assert new_synced is None or new_synced > synced
        assert new_deprecated is None or new_deprecated > deprecated
        synced, deprecated = new_synced or synced, new_deprecated or deprecated

        assert decide_epochs(group(size, synced, deprecated), GroupCounts(epochs)) == Wait()
