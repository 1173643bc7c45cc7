"""Pods on nodes of which nothing is heard: deadlines, tolerations, and who is given up when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.jobs.child_jobs import blueprints
from jobsetpy.reconcilers.jobs.suspension import resume_patch, resumptions
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of, job_fields, tolerations
from jobsetpy.reconcilers.lost_nodes.plan import LeavingPod, ObservedNode, plan_lost_node
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from jobsetpy.testing.jobsets import EPOCH_START, decoded, jobset_json, replicated_job

NOW = Now(EPOCH_START, 0.0)
UNREACHABLE, NOT_READY = keys.NODE_UNREACHABLE_TAINT, keys.NODE_NOT_READY_TAINT


def stamp(seconds_ago):
    """A time as the API has it."""
    return (EPOCH_START - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- nodes ---------------------------------------------------------------------------------------


def node(ready="Unknown", taint=UNREACHABLE, effect="NoExecute", condition_ago=90, taint_ago=80):
    """A node as informers cache it."""
    conditions = [
        {"type": "MemoryPressure", "status": "Unknown", "lastTransitionTime": stamp(500)},
        {"type": "Ready", "status": ready, "lastTransitionTime": stamp(condition_ago)},
    ]
    taints = [{"key": "x", "effect": "NoSchedule"}, {"key": taint, "effect": "NoSchedule"}]
    if taint_ago is not None:
        taints.append({"key": taint, "effect": effect, "timeAdded": stamp(taint_ago)})
    data = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"taints": taints, "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": conditions},
    }
    return decoded(LabelledNode, data)


@pytest.mark.parametrize(
    ("found", "ago"),
    [
        (node(), 80),
        (node(condition_ago=10), 10),
        (node(ready="True"), None),
        (node(ready="False", taint=NOT_READY), None),
        (node(taint_ago=None), None),
        (node(effect="NoSchedule"), None),
    ],
    ids=["lost", "later-condition", "back", "not-ready", "cut-off-controller", "other-effect"],
)
def test_since_when_a_node_is_unreachable(found, ago):
    """Both the condition and the taint for evictions say so; the later time of the two counts."""
    expected = None if ago is None else EPOCH_START - timedelta(seconds=ago)
    assert found.unreachable_since == expected


def test_a_cached_node_keeps_nothing_else():
    """Conditions and taints are dropped once they are digested, and labels stay."""
    found = node()
    assert (found.spec.taints, found.status.conditions) == ((), ())
    assert found.metadata.labels == {"a": "b"}


# ---- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds", "problem"),
    [
        (None, 60.0, ""),
        ("30s", 30.0, ""),
        ("1m30s", 90.0, ""),
        ("0", 0.0, ""),
        ("9s", 60.0, "must be 0 (never) or from 10s to 24h"),
        ("25h", 60.0, "must be 0 (never) or from 10s to 24h"),
        ("soon", 60.0, "'soon' is no duration such as 15s or 1m30s"),
        (30, 60.0, "no duration such as"),
    ],
)
def test_deadlines(value, seconds, problem):
    """An annotation wins over the configuration; admission refuses what cannot be one."""
    notes = {} if value is None else {keys.LOST_NODE_DEADLINE_ANNOTATION: value}
    data = jobset_json()
    data["metadata"]["annotations"] = notes
    assert deadline_of(notes, 60.0) == seconds

    for found in (
        validate_create(data),
        validate_update(jobset_json(), data),
    ):
        assert [problem in str(each) for each in found] == ([True] if problem else [])
        assert all("metadata.annotations[jobset.sigs.k8s.io/lost-node-deadline]" in str(each) for each in found)  # fmt: skip
    assert validate_update(data, data) == []


def added(taint, seconds):
    """A toleration that is injected."""
    return {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }


ALL = {"operator": "Exists"}
PLACED = {"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists"}
OWN = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}


@pytest.mark.parametrize(
    ("spec", "deadline_s", "expected"),
    [
        ({}, 0, []),
        ({}, 30, [added(NOT_READY, 30), added(UNREACHABLE, 0)]),
        ({}, 90, [added(NOT_READY, 90), added(UNREACHABLE, 60)]),
        ({"terminationGracePeriodSeconds": 0}, 20, [added(NOT_READY, 20), added(UNREACHABLE, 20)]),
        ({"terminationGracePeriodSeconds": 600}, 30, [added(NOT_READY, 30), added(UNREACHABLE, 0)]),
        ({"tolerations": [OWN]}, 30, [OWN, added(NOT_READY, 30)]),
        # The first that matches decides: as usual on GPU nodes, and still evicted.
        ({"tolerations": [ALL]}, 30, [added(NOT_READY, 30), added(UNREACHABLE, 0), ALL]),
        ({"tolerations": [OWN, ALL]}, 30, [added(NOT_READY, 30), OWN, ALL]),
        ({"tolerations": [{**ALL, "tolerationSeconds": 7}]}, 30, [{**ALL, "tolerationSeconds": 7}]),
        (
            {"tolerations": [{**ALL, "effect": "NoSchedule"}]},
            30,
            [{**ALL, "effect": "NoSchedule"}, added(NOT_READY, 30), added(UNREACHABLE, 0)],
        ),
        (
            {"tolerations": [{**OWN, "effect": "NoSchedule"}]},
            30,
            [{**OWN, "effect": "NoSchedule"}, added(NOT_READY, 30), added(UNREACHABLE, 0)],
        ),
        ({"tolerations": [OWN]}, 0, [OWN]),
    ],
)
def test_tolerations(spec, deadline_s, expected):
    """The grace period ends with the deadline, and what the user wrote stays as it is."""
    assert tolerations(spec, deadline_s) == expected


UNLIMITED = {
    "completionMode": "Indexed",
    "backoffLimit": keys.INT32_MAX,
    "template": {"spec": {"restartPolicy": "Never"}},
}


@pytest.mark.parametrize(
    ("change", "deadline_s", "expected"),
    [
        ({}, 30, {"backoffLimitPerIndex": keys.INT32_MAX}),
        ({}, 0, {}),
        ({"backoffLimitPerIndex": 3}, 30, {}),
        ({"backoffLimit": 6}, 30, {}),
        ({"completions": 100_001}, 30, {}),
        ({"completionMode": "NonIndexed"}, 30, {}),
        ({"template": {"spec": {"restartPolicy": "OnFailure"}}}, 30, {}),
    ],
)
def test_back_off_by_index(change, deadline_s, expected):
    """Else the Job controller would wait the longer the more pods a node had; no limit is added."""
    assert job_fields({**UNLIMITED, **change}, deadline_s) == expected


def test_tolerations_reach_the_jobs():
    """By the annotation or the configuration, after the user's own; not without either."""
    data = jobset_json()
    plain = decoded(JobSet, data)
    data["metadata"]["annotations"] = {keys.LOST_NODE_DEADLINE_ANNOTATION: "50s"}
    asks = decoded(JobSet, data)

    def made(jobset, *settings):
        spec = next(iter(blueprints(jobset, Features(), *settings).values())).body(0)["spec"]
        return spec["template"]["spec"].get("tolerations")

    default = blueprints.__defaults__[0]
    assert made(plain) is None
    assert made(asks) == [added(NOT_READY, 50), added(UNREACHABLE, 20)]
    assert made(plain, default, 30.0) == [added(NOT_READY, 30), added(UNREACHABLE, 0)]


