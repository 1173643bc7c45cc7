"""Pods that were asked to leave and that their Jobs must not count."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import (
    CHECKS,
    LeavingPlan,
    ObservedLeaving,
    finalizer_patch,
    is_leaving,
    plan_leaving,
)
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import ended, policy

TRACKING = keys.JOB_TRACKING_FINALIZER


def jobset(*rules, strategy="InPlaceRestart", **fields):
    """Return a JobSet of one Job of four pods; ``rules`` are of the Job's pod failure policy."""
    job_spec = {"podFailurePolicy": {"rules": [*rules]}}
    fields["items"] = [replicated_job("w", parallelism=4, job_spec=job_spec)]
    fields["failurePolicy"] = policy(restartStrategy=strategy)
    return epoch_plans.jobset(**fields)


def job(*, condition=None, **fields):
    """Return its Job."""
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return epoch_plans.job(conditions=conditions, **fields)


def pod(*, grace=30, finalizers=(TRACKING,), index=0, node="n1", code=None, **fields):
    """Return one of its pods, which is being deleted if it has a grace period."""
    fields["containers"] = [] if code is None else [ended(code)]
    fields["meta"] = {"finalizers": [*finalizers]}
    return epoch_plans.pod(uid="uid-p", index=index, grace=grace, node=node, **fields)


def rule(action, operator=None, *codes):
    """Return a rule about exit codes, or about a condition."""
    if operator is None:
        return {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*codes]}}


def uncounted(of, its, one):
    """Return the names of the pods whose finalizer is removed."""
    plan = plan_leaving(ObservedLeaving(first=one, pod=one, job=its, jobset=of))
    assert not plan.recreate
    return ["p"] if plan.uncount else []


def interrupted(reason="TerminationByKubelet", phase="Succeeded", **fields):
    """Return a pod that its kubelet, or the reason's actor, ended without deleting it."""
    notice = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return pod(grace=None, phase=phase, conditions=[notice], **fields)


LEAVING = {
    "was ended by its kubelet and saved": (interrupted(), True),
    "was ended by its kubelet and failed": (interrupted(phase="Failed", code=143), True),
    "was ended by its kubelet and may have been counted": (interrupted(finalizers=()), True),
    "was ended by its kubelet, failed, and is counted": (
        interrupted(phase="Failed", finalizers=()), False,
    ),
    "is about to be evicted": (interrupted("EvictionByEvictionAPI", "Running"), False),
    "has succeeded before its eviction": (interrupted("EvictionByEvictionAPI"), False),
    "stays": (pod(grace=None), False),
    "was asked to leave": (pod(), True),
    "never ran": (pod(node="", grace=0), True),
    "is deleted by force": (pod(grace=0), False),
    "ended with 0 after it was asked to": (pod(phase="Succeeded"), True),
    "ended with 143 after it was asked to": (pod(phase="Failed", code=143), True),
    "is deleted after its end": (pod(phase="Succeeded", grace=0), False),
    "is no longer tracked": (pod(finalizers=("example.com/mine",)), False),
}  # fmt: skip


@pytest.mark.parametrize("case", LEAVING)
def test_pod_leaves_or_not_when_it(case):
    """A grace period means that it was asked to leave before it ended."""
    one, expected = LEAVING[case]

    assert is_leaving(one) is expected


