"""Decision which failed pods the manager replaces itself."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.replacing.successors import (
    MAX_EARLY,
    PATIENCE_S,
    REFUSED_FIRST_S,
    MissingMembers,
    ObservedMembers,
    may_be_missing_pods,
    may_need_successor,
    plan_successors,
    successor_name,
)
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import at, ended, policy

SIZE = 3


def jobset(*rules, synced=1, strategy="InPlaceRestart", template=None, **spec):
    """Return a JobSet of one Job of three pods; ``rules`` are of the Job's pod failure policy."""
    job_spec = {"podFailurePolicy": {"rules": [*rules]}, **(template or {})}
    item = replicated_job("w", parallelism=SIZE, job_spec=job_spec)
    spec["failurePolicy"] = policy(restartStrategy=strategy)
    return epoch_plans.jobset(synced, items=[item], **spec)


def job(failed=0, *, spec=None, **fields):
    """Return its Job, with the number of failures that it counts."""
    spec = {"parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed",
            "backoffLimit": keys.INT32_MAX, **(spec or {})}  # fmt: skip
    return epoch_plans.job("js-w-0", uid="job", spec=spec, failed=failed, **fields)


def pod(index, phase="Running", *, uid="", epoch=1, early=None, code=137, version=1, **more):
    """Return one of its pods; ``early`` is the number of predecessors that have ended early."""
    uid = uid or f"{phase}-{index}"
    return epoch_plans.pod(
        uid.lower(), epoch or None, uid=uid, index=index, phase=phase, node="n",
        containers=[ended(code)] if phase == "Failed" and code is not None else [],
        notes={keys.REPLACED_EARLY_ANNOTATION: early}, meta={"resourceVersion": str(version)},
        **more,
    )  # fmt: skip


OTHERS = (pod(1), pod(2))
FAILED = pod(0, "Failed")


def planned(pods, of=None, its=None, *, memory=None, failed_at=None, now=100.0, confirmed=True):
    """Return a plan for a Job with these pods, in addition to two that run."""
    observed = ObservedMembers(
        job=its or job(),
        jobset=of or jobset(),
        pods=(*pods, *OTHERS),
        failed_at=failed_at,
        confirmed=confirmed,
    )
    return plan_successors(observed, memory or MissingMembers(), at(now))


def indexes(plan):
    """Return the completion indexes of the pods to create."""
    return [one.index for one in plan.create]