# ---- plans ---------------------------------------------------------------------------------------


def leaving(name, *, told_ago, grace=30, deadline="30s", jobset="js", phase="Running"):
    """A pod that was told to end so many seconds ago."""
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "5"}
    if told_ago is not None:
        meta["deletionTimestamp"] = stamp(told_ago - grace)
        meta["deletionGracePeriodSeconds"] = grace
    pod = decoded(
        ChildPod, {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}}
    )
    data = jobset_json()
    data["metadata"]["name"] = jobset
    if deadline is not None:
        data["metadata"]["annotations"] = {keys.LOST_NODE_DEADLINE_ANNOTATION: deadline}
    return LeavingPod(pod, decoded(JobSet, data))


def plan(*pods, since=60, confirmed=True, default_s=0.0, now=NOW, **more):
    """The plan for a node that is unreachable since so many seconds."""
    at = None if since is None else EPOCH_START - timedelta(seconds=since)
    observed = ObservedNode(
        name="n", unreachable_since=at, pods=pods, confirmed=confirmed, default_s=default_s, **more
    )
    return plan_lost_node(observed, now)


def names(made):
    """Which pods a plan gives up."""
    return [pod.metadata.name for each in made.lost for pod in each.pods]


@pytest.mark.parametrize(
    ("pod", "since", "given_up", "again"),
    [
        (leaving("p", told_ago=30), 30, ["p"], None),
        (leaving("p", told_ago=29), 30, [], 1),
        (leaving("p", told_ago=40), 29, [], 1),
        (leaving("p", told_ago=40, deadline="2m"), 90, [], 30),
        (leaving("p", told_ago=9, grace=0, deadline="10s"), 90, [], 1),
        (leaving("p", told_ago=10, grace=0, deadline="10s"), 90, ["p"], None),
        (leaving("p", told_ago=40, phase="Failed"), 60, ["p"], None),
        (leaving("p", told_ago=1000), None, [], None),
        (leaving("p", told_ago=1000, deadline="0"), 60, [], None),
        (leaving("p", told_ago=1000, deadline=None), 60, [], None),
        (leaving("p", told_ago=None), 60, [], None),
    ],
    ids=[
        *("due", "grace", "deadline", "long-deadline", "agent", "agent-over", "failed"),
        *("back", "never", "not-asked", "not-deleted"),
    ],
)
def test_who_is_given_up_when(pod, since, given_up, again):
    """Grace period and deadline are over, and the pod was told ten seconds ago; never without."""
    made = plan(pod, since=since)
    assert names(made) == given_up
    assert made.result.delay == (None if again is None else timedelta(seconds=again))


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_pod_is_given_up_in_time_when_the_wall_clock_is_set(hours):
    """Neither hours later nor sooner: the wait is measured on the monotonic clock."""
    pod = leaving("p", told_ago=20)
    first = plan(pod, since=20)
    assert first.result.delay == timedelta(seconds=10)
    wall = NOW.wall + timedelta(hours=hours)
    again = plan(pod, since=20, due=first.due, now=Now(wall, 9.0))
    last = plan(pod, since=20, due=again.due, now=Now(wall, 10.0))

    assert (names(again), again.result.delay) == ([], timedelta(seconds=1))
    assert names(last) == ["p"]


