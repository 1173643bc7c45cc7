"""Ledger of started pods, and the decision to release a startup group."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.release import released_attempt
from support.jobsets import ModelCluster, jobset_json, replicated_job
from support.model_kit import rule
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
PASSED = {"terminated": {"exitCode": 0}}


def pod(name="p", state=RUNNING, *, owner="job", attempt="1", deleted=False, **barrier):
    """Return a pod of a Job whose barrier is in this state."""
    phase = barrier.pop("phase", "Pending")
    statuses = [{"name": "other", "state": RUNNING}]
    if state is not None:
        statuses.append({"name": keys.GROUP_INIT_CONTAINER, "state": state, **barrier})
    notes, status = (
        {keys.GROUP_ATTEMPT: attempt},
        {"phase": phase, "initContainerStatuses": statuses},
    )
    return epoch_plans.pod(name, None, job=owner, notes=notes, deleted=deleted, **status)


def job(uid="job", *, pods=2, attempt="1", restarts="0", finished=None, **status):
    """Return a Job of a startup group."""
    if finished:
        status["conditions"] = [{"type": finished, "status": "True"}]
    notes = {} if attempt is None else {keys.GROUP_ATTEMPT: attempt}
    spec = {"parallelism": pods, "completions": pods}
    return epoch_plans.job(uid, attempt=restarts, notes=notes, spec=spec, **status)


@pytest.mark.parametrize(
    ("new", "started"),
    [
        (pod(state=RUNNING), 1),
        (pod(state=PASSED, phase="Running"), 1),
        (pod(state={"terminated": {"exitCode": 1}}), 0),
        (pod(state={"waiting": {}}), 0),
        # A pod that has timed out, or was restarted in place, and runs again soon.
        (pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=1), 1),
        (pod(state={"waiting": {}}, restartCount=1), 1),
        (pod(state={"terminated": {"exitCode": 1}}, restartCount=2), 1),
        (pod(state={"waiting": {}}, lastState={"terminated": {"exitCode": 0}}), 1),
        (pod(state={"waiting": {}}, restartCount=1, phase="Failed"), 0),
        (pod(state=None), 0),
        (pod(phase="Failed"), 0),
        (pod(phase="Succeeded"), 0),
        (pod(deleted=True), 0),
        (pod(owner=None), 0),
        (pod(owner="other"), 0),
        (pod(attempt=None), 0),
        (pod(attempt="0"), 0),
    ],
)
def test_pod_has_started_when_its_barrier_has_run(new, started):
    """In the current attempt of its Job; the barrier may run, have ended or run again."""
    ledger = StartLedger()
    ledger.job_changed(None, job())
    ledger.pod_changed(None, new)

    assert ledger.started(GROUP) == started
    ledger.pod_changed(new, None)
    assert ledger.started(GROUP) == 0
    ledger.job_changed(job(), None)
    assert len(ledger) == 0


def test_pods_without_the_annotation_are_ignored():
    """Nothing is kept of pods and Jobs of no group."""
    ledger = StartLedger()

    assert ledger.job_changed(None, job(attempt=None)) is None
    assert ledger.pod_changed(None, pod(attempt=None)) is None
    assert len(ledger) == 0


def test_pods_that_come_before_their_job_count_once_it_is_known():
    """Events of different kinds have no order."""
    ledger = StartLedger()
    ledger.pod_changed(None, pod("a"))
    ledger.pod_changed(None, pod("b"))

    assert ledger.job_changed(None, job()) == GROUP
    assert (ledger.started(GROUP), ledger.attempt(GROUP)) == (2, 1)


def test_no_more_pods_count_than_a_job_needs():
    """A pod and its replacement count once; pods that have succeeded need not exist."""
    ledger = StartLedger()
    ledger.job_changed(None, job(pods=2))
    for name in "abc":
        ledger.pod_changed(None, pod(name))
    assert ledger.started(GROUP) == 2

    ledger.pod_changed(pod("a"), None)
    ledger.pod_changed(pod("b"), None)
    assert (ledger.started(GROUP), ledger.missing("job")) == (1, 1)
    ledger.job_changed(job(pods=2), job(pods=2, succeeded=1))
    assert (ledger.started(GROUP), ledger.missing("job")) == (2, 0)


def test_finished_job_is_complete():
    """Its pods may be gone."""
    ledger = StartLedger()
    ledger.job_changed(None, job(pods=5, finished="Complete"))

    assert (ledger.started(GROUP), ledger.missing("job")) == (5, 0)


def test_pods_from_before_a_suspension_do_not_count():
    """The resumed Job is another attempt."""
    ledger = StartLedger()
    ledger.job_changed(None, job(pods=1))
    ledger.pod_changed(None, pod())
    assert ledger.started(GROUP) == 1

    assert ledger.job_changed(job(pods=1), job(pods=1, attempt="3")) == GROUP
    assert (ledger.started(GROUP), ledger.attempt(GROUP)) == (0, 3)
    ledger.pod_changed(None, pod("new", attempt="3"))
    assert ledger.started(GROUP) == 1


def test_changes_that_change_no_counter_are_not_reported():
    """They would cause passes without effect."""
    ledger = StartLedger()
    ledger.job_changed(None, job())
    ledger.pod_changed(None, pod())

    assert ledger.pod_changed(pod(), pod(state=PASSED, phase="Running")) is None
    assert ledger.job_changed(job(), job(active=2)) is None
    assert ledger.job_changed(job(), job(pods=3)) == GROUP


class ModelGroup:
    """A JobSet and its Jobs, whose pods have started or not."""

    def __init__(self, *jobs, **spec):
        body = jobset_json(*jobs, groupSchedulingConfig={}, **spec)
        body["metadata"]["generation"] = 1
        self.cluster = ModelCluster(body)
        self.cluster.reconcile()

    def start(self, *, but=""):
        """Return a ledger in which all pods have started, except those of one Job."""
        ledger = StartLedger()
        for name in self.cluster.jobs:
            made = self.cluster.job(name)
            ledger.job_changed(None, made)
            meta = made.metadata
            for at in range(made.spec.parallelism or 0):
                if name != but:
                    attempt = meta.annotations[keys.GROUP_ATTEMPT]
                    ledger.pod_changed(None, pod(f"{name}-{at}", owner=meta.uid, attempt=attempt))
        return ledger

    def decide(self, ledger, jobset=None):
        """Return the attempt to release."""
        jobs = [self.cluster.job(name) for name in self.cluster.jobs]
        return released_attempt(jobset or self.cluster.jobset, jobs, ledger, Features())


def two_jobs(**spec):
    """Return a group of two ReplicatedJobs."""
    return ModelGroup(replicated_job("a", 2, parallelism=2), replicated_job("b"), **spec)


def test_complete_group_is_released():
    """Not before its last pod has started, and not without all Jobs."""
    group = two_jobs()

    assert group.decide(group.start()) == 1
    assert group.decide(group.start(but="test-js-b-0")) == 0
    del group.cluster.jobs["test-js-b-0"]
    assert group.decide(group.start()) == 0


def test_jobs_of_an_earlier_attempt_do_not_count():
    """Their pods still run while the group is recreated."""
    group = two_jobs(failurePolicy={"maxRestarts": 1})
    before = group.cluster.jobset
    group.cluster.fail("test-js-b-0")
    group.cluster.reconcile()
    group.cluster.collect("test-js-b-0")
    group.cluster.reconcile()
    assert group.cluster.job("test-js-b-0").metadata.annotations[keys.GROUP_ATTEMPT] == "2"

    assert group.decide(group.start()) == 0
    # A cached JobSet that is older than the Jobs releases nothing.
    assert group.decide(group.start(), before) == 0
    group.cluster.collect()
    group.cluster.reconcile()
    assert group.decide(group.start(), before) == 0
    assert group.decide(group.start()) == 2


def test_suspended_job_does_not_count():
    """Its pods are being deleted."""
    group = two_jobs()
    group.cluster.jobs["test-js-a-1"]["spec"]["suspend"] = True

    assert group.decide(group.start()) == 0


def test_job_that_has_yet_to_grow_is_not_complete():
    """A resized group waits for the added pods if it has not started."""
    group = two_jobs()
    jobs = group.cluster.object["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"].update(parallelism=3, completions=3)

    assert group.decide(group.start()) == 0
    group.cluster.reconcile()
    assert group.decide(group.start()) == 1


@pytest.mark.parametrize(("action", "released"), [("FailJob", 1), ("RestartJob", 0)])
def test_failed_job_is_waited_for_unless_it_stays_failed(action, released):
    """A Job that is to be restarted is not given up."""
    rules = [rule(action)]
    group = two_jobs(failurePolicy={"maxRestarts": 1, "rules": rules})
    group.cluster.fail("test-js-b-0")

    assert group.decide(group.start(but="test-js-b-0")) == released


def test_succeeded_job_counts_as_started():
    """A restart of one Job does not wait for pods that have done their work."""
    group = two_jobs()
    group.cluster.complete("test-js-b-0")

    assert group.decide(group.start(but="test-js-b-0")) == 1
