"""Who holds a barrier."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.restart_in_place.barrier_report import MAX_NAMED, laggards
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job


def jobset(replicas=2, parallelism=4, rules=()):
    """A JobSet of eight pods."""
    item = replicated_job("w", replicas, parallelism=parallelism)
    policy = {"restartStrategy": "InPlaceRestart", "rules": [*rules]}
    return decoded(JobSet, jobset_json(item, failurePolicy=policy))


def job(index=0, *, parallelism=4, suspend=None, succeeded=0, failed=False):
    """One of its Jobs."""
    meta = {"name": f"js-w-{index}", "uid": f"j{index}",
            "labels": {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: str(index)}}  # fmt: skip
    spec = {"parallelism": parallelism, "suspend": suspend}
    status = {"succeeded": succeeded}
    if failed:
        status["conditions"] = [{"type": "Failed", "status": "True"}]
    return decoded(Job, {"metadata": meta, "spec": spec, "status": status})


def pod(name, epoch=2, *, owner=0, node="n1", waiting="", deleting=False, phase="Running"):
    """One of its pods."""
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "finalizers": [keys.JOB_TRACKING_FINALIZER],
        "ownerReferences": [{"kind": "Job", "uid": f"j{owner}", "controller": True}],
    }
    if epoch is not None:
        meta["annotations"] = {keys.EPOCH_ANNOTATION: str(epoch)}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase}
    if waiting and node:
        status["containerStatuses"] = [{"name": "w", "state": {"waiting": {"reason": waiting}}}]
    elif waiting:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": waiting}]
    return decoded(ChildPod, {"metadata": meta, "spec": {"nodeName": node}, "status": status})


def group(*pods, first=4, second=4):
    """Pods at the epoch to fill up the two Jobs, after those given."""
    full = [pod(f"a{i}") for i in range(first)]
    return [*pods, *full, *(pod(f"b{i}", owner=1) for i in range(second))]


def test_pods_that_lag():
    """Each with what it is at, what it waits for and where it is."""
    pods = group(
        pod("p1", None, node="", waiting="Unschedulable"),
        pod("p2", None, waiting="ImagePullBackOff"),
        pod("p3", 1, deleting=True, node="n7"),
        pod("p4", None, node=""),
        pod("p5", None),
        first=2,
        second=1,
    )
    found = laggards(jobset(), [job(), job(1)], pods, 2, 60.0)

    assert found.missing == 5
    assert found.message == (
        "5 of 8 pods have not come to epoch 2 for more than 60 s: "
        "pod 'p1' (not scheduled: Unschedulable), "
        "pod 'p2' (no agent yet: ImagePullBackOff, on node n1), "
        "pod 'p3' (at epoch 1, being deleted, on node n7), "
        "pod 'p4' (not scheduled), pod 'p5' (no agent yet, on node n1), "
        "job 'js-w-1' is missing 3 pods"
    )


def test_a_pod_that_waits_at_an_old_epoch():
    """Its agent told the epoch before; what its containers wait for is told beside it."""
    pods = group(pod("p", 1, waiting="CrashLoopBackOff"), first=3)
    found = laggards(jobset(), [job(), job(1)], pods, 2, 60.0)

    assert found.missing == 1
    assert found.message.endswith("60 s: pod 'p' (at epoch 1, CrashLoopBackOff, on node n1)")


def test_jobs_that_lack_pods():
    """Also one that is suspended, and those that are not there at all."""
    pods = group(second=0)
    found = laggards(jobset(3), [job(), job(1, suspend=True)], pods, 2, 60.0)

    assert found.missing == 8
    assert found.message.endswith(
        "job 'js-w-1' is missing 4 pods (it is suspended), replicated job 'w' is missing 1 job"
    )


def test_succeeded_and_failed_pods():
    """Succeeded ones have left the group, deleted ones too; failed ones will be replaced."""
    pods = group(pod("s", phase="Succeeded"), pod("f", phase="Failed"), first=2, second=3)
    found = laggards(jobset(), [job(), job(1, succeeded=1)], pods, 2, 60.0)

    assert found.missing == 1
    assert found.message == (
        "1 of 6 pods has not come to epoch 2 for more than 60 s: job 'js-w-0' is missing 1 pod"
    )


def test_pod_that_was_asked_to_leave_is_waited_for_when_it_has_ended_with_0():
    """Its Job replaces it."""
    pods = group(pod("s", phase="Succeeded", deleting=True), first=3)
    found = laggards(jobset(), [job(), job(1)], pods, 2, 60.0)

    assert found.missing == 1
    assert found.message.endswith("job 'js-w-0' is missing 1 pod")


@pytest.mark.parametrize("stays", [True, False])
def test_a_job_that_failed(stays):
    """Nobody waits for its pods if the failure policy leaves it failed; else it is made anew."""
    rules = [{"name": "r", "action": "FailJob"}] if stays else []
    of = jobset(rules=rules)
    pods = group(pod("p", 1), first=3, second=0)
    found = laggards(of, [job(), job(1, succeeded=1, failed=True)], pods, 2, 60.0)

    if stays:
        assert found.message.startswith("1 of 4 pods has not come to epoch 2")
        assert "lacks" not in found.message
    else:
        assert found.message.startswith("4 of 7 pods have not come to epoch 2")
        assert found.message.endswith("job 'js-w-1' is missing 3 pods")
    assert (1 if stays else 4) == found.missing


def test_pods_too_many():
    """A barrier does not lift for a group that is not whole, nor for more."""
    found = laggards(jobset(), [job(), job(1)], group(first=5, second=4), 2, 60.0)

    assert found.missing == 0
    assert found.message.endswith("60 s: 1 pod too many")


def test_only_some_are_named():
    """The others are counted."""
    pods = [pod(f"p{i:02}", 1) for i in range(12)]
    found = laggards(jobset(1, 13), [job(parallelism=13)], pods, 2, 60.0)

    assert found.missing == 13
    assert found.message.count("pod '") == MAX_NAMED
    assert found.message.endswith("and 3 more")