def test_a_pod_waits_for_its_deadline_at_most_when_a_managers_clock_is_behind():
    """The node controller's clock is two hours ahead."""
    pod = leaving("p", told_ago=-7200, deadline="90s")

    assert plan(pod, since=-7200).result.delay == timedelta(seconds=90)


ENDLESS = {"key": UNREACHABLE, "operator": "Exists"}


@pytest.mark.parametrize(
    ("toleration", "deadline", "fields"),
    [
        (ENDLESS, "30s", ["spec.replicatedJobs[0].template.spec.template.spec.tolerations"]),
        (ENDLESS, None, []),
        (ENDLESS, "0", []),
        ({**ENDLESS, "tolerationSeconds": 600}, "30s", []),
        ({**ENDLESS, "effect": "NoSchedule"}, "30s", []),
        (ALL, "30s", []),
    ],
)
def test_a_warning_is_given_when_pods_stay_on_a_lost_node(toleration, deadline, fields):
    """Who tolerates an unreachable node by name and for ever has no use for a deadline."""
    data = jobset_json(replicated_job("w", 1, pod_spec={"tolerations": [toleration]}))
    if deadline is not None:
        data["metadata"]["annotations"] = {keys.LOST_NODE_DEADLINE_ANNOTATION: deadline}

    assert [each.field for each in warnings(data, Features())] == fields


