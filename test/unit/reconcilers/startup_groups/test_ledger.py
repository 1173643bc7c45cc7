"""Counting started pods, and deciding whether a group may go on."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.release import released_attempt
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

GROUP = AttemptKey("default", "test-js", "js-uid", 0)
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
PASSED = {"terminated": {"exitCode": 0}}


def pod(
    name="p", state=RUNNING, *, owner="job", attempt="1", phase="Pending", deleting=False, **barrier
):
    """A pod of a Job, its barrier in some state."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {}}
    if attempt is not None:
        meta["annotations"][keys.GROUP_ATTEMPT] = attempt
    if owner is not None:
        meta["ownerReferences"] = [{"kind": "Job", "uid": owner, "controller": True}]
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    statuses = [{"name": "other", "state": RUNNING}]
    if state is not None:
        statuses.append({"name": keys.GROUP_INIT_CONTAINER, "state": state, **barrier})
    status = {"phase": phase, "initContainerStatuses": statuses}
    return decoded(ChildPod, {"metadata": meta, "status": status})


def job(uid="job", *, pods=2, attempt="1", restarts="0", finished=None, **status):
    """A Job of a group."""
    reference = {"apiVersion": f"{keys.GROUP}/v1alpha2", "kind": "JobSet", "uid": "js-uid",
                 "name": "test-js", "controller": True}  # fmt: skip
    if finished:
        status["conditions"] = [{"type": finished, "status": "True"}]
    meta = {
        "name": uid,
        "namespace": "default",
        "uid": uid,
        "labels": {keys.RESTART_ATTEMPT: restarts},
        "annotations": {} if attempt is None else {keys.GROUP_ATTEMPT: attempt},
        "ownerReferences": [reference],
    }
    spec = {"parallelism": pods, "completions": pods}
    return decoded(Job, {"metadata": meta, "spec": spec, "status": status})


def held_pod(*states, attempt="1", **more):
    """A pod whose containers are held from within, each in some state."""
    meta = {
        "name": "p",
        "namespace": "default",
        "uid": "uid-p",
        "annotations": {keys.GROUP_ATTEMPT: attempt, keys.GROUP_HELD: "supervisor"},
        "ownerReferences": [{"kind": "Job", "uid": "job", "controller": True}],
    }
    statuses = [{"name": str(at), "state": state, **more} for at, state in enumerate(states)]
    status = {"phase": "Pending", "containerStatuses": statuses}
    return decoded(ChildPod, {"metadata": meta, "status": status})


@pytest.mark.parametrize(
    ("given", "started"),
    [
        (pod(state=RUNNING), 1),
        (pod(state=PASSED, phase="Running"), 1),
        (pod(state={"terminated": {"exitCode": 1}}), 0),
        (pod(state={"waiting": {}}), 0),
        # One that gave up, or whose pod was restarted in place, and runs again soon.
        (pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=1), 1),
        (pod(state={"terminated": {"exitCode": 1}}, restartCount=2), 1),
        (pod(state={"waiting": {}}, lastState={"terminated": {"exitCode": 0}}), 1),
        (pod(state={"waiting": {}}, restartCount=1, phase="Failed"), 0),
        (pod(state=None), 0),
        (held_pod(RUNNING), 1),
        (held_pod(RUNNING, {"terminated": {"exitCode": 3}}), 1),
        (held_pod(RUNNING, {"waiting": {}}), 0),
        (held_pod({"waiting": {}}, restartCount=1), 1),
        (held_pod(RUNNING, attempt="0"), 0),
        (held_pod(), 0),
        (pod(phase="Failed"), 0),
        (pod(phase="Succeeded"), 0),
        (pod(deleting=True), 0),
        (pod(owner=None), 0),
        (pod(owner="other"), 0),
        (pod(attempt=None), 0),
        (pod(attempt="0"), 0),
    ],
)
def test_which_pods_have_started(given, started):
    """Those whose barrier runs, was passed or ran before, of the Job's present attempt."""
    book = StartLedger()
    book.job_changed(None, job())
    book.pod_changed(None, given)

    assert started == book.started(GROUP)
    book.pod_changed(given, None)
    assert book.started(GROUP) == 0
    book.job_changed(job(), None)
    assert len(book) == 0


def test_pods_of_no_group_cost_nothing():
    """Without the annotation nothing is kept."""
    book = StartLedger()

    assert book.job_changed(None, job(attempt=None)) is None
    assert book.pod_changed(None, pod(attempt=None)) is None
    assert len(book) == 0


def test_pods_may_come_before_their_job():
    """They count from the moment the Job is known."""
    book = StartLedger()
    book.pod_changed(None, pod("a"))
    book.pod_changed(None, pod("b"))

    assert book.job_changed(None, job()) == GROUP
    assert (book.started(GROUP), book.attempt(GROUP)) == (2, 1)


