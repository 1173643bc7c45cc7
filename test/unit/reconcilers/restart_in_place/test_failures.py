"""Which changes of a pod end the epoch of its group."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.cause import Cause, FailureSignal
from jobsetpy.reconcilers.restart_in_place.detection import judge
from jobsetpy.reconcilers.restart_in_place.failures import (
    STATUS_LAG_S,
    Failure,
    SyncedMark,
    sign_of,
)
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

RESTART_ALL = {
    "action": "RestartAllContainers",
    "exitCodes": {"operator": "NotIn", "values": [0, 20, 30]},
}
END = {"action": "Terminate", "exitCodes": {"operator": "In", "values": [20, 30]}}
ALONE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


def container(
    name="worker", *, running=False, exit_code=None, at="2026-01-01T00:00:00Z", restarts=0
):
    """A container's status."""
    state = {"waiting": {"reason": "PodInitializing"}}
    if running:
        state = {"running": {"startedAt": at}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "reason": "Error", "finishedAt": at}}
    return {"name": name, "state": state, "restartCount": restarts}


def pod(*containers, epoch="1", phase="Running", deleting=False, index="0", reason="", owner="j"):
    """A pod of a group."""
    meta = {
        "name": "p",
        "uid": "p",
        "annotations": {keys.COMPLETION_INDEX_ANNOTATION: index},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": owner, "controller": True}],
    }
    if epoch is not None:
        meta["annotations"][keys.EPOCH_ANNOTATION] = epoch
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase, "reason": reason, "containerStatuses": list(containers)}
    return decoded(ChildPod, {"metadata": meta, "status": status})


UP = container(running=True)
DOWN = container(exit_code=7)

SIGNS = {
    "a worker fails": (pod(UP), pod(DOWN), FailureSignal.CONTAINER_FAILED),
    "a worker is done": (pod(UP), pod(container(exit_code=0)), None),
    "a worker is stopped by a restart that is known": (
        pod(UP),
        pod(container(exit_code=137), epoch="2"),
        None,
    ),
    "it did not run when last seen": (pod(container()), pod(DOWN), None),
    "it had failed before": (pod(DOWN), pod(DOWN), None),
    "another one runs on": (
        pod(UP, container("b", running=True)),
        pod(UP, container("b", exit_code=1)),
        FailureSignal.CONTAINER_FAILED,
    ),
    "the one that failed before is no news": (
        pod(DOWN, container("b", running=True)),
        pod(DOWN, container("b", running=True)),
        None,
    ),
    "the pod fails": (pod(UP), pod(DOWN, phase="Failed"), FailureSignal.POD_FAILED),
    "the pod fails without a word": (pod(UP), pod(phase="Failed"), FailureSignal.POD_FAILED),
    "the pod had failed before": (pod(phase="Failed"), pod(phase="Failed"), None),
    "the pod succeeds": (pod(UP), pod(container(exit_code=0), phase="Succeeded"), None),
    "one of two succeeds, the other failed": (pod(UP), pod(DOWN, phase="Succeeded"), None),
    "the pod is being deleted": (pod(UP), pod(UP, deleting=True), FailureSignal.POD_DELETED),
    "the pod is gone": (pod(UP), None, FailureSignal.POD_DELETED),
    "the failed pod is gone": (pod(phase="Failed"), None, None),
    "the succeeded pod is gone": (pod(phase="Succeeded"), None, None),
    "the pod that was being deleted is gone": (pod(UP, deleting=True), None, None),
    "its worker ends while it is being deleted": (
        pod(UP, deleting=True),
        pod(container(exit_code=143), deleting=True, phase="Failed"),
        None,
    ),
    "it has not come to any epoch": (pod(UP, epoch=None), pod(DOWN, epoch=None), None),
}


@pytest.mark.parametrize("case", SIGNS)
def test_signs(case):
    """Only a change from running to failed, of a pod that stays at its epoch, is a sign."""
    old, new, expected = SIGNS[case]

    assert expected is sign_of(old, new)


def jobset(
    *containers, template=None, restart_policy="Never", parallelism=2, replicas=1, **pod_spec
):
    """A JobSet with a pod template."""
    item = replicated_job("w", replicas, parallelism=parallelism)
    spec = item["template"]["spec"]
    spec["template"] = {
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [*(containers or [worker()])],
            **pod_spec,
        }
    }
    spec.update(template or {})
    return decoded(JobSet, jobset_json(item, failurePolicy={"restartStrategy": "InPlaceRestart"}))


def worker(name="worker", rules=(RESTART_ALL,), **more):
    """A container of the template."""
    return {"name": name, "restartPolicyRules": [*rules], **more}


