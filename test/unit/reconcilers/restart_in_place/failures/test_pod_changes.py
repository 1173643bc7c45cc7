"""Changes of a pod that end the epoch of its group."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.restart_in_place.detection.early import judge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import (
    STATUS_LAG_S,
    Failure,
    SyncedMark,
    kind_of,
)
from support.jobsets import decoded, replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import job

RESTART_ALL = {
    "action": "RestartAllContainers",
    "exitCodes": {"operator": "NotIn", "values": [0, 20, 30]},
}
END = {"action": "Terminate", "exitCodes": {"operator": "In", "values": [20, 30]}}
ALONE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


def container(
    name="worker", *, running=False, exit_code=None, at="2026-01-01T00:00:00Z", restarts=0
):
    """Return a container's status."""
    state = {"waiting": {"reason": "PodInitializing"}}
    if running:
        state = {"running": {"startedAt": at}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "reason": "Error", "finishedAt": at}}
    return {"name": name, "state": state, "restartCount": restarts}


def pod(*containers, index=0, **fields):
    """Return a pod of a group."""
    return epoch_plans.pod(containers=containers, index=index, **fields)


UP = container(running=True)
DOWN = container(exit_code=7)

SIGNS = {
    "a worker fails": (pod(UP), pod(DOWN), FailureKind.CONTAINER_FAILED),
    "a worker is done": (pod(UP), pod(container(exit_code=0)), None),
    "a worker is stopped by a restart that is known": (
        pod(UP),
        pod(container(exit_code=137), epoch=2),
        None,
    ),
    "it did not run when last seen": (pod(container()), pod(DOWN), None),
    "it had failed before": (pod(DOWN), pod(DOWN), None),
    "another one keeps running": (
        pod(UP, container("b", running=True)),
        pod(UP, container("b", exit_code=1)),
        FailureKind.CONTAINER_FAILED,
    ),
    "the failure is an earlier one": (
        pod(DOWN, container("b", running=True)),
        pod(DOWN, container("b", running=True)),
        None,
    ),
    "the pod fails": (pod(UP), pod(DOWN, phase="Failed"), FailureKind.POD_FAILED),
    "the pod fails without a reason": (pod(UP), pod(phase="Failed"), FailureKind.POD_FAILED),
    "the pod had failed before": (pod(phase="Failed"), pod(phase="Failed"), None),
    "the pod succeeds": (pod(UP), pod(container(exit_code=0), phase="Succeeded"), None),
    "one of two succeeds, the other failed": (pod(UP), pod(DOWN, phase="Succeeded"), None),
    "the pod is being deleted": (pod(UP), pod(UP, deleted=True), FailureKind.POD_DELETED),
    "the pod is gone": (pod(UP), None, FailureKind.POD_DELETED),
    "the failed pod is gone": (pod(phase="Failed"), None, None),
    "the succeeded pod is gone": (pod(phase="Succeeded"), None, None),
    "the pod that was being deleted is gone": (pod(UP, deleted=True), None, None),
    "its worker ends while it is being deleted": (
        pod(UP, deleted=True),
        pod(container(exit_code=143), deleted=True, phase="Failed"),
        None,
    ),
    "it has not come to any epoch": (pod(UP, epoch=None), pod(DOWN, epoch=None), None),
}


@pytest.mark.parametrize("case", SIGNS)
def test_change_is_a_sign_of_a_failure_or_not_when(case):
    """Only a change from running to failed, of a pod that stays at its epoch, is a sign."""
    old, new, expected = SIGNS[case]

    assert kind_of(old, new) is expected


def jobset(*containers, template=None, restart_policy="Never", parallelism=2):
    """Return a JobSet with a pod template; ``template`` are other fields of its Jobs."""
    pod_spec = {"restartPolicy": restart_policy, "containers": [*(containers or [worker()])]}
    item = replicated_job("w", parallelism=parallelism, pod_spec=pod_spec, job_spec=template)
    return epoch_plans.jobset(items=[item])


def worker(name="worker", rules=(RESTART_ALL,), **more):
    """Return a container of the template."""
    return {"name": name, "restartPolicyRules": [*rules], **more}


def job_with(condition):
    """Return the pod's Job, which has a condition."""
    return job(conditions=[{"type": condition, "status": "True"}])


def verdict(observed, old, new, of_job=None):
    """Return the cause of a restart that a change is, or ``None``."""
    sign = kind_of(old, new)
    assert sign is not None
    return judge(observed, of_job or job(), Failure(sign, 1, old, new, 0.0))


def fail_job(**rule):
    """Return a template whose pod failure policy fails the Job."""
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", **rule}]}}


Y = {"onExitCodes": {"containerName": "worker", "operator": "In", "values": [20]}}
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