def test_no_more_count_than_a_job_wants():
    """A pod and its replacement are one; pods that succeeded need not be there."""
    book = StartLedger()
    book.job_changed(None, job(pods=2))
    for name in "abc":
        book.pod_changed(None, pod(name))
    assert book.started(GROUP) == 2

    book.pod_changed(pod("a"), None)
    book.pod_changed(pod("b"), None)
    assert (book.started(GROUP), book.missing("job")) == (1, 1)
    book.job_changed(job(pods=2), job(pods=2, succeeded=1))
    assert (book.started(GROUP), book.missing("job")) == (2, 0)


def test_a_finished_job_is_complete():
    """Its pods may be gone."""
    book = StartLedger()
    book.job_changed(None, job(pods=5, finished="Complete"))

    assert (book.started(GROUP), book.missing("job")) == (5, 0)


def test_a_resumed_job_counts_again():
    """Pods from before a suspension do not count for the attempt after it."""
    book = StartLedger()
    book.job_changed(None, job(pods=1))
    book.pod_changed(None, pod())
    assert book.started(GROUP) == 1

    assert book.job_changed(job(pods=1), job(pods=1, attempt="3")) == GROUP
    assert (book.started(GROUP), book.attempt(GROUP)) == (0, 3)
    book.pod_changed(None, pod("new", attempt="3"))
    assert book.started(GROUP) == 1


def test_changes_that_do_not_count_are_not_reported():
    """A pass is caused only by what may change a decision."""
    book = StartLedger()
    book.job_changed(None, job())
    book.pod_changed(None, pod())

    assert book.pod_changed(pod(), pod(state=PASSED, phase="Running")) is None
    assert book.job_changed(job(), job(active=2)) is None
    assert book.job_changed(job(), job(pods=3)) == GROUP


class Playground:
    """A JobSet and its Jobs, with all pods started or not."""

    def __init__(self, *jobs, **spec):
        body = jobset_json(*jobs, groupSchedulingConfig={}, **spec)
        body["metadata"]["generation"] = 1
        self.cluster = ModelCluster(body)
        self.cluster.reconcile()

    def start(self, *, but=""):
        """The ledger when all pods have started, but those of one Job."""
        book = StartLedger()
        for name in self.cluster.jobs:
            made = self.cluster.job(name)
            book.job_changed(None, made)
            meta = made.metadata
            for at in range(made.spec.parallelism or 0):
                if name != but:
                    attempt = meta.annotations[keys.GROUP_ATTEMPT]
                    book.pod_changed(None, pod(f"{name}-{at}", owner=meta.uid, attempt=attempt))
        return book

    def decide(self, book, jobset=None):
        """The attempt to release."""
        jobs = [self.cluster.job(name) for name in self.cluster.jobs]
        return released_attempt(jobset or self.cluster.jobset, jobs, book, Features())


def two_jobs(**spec):
    """Two ReplicatedJobs."""
    return Playground(replicated_job("a", 2, parallelism=2), replicated_job("b"), **spec)


def test_a_complete_group_is_released():
    """Not before the last pod, and never without all Jobs."""
    play = two_jobs()

    assert play.decide(play.start()) == 1
    assert play.decide(play.start(but="test-js-b-0")) == 0
    del play.cluster.jobs["test-js-b-0"]
    assert play.decide(play.start()) == 0


def test_jobs_of_an_attempt_that_is_over_do_not_count():
    """Pods that run still, while their group is made anew, release nobody."""
    play = two_jobs(failurePolicy={"maxRestarts": 1})
    before = play.cluster.jobset
    play.cluster.fail("test-js-b-0")
    play.cluster.reconcile()
    play.cluster.collect("test-js-b-0")
    play.cluster.reconcile()
    assert play.cluster.job("test-js-b-0").metadata.annotations[keys.GROUP_ATTEMPT] == "2"

    assert play.decide(play.start()) == 0
    # A JobSet's cache that is older than the Jobs' decides nothing.
    assert play.decide(play.start(), before) == 0
    play.cluster.collect()
    play.cluster.reconcile()
    assert play.decide(play.start(), before) == 0
    assert play.decide(play.start()) == 2


def test_a_suspended_job_is_not_there():
    """Its pods are being deleted."""
    play = two_jobs()
    play.cluster.jobs["test-js-a-1"]["spec"]["suspend"] = True

    assert play.decide(play.start()) == 0


def test_a_job_that_has_yet_to_grow_is_not_complete():
    """An elastic group waits for the pods that were added before it started."""
    play = two_jobs()
    jobs = play.cluster.object["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"].update(parallelism=3, completions=3)

    assert play.decide(play.start()) == 0
    play.cluster.reconcile()
    assert play.decide(play.start()) == 1


@pytest.mark.parametrize(("action", "released"), [("FailJob", 1), ("RestartJob", 0)])
def test_failed_jobs(action, released):
    """One that stays failed is given up, one that is about to be restarted is waited for."""
    rules = [{"name": "r", "action": action}]
    play = two_jobs(failurePolicy={"maxRestarts": 1, "rules": rules})
    play.cluster.fail("test-js-b-0")

    assert released == play.decide(play.start(but="test-js-b-0"))


def test_a_successful_job_counts():
    """The restart of one Job does not wait for pods that have done their work."""
    play = two_jobs()
    play.cluster.complete("test-js-b-0")

    assert play.decide(play.start(but="test-js-b-0")) == 1