def job(*, of="w", index="0", conditions=(), deleting=False, suspend=None):
    """The pod's Job."""
    meta = {
        "name": "j",
        "uid": "j",
        "labels": {keys.REPLICATED_JOB_NAME: of, keys.JOB_INDEX: index},
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return decoded(Job, {"metadata": meta, "spec": {"suspend": suspend}, "status": status})


def verdict(observed, old, new, of_job=None):
    """What becomes of a change."""
    sign = sign_of(old, new)
    assert sign is not None
    return judge(observed, of_job or job(), Failure(sign, 1, old, new, 0.0))


def fail_job(**rule):
    """A template whose pod failure policy fails the Job."""
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", **rule}]}}


Y = {"onExitCodes": {"containerName": "worker", "operator": "In", "values": [20]}}
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

# the JobSet, the exit code, whether the epoch is over
EXITS = {
    "a rule restarts the pod": (jobset(), 7, True),
    "under the name of the KEP": (
        jobset(worker(rules=[{**RESTART_ALL, "action": "RestartPod"}])),
        7,
        True,
    ),
    "a rule ends the pod": (jobset(worker(rules=[END, RESTART_ALL])), 30, True),
    "no rule, and the pod never restarts": (jobset(worker(rules=[])), 7, True),
    "a rule restarts the container alone": (jobset(worker(rules=[ALONE, RESTART_ALL])), 42, False),
    "but not for this code": (jobset(worker(rules=[ALONE, RESTART_ALL])), 41, True),
    "the pod restarts its containers alone": (
        jobset(worker(rules=[]), restart_policy="OnFailure"),
        7,
        False,
    ),
    "the container restarts alone": (jobset(worker(rules=[], restartPolicy="Always")), 7, False),
    "but the agent is in it": (
        jobset(
            worker(rules=[], command=["/jobset-agent/supervise", "train"]),
            restart_policy="OnFailure",
        ),
        7,
        True,
    ),
    "the pod goes on without it": (jobset(worker(rules=[]), worker("b")), 7, False),
    "the pod restarts although another goes on": (jobset(worker(), worker("b")), 7, True),
    "a container that somebody else put there": (jobset(worker("main")), 7, False),
    "the Job fails by this code": (jobset(worker(rules=[END]), template=fail_job(**Y)), 20, False),
    "another code fails the Job": (jobset(worker(rules=[END]), template=fail_job(**Y)), 30, True),
    "another container's code fails the Job": (
        jobset(
            worker(rules=[END]),
            template=fail_job(onExitCodes={**Y["onExitCodes"], "containerName": "b"}),
        ),
        20,
        True,
    ),
    "an earlier rule takes the code": (
        jobset(
            worker(rules=[END]),
            template={"podFailurePolicy": {"rules": [
                {"action": "Ignore", **Y}, {"action": "FailJob", **Y},
            ]}},
        ),
        20,
        True,
    ),
    "a rule without codes": (jobset(worker(rules=[{"action": "Restart"}])), 7, True),
}  # fmt: skip


@pytest.mark.parametrize("case", EXITS)
def test_exit_codes(case):
    """A failure ends the epoch if its pod restarts or ends by it, and the Job does not fail."""
    observed, code, expected = EXITS[case]
    cause = verdict(observed, pod(UP), pod(container(exit_code=code)))

    assert expected is (cause is not None)


# the JobSet, the Job, the pod after, whether the epoch is over
PODS = {
    "a pod fails": (jobset(), job(), pod(DOWN, phase="Failed"), True),
    "a pod is deleted": (jobset(), job(), pod(UP, deleting=True), True),
    "a pod is gone": (jobset(), job(), None, True),
    "a failed pod fails the Job": (
        jobset(template=fail_job(**Y)),
        job(),
        pod(container(exit_code=20), phase="Failed"),
        False,
    ),
    "a failed pod may fail the Job": (
        jobset(template=fail_job(**DISRUPTED)),
        job(),
        pod(phase="Failed", reason="Evicted"),
        False,
    ),
    "the Job goes": (jobset(), job(deleting=True), None, False),
    "the Job is suspended": (jobset(), job(suspend=True), pod(UP, deleting=True), False),
    "the Job has failed": (jobset(), job(conditions=["Failed"]), pod(UP, deleting=True), False),
    "the Job is about to fail": (
        jobset(),
        job(conditions=["FailureTarget"]),
        pod(UP, deleting=True),
        False,
    ),
    "the Job is about to complete": (
        jobset(),
        job(conditions=["SuccessCriteriaMet"]),
        pod(UP, deleting=True),
        False,
    ),
    "the Job has become too many": (jobset(), job(index="1"), pod(UP, deleting=True), False),
    "the Job is of no ReplicatedJob": (jobset(), job(of="x"), pod(UP, deleting=True), False),
    "the pod has become too many": (jobset(parallelism=1), job(), None, False),
}


@pytest.mark.parametrize("case", PODS)
def test_pods(case):
    """A pod that fails or goes ends the epoch, unless it is not wanted any more."""
    observed, of_job, new, expected = PODS[case]
    old = pod(UP, index="1") if case == "the pod has become too many" else pod(UP)

    assert expected is (verdict(observed, old, new, of_job) is not None)


def test_what_people_read():
    """The pod, the container, its own exit code and the kubelet's reason."""
    killed = container(exit_code=137, at="2026-01-01T00:00:09Z")
    both = pod(killed, container("b", exit_code=7))
    cause = verdict(jobset(worker(), worker("b")), pod(UP, container("b", running=True)), both)

    assert str(cause) == "pod 'p', container 'b' exited with 7 (Error)"
    assert cause.condition_reason == keys.CONTAINER_FAILED_REASON

    failed = verdict(jobset(), pod(UP), pod(DOWN, phase="Failed", reason="Evicted"))
    assert str(failed) == "pod 'p' failed (Evicted, container 'worker' exited with 7 (Error))"
    assert failed.condition_reason == keys.POD_FAILED_REASON

    gone = verdict(jobset(), pod(UP), None)
    assert str(gone) == "pod 'p' is being deleted"
    assert gone.condition_reason == keys.POD_DELETED_REASON

    remade = Cause(1, None, "j", counted=False)
    assert str(remade) == "job 'j' is recreated"
    assert remade.condition_reason == keys.JOB_REMADE_REASON

    everything = [Cause(1, sign, "x").condition_reason for sign in (*FailureSignal, None)]
    assert len(set(everything)) == len(everything)


class TestDigest:
    def status(self, init=(), ordinary=(), **status):
        """A pod's status as it is cached."""
        full = {"initContainerStatuses": [*init], "containerStatuses": [*ordinary], **status}
        return decoded(ChildPod, {"status": full}).status

    def test_what_runs_and_what_failed(self):
        """Names of what runs; what failed, the first to end in front."""
        status = self.status(
            ordinary=[
                container("a", exit_code=137, at="2026-01-01T00:00:02Z"),
                container("b", exit_code=3, at="2026-01-01T00:00:01Z"),
                container("c", running=True),
                container("d", running=True),
                container("e", exit_code=0),
            ]
        )

        assert status.running == "c d"
        assert [(one.name, one.exit_code, one.reason) for one in status.failed] == [
            ("b", 3, "Error"),
            ("a", 137, "Error"),
        ]
        assert status.container_statuses == ()

    def test_times_that_the_kubelet_does_not_know(self):
        """A null is no reason to leave the pod out."""
        one = container("a", exit_code=137, at=None)
        one["lastState"] = one["state"]

        assert len(self.status(init=[one], ordinary=[one]).failed) == 1

    @pytest.mark.parametrize(
        ("last", "expected"), [(1, True), (137, True), (0, False), (None, False)]
    )
    def test_restarts_count_after_failures(self, last, expected):
        """A container whose latest end was no failure was not restarted for one."""
        one = container("agent", running=True, restarts=4)
        if last is not None:
            one["lastState"] = {"terminated": {"exitCode": last}}
        status = self.status(init=[one])

        assert (("agent", 4, expected),) == status.restarts

    def test_restarts_are_shared(self):
        """Pods that went through the same restarts hold the same value."""
        one = container("agent", running=True, restarts=4)

        assert self.status(init=[one]).restarts is self.status(init=[one]).restarts

    def test_why_it_waits(self):
        """What the first container waits for, or why the pod is not scheduled."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

        assert self.status(ordinary=[container()]).waiting == "PodInitializing"
        assert self.status(conditions=[condition]).waiting == "Unschedulable"
        assert self.status(conditions=[{**condition, "status": "True"}]).waiting == ""

    def test_that_it_waits_for_another_kubelet(self):
        """The scheduler says it in words only; room on other nodes will not help."""
        words = "0/2 nodes are available: 2 node(s) didn't match Pod's required features."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        waiting = self.status(conditions=[{**condition, "message": words}]).waiting

        assert waiting == "Unschedulable as nodes lack features that it requires"
        assert waiting is self.status(conditions=[{**condition, "message": words}]).waiting
        other = {**condition, "message": "0/2 nodes are available: 2 Insufficient cpu."}
        assert self.status(conditions=[other]).waiting == "Unschedulable"


@pytest.mark.parametrize(
    ("epoch", "version", "now", "expected"),
    [
        (1, 101, 10.0, True),
        (1, 100, 10.0, False),
        (1, 100, 10.0 + STATUS_LAG_S, True),
        (2, 999, 99.0, False),
        (0, 999, 99.0, False),
    ],
    ids=["a later status", "known by then", "long ago", "another epoch", "no epoch"],
)
def test_of_which_run_a_status_is(epoch, version, now, expected):
    """A status shows a run of the synced epoch if it is later than that, or long after."""
    assert expected is SyncedMark(1, 100, 10.0).shows_run(epoch, version, now)