CASES = {
    "the group runs": (jobset(), job(), pod(), True),
    "its kubelet ends it": (jobset(), job(), interrupted(), True),
    "its kubelet ends it and a rule fails the job": (
        jobset(rule("FailJob")), job(), interrupted(), False,
    ),
    "the group is suspended": (jobset(suspend=True), job(spec={"suspend": True}), pod(), True),
    "the jobset is recreated": (jobset(strategy="Recreate"), job(), pod(), False),
    "the jobset is deleted": (jobset(deleted=True), job(), pod(), False),
    "the jobset has ended": (
        jobset(status={"conditions": [{"type": "Failed", "status": "True"}]}), job(), pod(), False,
    ),
    "the job is deleted": (jobset(), job(deleted=True), pod(), False),
    "the job fails": (jobset(), job(condition="FailureTarget"), pod(), False),
    "the job completes": (jobset(), job(condition="SuccessCriteriaMet"), pod(), False),
    "the index is no longer wanted": (jobset(), job(), pod(index=4), False),
    "a rule fails the job by condition": (jobset(rule("FailJob")), job(), pod(), False),
    "a rule ignores by condition": (jobset(rule("Ignore")), job(), pod(), True),
    "a rule fails the job for 143": (jobset(rule("FailJob", "In", 143)), job(), pod(), False),
    "a rule fails the index for all": (jobset(rule("FailIndex", "NotIn", 0)), job(), pod(), False),
    "a rule fails the job for 20": (jobset(rule("FailJob", "In", 20)), job(), pod(), True),
    "the pod ended with 20": (
        jobset(rule("FailJob", "In", 20)), job(), pod(phase="Failed", code=20), False,
    ),
    "an earlier rule ignores 143": (
        jobset(rule("Ignore", "In", 143), rule("FailJob", "In", 137)), job(), pod(), False,
    ),
    "an earlier rule ignores both": (
        jobset(rule("Ignore", "In", 137, 143), rule("FailJob", "NotIn", 0)), job(), pod(), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_pod_that_leaves_is_counted_or_not_when(case):
    """Only pods that are to be replaced are not counted."""
    of, its, one, expected = CASES[case]

    assert uncounted(of, its, one) == (["p"] if expected else [])


def test_jobset_that_is_gone_has_no_plan():
    """Its pods are deleted with it."""
    observed = ObservedLeaving(first=pod(), pod=pod(), job=job(), jobset=None)

    assert plan_leaving(observed) == LeavingPlan()


GONE = {
    "is gone and was counted": (None, "0", (False, True)),
    "is gone and was not counted": (None, "1-3", (True, False)),
    "is still there and was counted": (pod(finalizers=()), "0-1", (False, True)),
    "is still there and was not counted": (
        pod(finalizers=(), phase="Succeeded"),
        "",
        (True, False),
    ),
}


@pytest.mark.parametrize("case", GONE)
def test_job_is_recreated_if_it_counts_a_pod_that(case):
    """The index is complete for the Job, and its work is not done."""
    one, completed, (again, recreate) = GONE[case]
    its = job(completedIndexes=completed)
    observed = ObservedLeaving(first=pod(), pod=one, job=its, jobset=jobset())
    plan = plan_leaving(observed)
    last = plan_leaving(attrs.evolve(observed, checks=CHECKS))

    assert (plan.again, plan.recreate) == (again, recreate)
    assert (last.again, last.recreate) == (False, recreate)


@pytest.mark.parametrize(
    ("completed", "replaced", "expected"),
    [("", False, "deletes"), ("0", True, "deletes"), ("0", False, "recreates")],
    ids=["not counted", "its successor counted", "counted"],
)
def test_pod_ended_by_its_kubelet_is_deleted_unless_it_was_counted(completed, replaced, expected):
    """Its successor may complete the index and be removed: the rest would then look counted."""
    one, its = interrupted(finalizers=()), job(completedIndexes=completed)
    observed = ObservedLeaving(first=one, pod=one, job=its, jobset=jobset(), replaced=replaced)
    plan = plan_leaving(attrs.evolve(observed, checks=CHECKS))

    assert (plan.delete, plan.recreate) == (expected == "deletes", expected == "recreates")


def test_job_that_is_not_known_is_awaited():
    """The watches of pods and of Jobs are not synchronized."""
    observed = ObservedLeaving(first=pod(), pod=pod(), job=None, jobset=None)

    assert plan_leaving(observed).again
    assert not plan_leaving(attrs.evolve(observed, checks=CHECKS)).again


def test_patch_keeps_finalizers_of_others():
    """Only that of the Job controller is removed, and only from this pod."""
    alone, other = pod(), pod(finalizers=("example.com/mine", TRACKING))

    assert [finalizer_patch(alone), finalizer_patch(other)] == [
        {"metadata": {"uid": "uid-p", "finalizers": None}},
        {"metadata": {"uid": "uid-p", "finalizers": ["example.com/mine"]}},
    ]