# JobSet, exit code, whether the epoch is over
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
    "the pod continues without it": (jobset(worker(rules=[]), worker("b")), 7, False),
    "the pod restarts although another one runs": (jobset(worker(), worker("b")), 7, True),
    "the container is not in the template": (jobset(worker("main")), 7, False),
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
def test_exit_code_ends_the_epoch_or_not_when(case):
    """A failure ends the epoch if its pod restarts or ends by it, and the Job does not fail."""
    observed, code, expected = EXITS[case]
    cause = verdict(observed, pod(UP), pod(container(exit_code=code)))

    assert (cause is not None) is expected


LEAVES = pod(UP, deleted=True)
# JobSet, Job, pod after the change, whether the epoch is over
PODS = {
    "a pod fails": (jobset(), job(), pod(DOWN, phase="Failed"), True),
    "a pod is deleted": (jobset(), job(), LEAVES, True),
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
    "the Job is deleted": (jobset(), job(deleted=True), None, False),
    "the Job is suspended": (jobset(), job(spec={"suspend": True}), LEAVES, False),
    "the Job has failed": (jobset(), job_with("Failed"), LEAVES, False),
    "the Job is about to fail": (jobset(), job_with("FailureTarget"), LEAVES, False),
    "the Job is about to complete": (jobset(), job_with("SuccessCriteriaMet"), LEAVES, False),
    "the Job is in excess of the replicas": (jobset(), job(index=1), LEAVES, False),
    "the Job is of no ReplicatedJob": (jobset(), job(of="x"), LEAVES, False),
    "the pod is in excess of the parallelism": (jobset(parallelism=1), job(), None, False),
}


@pytest.mark.parametrize("case", PODS)
def test_pod_ends_the_epoch_or_not_when(case):
    """A pod that fails or is deleted ends the epoch, unless it is no longer wanted."""
    observed, of_job, new, expected = PODS[case]
    old = pod(UP, index=1) if case == "the pod is in excess of the parallelism" else pod(UP)

    assert (verdict(observed, old, new, of_job) is not None) is expected


def test_cause_names_pod_container_exit_code_and_reason():
    """As users read it in conditions and events."""
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

    recreated = Cause(1, None, "j", counted=False)
    assert str(recreated) == "job 'j' is recreated"
    assert recreated.condition_reason == keys.JOB_REMADE_REASON

    rule = {keys.RESTART_CAUSE_ANNOTATION: "log-rule=1 xid: Xid 79"}
    exited = container(exit_code=keys.LOG_RULE_EXIT_CODE)
    # The kubelet reports the end of the container first, then that of the pod.
    for ended in (pod(exited, notes=rule), pod(exited, phase="Failed", notes=rule)):
        assert str(verdict(jobset(), pod(UP), ended)) == "pod 'p': log rule xid: Xid 79"

    everything = [Cause(1, sign, "x").condition_reason for sign in (*FailureKind, None)]
    assert len(set(everything)) == len(everything)


class TestDigest:
    def status(self, init=(), ordinary=(), **status):
        """Return a pod's status as it is cached."""
        full = {"initContainerStatuses": [*init], "containerStatuses": [*ordinary], **status}
        return decoded(ChildPod, {"status": full}).status

    def test_running_and_failed_containers_are_kept(self):
        """Names of the running ones; the failed ones in the order of their ends."""
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

    def test_pod_is_kept_when_the_kubelet_does_not_know_a_time(self):
        """The time is null then."""
        one = container("a", exit_code=137, at=None)
        one["lastState"] = one["state"]

        assert len(self.status(init=[one], ordinary=[one]).failed) == 1

    @pytest.mark.parametrize(
        ("last", "expected"), [(1, True), (137, True), (0, False), (None, False)]
    )
    def test_restarts_count_when_the_latest_end_was_a_failure(self, last, expected):
        """Otherwise the container was not restarted for one."""
        one = container("agent", running=True, restarts=4)
        if last is not None:
            one["lastState"] = {"terminated": {"exitCode": last}}
        status = self.status(init=[one])

        assert status.restarts == (("agent", 4, expected),)

    def test_restarts_are_shared(self):
        """Pods that went through the same restarts hold the same value."""
        one = container("agent", running=True, restarts=4)

        assert self.status(init=[one]).restarts is self.status(init=[one]).restarts

    def test_reason_of_waiting_is_kept(self):
        """That of the first container, or the reason why the pod is not scheduled."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

        assert self.status(ordinary=[container()]).waiting == "PodInitializing"
        assert self.status(conditions=[condition]).waiting == "Unschedulable"
        assert self.status(conditions=[{**condition, "status": "True"}]).waiting == ""

    def test_reason_is_another_one_when_nodes_lack_features(self):
        """The scheduler says it in its message only; capacity on other nodes will not help."""
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
def test_status_shows_a_run_of_the_synced_epoch_or_not_when_it_is(epoch, version, now, expected):
    """It does if it is later than the sync, or was stored long after it."""
    assert SyncedMark(1, 100, 10.0).shows_run(epoch, version, now) is expected