def test_the_configuration_is_a_default():
    """A JobSet that says nothing has the configuration's deadline, and may refuse it."""
    pods = [leaving("a", told_ago=90, deadline=None), leaving("b", told_ago=90, deadline="0")]
    assert names(plan(*pods, default_s=30.0)) == ["a"]


def test_nothing_is_done_before_the_node_was_read():
    """What the cache says is confirmed first, if there is anything to do."""
    early, due = leaving("early", told_ago=10), leaving("due", told_ago=30)
    assert not plan(early, confirmed=False).confirm
    first = plan(early, due, confirmed=False)
    assert first.confirm
    assert first.lost == ()


@pytest.mark.parametrize(("phase", "given_up"), [("Running", ["p"]), ("Failed", [])])
def test_a_pod_that_was_deleted_by_force(phase, given_up):
    """The Job controller lets go of it once it is marked as failed; nothing is left to do then."""
    assert names(plan(leaving("p", told_ago=90, grace=0, phase=phase))) == given_up


def test_what_is_reported():
    """One event for each JobSet, with node, time, deadline and the first pods."""
    pods = [leaving(f"p{number:02}", told_ago=90) for number in range(12)]
    made = plan(*pods, leaving("q", told_ago=90, jobset="other", deadline="10s"))
    (first, second) = made.lost
    assert first.why.startswith(f"since nothing was heard of node 'n' since {stamp(60)}")
    event = first.event([pod.metadata.name for pod in first.pods])
    assert (event.type_, event.reason, event.pod) == ("Warning", "NodeLost", "p00")
    assert event.message.startswith("12 pods were deleted by force, since nothing was heard")
    assert event.message.endswith("the deadline of 30 s: " + ", ".join(f"'p{n:02}'" for n in range(10)) + " and 2 more")  # fmt: skip
    assert second.event(["q"]).message.endswith("deadline of 10 s: 'q'")
    assert made.result.summary == "gave up 13 pods"


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ([], [added(NOT_READY, 40), added(UNREACHABLE, 10)]),
        ([added(NOT_READY, 40), added(UNREACHABLE, 10)], None),
        (
            [added(NOT_READY, 20), added(UNREACHABLE, 0)],
            [added(NOT_READY, 40), added(UNREACHABLE, 10)],
        ),
    ],
    ids=["before-the-deadline", "as-made", "another-deadline"],
)
def test_a_resumed_job_has_them(present, wanted):
    """A queue that takes a Job's directions over leaves those of the deadline, as they are now."""
    check_resumed(jobset_json(), present, wanted)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        ([ALL], [added(NOT_READY, 40), added(UNREACHABLE, 10), ALL]),
        ([added(NOT_READY, 40), added(UNREACHABLE, 10), ALL], None),
        ([PLACED, ALL], [PLACED, added(NOT_READY, 40), added(UNREACHABLE, 10), ALL]),
    ],
    ids=["before-the-deadline", "as-made", "with-another-of-ours"],
)
def test_a_resumed_job_has_them_first_when_its_pods_tolerate_all(present, wanted):
    """After one for all taints they would have no effect."""
    data = jobset_json(replicated_job("w", 1, pod_spec={"tolerations": [ALL]}))
    check_resumed(data, present, wanted)


def check_resumed(data, present, wanted):
    """Resume a Job with some tolerations, and compare those that it gets."""
    replicated = decoded(JobSet, data).spec.replicated_jobs[0]
    job = decoded(Job, {"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": True}})
    (action,) = resumptions(replicated, [job], lost_node_deadline_s=40.0)
    patch = resume_patch(action, {"spec": {"tolerations": present}})
    assert patch["spec"].get("template", {}).get("spec", {}).get("tolerations") == wanted
