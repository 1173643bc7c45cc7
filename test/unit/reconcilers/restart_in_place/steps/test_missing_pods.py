"""Report of the pods that block a barrier."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSize
from jobsetpy.reconcilers.restart_in_place.observed.job_counts import CountedJob
from jobsetpy.reconcilers.restart_in_place.observed.spare_counts import Spares
from jobsetpy.reconcilers.restart_in_place.steps.missing_pods import MAX_NAMED, describe_behind
from support.jobsets import replicated_job
from support.restarts import epoch_plans


def jobset(replicas=2, parallelism=4, rules=()):
    """Return a JobSet of eight pods."""
    item = replicated_job("w", replicas, parallelism=parallelism)
    return epoch_plans.jobset(items=[item], failurePolicy=epoch_plans.policy(rules=[*rules]))


def job(index=0, **fields):
    """Return one of its Jobs."""
    return epoch_plans.job(f"js-w-{index}", uid=f"j{index}", index=index, **fields)


def pod(name, epoch=2, *, owner=0, node="n1", **fields):
    """Return one of its pods."""
    return epoch_plans.pod(name, epoch, job=f"j{owner}", node=node, **fields)


def group(*pods, first=4, second=4):
    """Return the given pods, and others at the epoch for the two Jobs."""
    full = [pod(f"a{i}") for i in range(first)]
    return [*pods, *full, *(pod(f"b{i}", owner=1) for i in range(second))]


def waits(reason):
    """Return the status of a container that waits."""
    return [{"name": "w", "state": {"waiting": {"reason": reason}}}]


def test_pods_are_reported_with_epoch_reason_and_node_when_they_are_late():
    """Jobs without all their pods follow."""
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pods = group(
        pod("p1", None, node="", conditions=[pending]),
        pod("p2", None, containers=waits("ImagePullBackOff")),
        pod("p3", 1, deleted=True, node="n7"),
        pod("p4", None, node=""),
        pod("p5", None),
        first=2,
        second=1,
    )
    found = describe_behind(jobset(), [job(), job(1)], pods, Spares(), 2, 60.0)

    assert found.missing == 5
    assert found.message == (
        "5 of 8 pods have not come to epoch 2 for more than 60 s: "
        "pod 'p1' (not scheduled: Unschedulable), "
        "pod 'p2' (no agent yet: ImagePullBackOff, on node n1), "
        "pod 'p3' (at epoch 1, being deleted, on node n7), "
        "pod 'p4' (not scheduled), pod 'p5' (no agent yet, on node n1), "
        "job 'js-w-1' is missing 3 pods"
    )


def test_pod_is_reported_with_epoch_and_reason_when_its_containers_wait():
    """Its agent reported the epoch before."""
    pods = group(pod("p", 1, containers=waits("CrashLoopBackOff")), first=3)
    found = describe_behind(jobset(), [job(), job(1)], pods, Spares(), 2, 60.0)

    assert found.missing == 1
    assert found.message.endswith("60 s: pod 'p' (at epoch 1, CrashLoopBackOff, on node n1)")


def test_jobs_are_reported_when_pods_are_missing():
    """Also one that is suspended, and those that do not exist."""
    pods = group(second=0)
    found = describe_behind(
        jobset(3), [job(), job(1, spec={"suspend": True})], pods, Spares(), 2, 60.0
    )

    assert found.missing == 8
    assert found.message.endswith(
        "job 'js-w-1' is missing 4 pods (it is suspended), replicated job 'w' is missing 1 job"
    )


def test_failed_pods_are_missing_and_succeeded_ones_are_not():
    """Succeeded ones have left the group, also when they are deleted; failed ones are replaced."""
    pods = group(pod("s", phase="Succeeded"), pod("f", phase="Failed"), first=2, second=3)
    found = describe_behind(jobset(), [job(), job(1, succeeded=1)], pods, Spares(), 2, 60.0)

    assert found.missing == 1
    assert found.message == (
        "1 of 6 pods has not come to epoch 2 for more than 60 s: job 'js-w-0' is missing 1 pod"
    )


def test_pod_that_was_asked_to_leave_is_awaited_when_it_has_ended_with_0():
    """Its Job replaces it."""
    pods = group(pod("s", phase="Succeeded", deleted=True), first=3)
    found = describe_behind(jobset(), [job(), job(1)], pods, Spares(), 2, 60.0)

    assert found.missing == 1
    assert found.message.endswith("job 'js-w-0' is missing 1 pod")


@pytest.mark.parametrize("stays", [True, False])
def test_pods_of_a_failed_job_are_missing_unless_it_stays_failed(stays):
    """Depending on the failure policy it is recreated."""
    rules = [{"name": "r", "action": "FailJob"}] if stays else []
    failed = job(1, succeeded=1, conditions=[{"type": "Failed", "status": "True"}])
    pods = group(pod("p", 1), first=3, second=0)
    found = describe_behind(jobset(rules=rules), [job(), failed], pods, Spares(), 2, 60.0)

    if stays:
        assert found.message.startswith("1 of 4 pods has not come to epoch 2")
        assert "lacks" not in found.message
    else:
        assert found.message.startswith("4 of 7 pods have not come to epoch 2")
        assert found.message.endswith("job 'js-w-1' is missing 3 pods")
    assert found.missing == (1 if stays else 4)


def test_pods_in_excess_are_reported():
    """A barrier lifts neither for fewer nor for more pods than expected."""
    found = describe_behind(jobset(), [job(), job(1)], group(first=5, second=4), Spares(), 2, 60.0)

    assert found.missing == 0
    assert found.message.endswith("60 s: 1 pod too many")


def test_number_of_named_pods_is_limited():
    """The others are counted."""
    pods = [pod(f"p{i:02}", 1) for i in range(12)]
    found = describe_behind(jobset(1, 13), [job(spec={"parallelism": 13})], pods, Spares(), 2, 60.0)

    assert found.missing == 13
    assert found.message.count("pod '") == MAX_NAMED
    assert found.message.endswith("and 3 more")


@pytest.mark.parametrize(("synced", "expected"), [(1, "1 of 3 pods"), (0, "1 of 4 pods")])
def test_smaller_group_has_all_its_seats_again_when_it_starts(synced, expected):
    """While it runs, the pod beyond its seats is parked, and not one of those that came."""
    spares = Spares(sizes=(JobSize(job="js-w-0", seats=3, missing=1),))
    spares.put(CountedJob(name="js-w-0", seats=4, spares=0))
    notes = {keys.IN_PLACE_SPARES_ANNOTATION: "0"}
    pods = [pod(f"p{i}", 2, index=i, notes=notes) for i in (1, 2, 3)]
    of = epoch_plans.jobset(synced, items=[replicated_job("w", 1, parallelism=4)])

    found = describe_behind(of, [job()], pods, spares, 2, 60.0)

    assert found.missing == 1
    assert found.message.startswith(f"{expected} has not come to epoch 2")
    assert found.message.endswith("job 'js-w-0' is missing 1 pod")
