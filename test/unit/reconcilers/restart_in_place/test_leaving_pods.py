"""Pods that were told to leave and that their Jobs must not count."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.leaving import (
    CHECKS,
    LeavingPlan,
    ObservedLeaving,
    finalizer_patch,
    is_leaving,
    plan_leaving,
)
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

TRACKING = keys.JOB_TRACKING_FINALIZER
AT = "2026-01-01T00:00:00Z"


def jobset(
    *rules, strategy="InPlaceRestart", suspend=False, finished=False, deleted=False, replace=None
):
    """A JobSet of one Job of four pods; ``rules`` are of the Job's pod failure policy."""
    item = replicated_job("w", 1, parallelism=4)
    item["template"]["spec"]["podFailurePolicy"] = {"rules": [*rules]}
    body = jobset_json(item, failurePolicy={"restartStrategy": strategy}, suspend=suspend)
    if replace is not None:
        body["metadata"]["annotations"] = {keys.REPLACE_DELETED_ANNOTATION: replace}
    if deleted:
        body["metadata"]["deletionTimestamp"] = AT
    if finished:
        body["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    return decoded(JobSet, body)


def job(*, suspend=False, condition=None, deleted=False):
    """Its Job."""
    meta = {"name": "js-w-0", "uid": "job",
            "labels": {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}}  # fmt: skip
    if deleted:
        meta["deletionTimestamp"] = AT
    conditions = [{"type": condition, "status": "True"}] if condition else []
    spec = {"parallelism": 4, "suspend": suspend}
    return decoded(Job, {"metadata": meta, "spec": spec, "status": {"conditions": conditions}})


def pod(*, grace=30, finalizers=(TRACKING,), node="n1", index=0, phase="Running", code=None):
    """One of its pods, which is being deleted if it has a grace period."""
    meta = {"name": "p", "uid": "uid-p", "finalizers": [*finalizers],
            "annotations": {keys.COMPLETION_INDEX_ANNOTATION: str(index)}}  # fmt: skip
    if grace is not None:
        meta |= {"deletionTimestamp": AT, "deletionGracePeriodSeconds": grace}
    status = {"phase": phase}
    if code is not None:
        state = {"terminated": {"exitCode": code}}
        status["containerStatuses"] = [{"name": "worker", "state": state}]
    return decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": node}, "status": status})


def rule(action, operator=None, *codes):
    """A rule about exit codes, or about a condition."""
    if operator is None:
        return {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*codes]}}


def uncounted(of, its, one):
    """The names of the pods to take the finalizer off."""
    plan = plan_leaving(ObservedLeaving(first=one, pod=one, job=its, jobset=of))
    assert not plan.recreate
    return ["p"] if plan.uncount else []


LEAVING = {
    "stays": (pod(grace=None), False),
    "was told to leave": (pod(), True),
    "never ran": (pod(node="", grace=0), True),
    "is deleted by force": (pod(grace=0), False),
    "ended with 0 after it was told to": (pod(phase="Succeeded"), True),
    "ended with 143 after it was told to": (pod(phase="Failed", code=143), True),
    "is deleted after its end": (pod(phase="Succeeded", grace=0), False),
    "is no longer tracked": (pod(finalizers=("example.com/mine",)), False),
}


@pytest.mark.parametrize("case", LEAVING)
def test_pod_leaves_when_it(case):
    """A grace period says that it was told to leave before it ended."""
    one, expected = LEAVING[case]

    assert is_leaving(one) is expected


CASES = {
    "the group runs": (jobset(), job(), pod(), True),
    "the group is suspended": (jobset(suspend=True), job(suspend=True), pod(), True),
    "the jobset is recreated": (jobset(strategy="Recreate"), job(), pod(), False),
    "the jobset is recreated and requests it": (
        jobset(strategy="Recreate", replace="Immediately"), job(), pod(), True,
    ),
    "the jobset is recreated and waits": (
        jobset(strategy="Recreate", replace="AfterBackoff"), job(), pod(), False,
    ),
    "the job that is recreated fails": (
        jobset(strategy="Recreate", replace="Immediately"), job(condition="FailureTarget"), pod(),
        False,
    ),
    "the jobset is deleted": (jobset(deleted=True), job(), pod(), False),
    "the jobset has ended": (jobset(finished=True), job(), pod(), False),
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
    """Its pods go with it."""
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
    its = job()
    its = evolve(its, status=evolve(its.status, completed_indexes=completed))
    observed = ObservedLeaving(first=pod(), pod=one, job=its, jobset=jobset())
    plan = plan_leaving(observed)
    last = plan_leaving(attrs.evolve(observed, checks=CHECKS))

    assert (plan.again, plan.recreate) == (again, recreate)
    assert (last.again, last.recreate) == (False, recreate)


def test_job_of_a_jobset_that_is_recreated_is_never_recreated_for_a_counted_pod():
    """Its other pods may not depend on the one that was deleted."""
    its = job()
    its = evolve(its, status=evolve(its.status, completed_indexes="0"))
    of = jobset(strategy="Recreate", replace="Immediately")
    observed = ObservedLeaving(first=pod(), pod=None, job=its, jobset=of)

    assert plan_leaving(observed) == LeavingPlan()


def test_job_that_is_not_known_is_awaited():
    """The watches of pods and of Jobs are not in step."""
    observed = ObservedLeaving(first=pod(), pod=pod(), job=None, jobset=None)

    assert plan_leaving(observed).again
    assert not plan_leaving(attrs.evolve(observed, checks=CHECKS)).again


def test_patch_keeps_finalizers_of_others():
    """Only that of the Job controller goes, and only from this pod."""
    alone, other = pod(), pod(finalizers=("example.com/mine", TRACKING))

    assert [finalizer_patch(alone), finalizer_patch(other)] == [
        {"metadata": {"uid": "uid-p", "finalizers": None}},
        {"metadata": {"uid": "uid-p", "finalizers": ["example.com/mine"]}},
    ]