RULE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
CONDITION = {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget"}]}

CASES = {
    "a pod has failed": ([FAILED], {}, True),
    "it still runs": ([pod(0)], {}, False),
    "it ends after its deletion": ([pod(0, grace=30)], {}, False),
    "another pod of the index runs": ([FAILED, pod(0, uid="other")], {}, False),
    "it has succeeded": ([pod(0, "Succeeded")], {}, False),
    "its index is complete": ([FAILED], {"its": job(completedIndexes="0")}, False),
    "its index has failed": ([FAILED], {"its": job(failedIndexes="0-1")}, False),
    "the job is suspended": ([FAILED], {"its": job(spec={"suspend": True})}, False),
    "the job is deleted": ([FAILED], {"its": job(deleted=True)}, False),
    "the job fails": (
        [FAILED], {"its": job(conditions=[{"type": "FailureTarget", "status": "True"}])}, False,
    ),
    "the job is complete": (
        [FAILED], {"its": job(conditions=[{"type": "Complete", "status": "True"}])}, False,
    ),
    "the job is of an earlier attempt": ([FAILED], {"its": job(attempt="7")}, False),
    "the job is to be recreated": (
        [FAILED], {"its": job(notes={keys.RESTART_ANNOTATION: "now"})}, False,
    ),
    "the job has no indexes": ([FAILED], {"its": job(spec={"completionMode": "NonIndexed"})}, False),
    "the job's limit is reached": ([FAILED], {"its": job(2, spec={"backoffLimit": 2})}, False),
    "the job's limit is not reached": ([FAILED], {"its": job(1, spec={"backoffLimit": 2})}, True),
    "the failure is counted already": (
        [FAILED],
        {"its": job(spec={"backoffLimit": 1}, uncountedTerminatedPods={"failed": ["Failed-0"]})},
        True,
    ),
    "the jobset is suspended": ([FAILED], {"of": jobset(suspend=True)}, False),
    "the jobset is recreated": ([FAILED], {"of": jobset(strategy="Recreate")}, False),
    "the index is no longer wanted": ([FAILED], {"of": jobset(template={"parallelism": 0})}, False),
    "another controller manages the job": (
        [FAILED], {"of": jobset(template={"managedBy": "example.com/jobs"})}, False,
    ),
    "a rule fails the job by condition": ([FAILED], {"of": jobset(CONDITION)}, False),
    "a rule fails the job for its code": (
        [pod(0, "Failed", code=3)], {"of": jobset(RULE)}, False,
    ),
    "a rule fails the job for another code": ([FAILED], {"of": jobset(RULE)}, True),
    "a rule may match and no code is known": (
        [pod(0, "Failed", code=None)], {"of": jobset(RULE)}, False,
    ),
    "it has never reported": ([pod(0, "Failed", epoch=0)], {}, False),
    "it ended at the closed barrier": ([pod(0, "Failed", epoch=2)], {}, True),
    "it was replaced early too often": (
        [pod(0, "Failed", epoch=2, early=MAX_EARLY)], {}, False,
    ),
    "it was replaced early often but has run": (
        [pod(0, "Failed", epoch=1, early=MAX_EARLY)], {}, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_successor_is_created_when(case):
    """A pod of a running group that has ended, and that the Job controller would delay."""
    pods, more, expected = CASES[case]

    assert indexes(planned(pods, **more)) == ([0] if expected else [])


def test_job_is_read_from_the_server_before_a_pod_is_created():
    """A cache that lags behind must not create pods."""
    plan = planned([FAILED], confirmed=False)

    assert (plan.create, plan.confirm) == ((), True)


FINISHED = job(conditions=[{"type": "Complete", "status": "True"}])
COMPLETED = {"conditions": [{"type": "Completed", "status": "True"}]}


@pytest.mark.parametrize(
    ("of", "its", "expected"),
    [
        (jobset(), FINISHED, ["running-1", "running-2"]),
        (jobset(status=COMPLETED), FINISHED, ["running-1", "running-2"]),
        (jobset(), job(conditions=[{"type": "SuccessCriteriaMet", "status": "True"}]), []),
        (jobset(), job(conditions=[{"type": "Complete", "status": "True"}], deleted=True), []),
        (jobset(strategy="Recreate"), FINISHED, []),
        (jobset(template={"managedBy": "example.com/jobs"}), FINISHED, []),
    ],
    ids=["finished", "the jobset has, too", "ends", "deleted", "recreated", "another controller"],
)
def test_pods_are_deleted_when_they_were_created_as_their_job_finished(of, its, expected):
    """The Job controller ignores them; pods that end, and Jobs that end, are left to it."""
    pods = [FAILED, pod(0, grace=30, uid="leaving")]
    plan = planned(pods, of, its)

    assert [one.metadata.name for one in plan.delete] == expected


def test_job_is_read_from_the_server_before_a_pod_is_deleted():
    """As before a creation."""
    plan = planned([], its=FINISHED, confirmed=False)

    assert (plan.delete, plan.confirm) == ((), True)


class TestPodsThatTheJobDoesNotCount:
    """Deleted pods: the Job controller replaces them, unless it waits for another failure."""

    def test_nothing_is_done_without_failures(self):
        """The Job controller has no reason to wait."""
        plan = planned([])

        assert (indexes(plan), plan.result.delay) == ([], None)

    @pytest.mark.parametrize("pods", [[], [pod(0, "Succeeded", tracked=False, grace=30)]])
    def test_successor_is_created_immediately_within_a_known_backoff(self, pods):
        """Two failures mean 20 s."""
        assert indexes(planned(pods, its=job(2), failed_at=90.0)) == [0]

    @pytest.mark.parametrize(("failed_at", "succeeded"), [(None, 0), (81.0, 0), (90.0, 1)])
    def test_job_controller_has_time_when_its_backoff_is_unknown_or_ends(
        self, failed_at, succeeded
    ):
        """A restart of the Job controller, or a success, ends its back-off."""
        its = job(2, succeeded=succeeded)
        first = planned([], its=its, failed_at=failed_at)
        later = planned([], its=its, failed_at=failed_at, memory=first.memory, now=106.0)

        assert (indexes(first), first.result.delay.total_seconds()) == ([], PATIENCE_S)
        assert indexes(later) == [0]

    def test_time_starts_again_when_the_job_controller_creates_pods(self):
        """It replaces many pods in batches."""
        memory = MissingMembers(uid="job", waiting=2, since=90.0)

        assert indexes(planned([], its=job(2), memory=memory)) == []

    def test_failed_pod_that_was_deleted_before_is_left_to_the_job_controller(self):
        """The manager removes its finalizer, so that it does not count."""
        assert indexes(planned([pod(0, "Failed", grace=30)])) == []


def test_name_follows_from_the_predecessor():
    """A second attempt, or a second manager, creates the same pod."""
    first, again = planned([FAILED]), planned([FAILED])
    (one,) = first.create

    assert again.create == first.create
    assert one.name == successor_name("js-w-0", 0, "Failed-0/1")
    assert one.name.startswith("js-w-0-0-")
    assert len(one.name) == len("js-w-0-0-") + 5


def test_successor_of_a_failed_successor_has_another_name():
    """The predecessor is the pod that no other follows yet, whatever was written last."""
    name = successor_name("js-w-0", 0, "Failed-0/1")
    second = epoch_plans.pod(name, uid="second", index=0, phase="Failed")
    (one,) = planned([pod(0, "Failed", version=9), second]).create

    assert one.name == successor_name("js-w-0", 0, "second/1")


def lives(*steps):
    """Return names of the pods that follow one another at index 0 of a Job in a back-off of 20 s.

    Each step is the end of the latest pod after it has run at the given epoch: "failed", "gone",
    or "leaving" (it ends with code 0, and still exists without its finalizer). The first pod is
    called "first".
    """
    pods, names = [], ["first"]
    for end, epoch in steps:
        name, version = names[-1], len(names)
        if end == "failed":
            found = pod(0, "Failed", uid=name, epoch=epoch, version=100 - version)
            pods.append(found)
        elif end == "leaving":
            found = pod(0, "Succeeded", uid=name, epoch=epoch, grace=30, tracked=False)
            pods.append(found)
        its, of = job(2), jobset(synced=epoch)
        (one,) = planned(pods, of, its, failed_at=95.0).create
        names.append(one.name)
    return names


STEPS = ("failed", "gone", "leaving")


@pytest.mark.parametrize("third", STEPS)
@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
def test_names_are_not_used_again_when_pods_of_an_index_are_lost(first, second, third):
    """In every order: an agent that was cut off must not mistake a later pod for its own."""
    names = lives((first, 1), (second, 2), (third, 3))

    assert len(set(names)) == len(names)


def test_name_of_a_pod_is_not_used_while_the_pod_is_leaving():
    """Its successor would be refused until it is gone."""
    first, second, third = lives(("gone", 1), ("leaving", 1))

    assert len({first, second, third}) == 3


def test_both_of_two_lost_successors_are_replaced():
    """One of them has failed, the other one was deleted."""
    names = [successor_name("js-w-0", index, f"Failed-{index}/1") for index in (0, 1)]
    pods = [pod(0, "Failed", version=9), pod(1, "Failed", version=9), pod(2),
            pod(0, "Failed", uid=names[0], epoch=2)]  # fmt: skip
    observed = ObservedMembers(
        job=job(3), jobset=jobset(synced=2), pods=pods, failed_at=95.0, confirmed=True
    )
    plan = plan_successors(observed, MissingMembers(), at(100.0))

    assert indexes(plan) == [0, 1]
    assert {one.name for one in plan.create}.isdisjoint(names)


def test_long_names_are_cut_as_the_job_controller_does():
    """A pod's name has at most 63 characters."""
    name = successor_name("j" * 63, 12, "seed")

    assert len(name) == 63
    assert "j-12-" in name


def test_pods_that_end_early_are_counted():
    """The number is kept on the successor."""
    (first,) = planned([pod(0, "Failed", epoch=2)]).create
    (second,) = planned([pod(0, "Failed", epoch=2, early=1)]).create
    (ran,) = planned([pod(0, "Failed", early=1)]).create

    assert (first.early, second.early, ran.early) == (1, 2, 0)


def test_refusals_are_followed_by_growing_pauses():
    """No request is sent for each pod each second."""
    memory = MissingMembers(uid="job").refused(100.0)
    held = planned([FAILED], memory=memory, now=101.0)
    later = planned([FAILED], memory=memory, now=100.0 + REFUSED_FIRST_S)

    assert (indexes(held), held.result.delay.total_seconds()) == ([], REFUSED_FIRST_S - 1)
    assert indexes(later) == [0]
    assert later.memory.refused(0.0).not_before == 2 * REFUSED_FIRST_S


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, pod(0), False),
        (pod(0), pod(0, epoch=2), False),
        (pod(0), FAILED, True),
        (None, FAILED, True),
        (FAILED, pod(0, "Failed", version=2), False),
        (pod(0), None, True),
        (pod(0), pod(0, uid="another"), True),
    ],
)
def test_plan_is_needed_only_when_a_pod_has_ended(old, new, expected):
    """Thousands of pods have other changes."""
    assert may_need_successor(old, new) is expected


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (job(1, active=2), True),
        (job(1, active=3), False),
        (job(active=2), False),
        (job(1, active=2, spec={"suspend": True}), False),
    ],
)
def test_manager_that_starts_checks_jobs_with_failures_and_missing_pods(one, expected):
    """The pods may have gone before it started."""
    assert may_be_missing_pods(one) is expected
