"""Pods on lost nodes: deadlines, tolerations, and the plan that gives pods up."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.jobs.suspension import resume_patch, resumptions
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of, job_fields, tolerations
from jobsetpy.reconcilers.lost_nodes.plan import LeavingPod, ObservedNode, plan_lost_node
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from support.jobsets import EPOCH_START, decoded, jobset_json, replicated_job
from support.model_kit import builders

NOW = Now(EPOCH_START, 0.0)
UNREACHABLE, NOT_READY = keys.NODE_UNREACHABLE_TAINT, keys.NODE_NOT_READY_TAINT


def stamp(seconds_ago):
    """Return a time in the format of the API."""
    return (EPOCH_START - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- nodes ---------------------------------------------------------------------------------------


def node(ready="Unknown", taint=UNREACHABLE, effect="NoExecute", condition_ago=90, taint_ago=80):
    """Return a node as informers cache it."""
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
def test_node_is_unreachable_since_the_later_of_condition_and_taint(found, ago):
    """It is not unreachable if one of both is absent."""
    expected = None if ago is None else EPOCH_START - timedelta(seconds=ago)
    assert found.unreachable_since == expected


def test_cached_node_keeps_only_its_labels():
    """Conditions and taints are dropped after they have been evaluated."""
    found = node()
    assert (found.spec.taints, found.status.conditions) == ((), ())
    assert found.metadata.labels == {"a": "b"}


# ---- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "deadline_s", "problem"),
    [
        (None, 60.0, ""),
        ("30s", 30.0, ""),
        ("1m30s", 90.0, ""),
        ("0", 0.0, ""),
        ("9s", 60.0, "must be 0 (never) or from 10s to 24h"),
        ("25h", 60.0, "must be 0 (never) or from 10s to 24h"),
        ("soon", 60.0, "must be 0 (never) or from 10s to 24h"),
        (30, 60.0, "must be text in quotes: 0 (never) or from 10s to 24h"),
    ],
)
def test_annotation_overrides_the_configured_deadline(value, deadline_s, problem):
    """Admission refuses an invalid value."""
    notes = {} if value is None else {keys.LOST_NODE_DEADLINE_ANNOTATION: value}
    data = jobset_json(annotations=notes)
    path = "metadata.annotations[jobset.sigs.k8s.io/lost-node-deadline]"
    assert deadline_of(notes, 60.0) == deadline_s

    for found in (validate_create(data), validate_update(jobset_json(), data)):
        assert [problem in str(each) for each in found] == ([True] if problem else [])
        assert all(path in str(each) for each in found)
    assert validate_update(data, data) == []


def added(taint, seconds):
    """Return an injected toleration."""
    toleration = {"key": taint, "operator": "Exists", "effect": "NoExecute"}
    return {**toleration, "tolerationSeconds": seconds}


ALL = {"operator": "Exists"}
NO_SCHEDULE = {**ALL, "effect": "NoSchedule"}
BOTH = [added(NOT_READY, 30), added(UNREACHABLE, 0)]
PLACED = {"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists"}
OWN = added(UNREACHABLE, 7)


@pytest.mark.parametrize(
    ("spec", "deadline_s", "expected"),
    [
        ({}, 0, []),
        ({}, 30, BOTH),
        ({}, 90, [added(NOT_READY, 90), added(UNREACHABLE, 60)]),
        ({"terminationGracePeriodSeconds": 0}, 20, [added(NOT_READY, 20), added(UNREACHABLE, 20)]),
        ({"terminationGracePeriodSeconds": 600}, 30, BOTH),
        ({"tolerations": [OWN]}, 30, [OWN, added(NOT_READY, 30)]),
        # The first match decides: pods on GPU nodes often tolerate all taints, and are evicted.
        ({"tolerations": [ALL]}, 30, [*BOTH, ALL]),
        ({"tolerations": [OWN, ALL]}, 30, [added(NOT_READY, 30), OWN, ALL]),
        ({"tolerations": [{**ALL, "tolerationSeconds": 7}]}, 30, [{**ALL, "tolerationSeconds": 7}]),
        ({"tolerations": [NO_SCHEDULE]}, 30, [NO_SCHEDULE, *BOTH]),
        (
            {"tolerations": [{**OWN, "effect": "NoSchedule"}]},
            30,
            [{**OWN, "effect": "NoSchedule"}, *BOTH],
        ),
        ({"tolerations": [OWN]}, 0, [OWN]),
    ],
)
def test_tolerations_are_added_by_deadline_and_grace_period(spec, deadline_s, expected):
    """The grace period ends with the deadline; the user's tolerations stay."""
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
def test_limit_per_index_is_set_when_the_back_off_is_unlimited(change, deadline_s, expected):
    """Otherwise the Job controller's delay would grow with the number of pods of a node."""
    assert job_fields({**UNLIMITED, **change}, deadline_s) == expected


def test_jobs_get_the_tolerations_of_annotation_or_configuration():
    """Without either of them they get none."""
    plain = decoded(JobSet, jobset_json())
    annotation = {keys.LOST_NODE_DEADLINE_ANNOTATION: "50s"}
    annotated = decoded(JobSet, jobset_json(annotations=annotation))

    def made(jobset, *settings):
        spec = builders(jobset, Features(), *settings)[0].body(0)["spec"]
        return spec["template"]["spec"].get("tolerations")

    assert made(plain) is None
    assert made(annotated) == [added(NOT_READY, 50), added(UNREACHABLE, 20)]
    assert made(plain, SchedulerFields(), 30.0) == BOTH


# ---- plans ---------------------------------------------------------------------------------------


def leaving(name, *, deleted_ago, grace=30, deadline="30s", jobset="js", phase="Running"):
    """Return a pod whose deletion was requested this number of seconds ago; ``None`` for never."""
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "5"}
    if deleted_ago is not None:
        meta["deletionTimestamp"] = stamp(deleted_ago - grace)
        meta["deletionGracePeriodSeconds"] = grace
    body = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}}
    notes = None if deadline is None else {keys.LOST_NODE_DEADLINE_ANNOTATION: deadline}
    owner = decoded(JobSet, jobset_json(name=jobset, annotations=notes))
    return LeavingPod(decoded(ChildPod, body), owner)


def plan(*pods, since=60, confirmed=True, default_s=0.0, memory=None, now=NOW):
    """Return the plan for a node that has been unreachable for this number of seconds."""
    at = None if since is None else EPOCH_START - timedelta(seconds=since)
    observed = ObservedNode(
        name="n", unreachable_since=at, pods=pods, confirmed=confirmed, default_s=default_s
    )
    return plan_lost_node(observed, memory or {}, now)


def names(made):
    """Return the names of the pods that a plan gives up."""
    return [pod.metadata.name for each in made.lost for pod in each.pods]


@pytest.mark.parametrize(
    ("pod", "since", "given_up", "delay_s"),
    [
        (leaving("p", deleted_ago=30), 30, ["p"], None),
        (leaving("p", deleted_ago=29), 30, [], 1),
        (leaving("p", deleted_ago=40), 29, [], 1),
        (leaving("p", deleted_ago=40, deadline="2m"), 90, [], 30),
        (leaving("p", deleted_ago=9, grace=0, deadline="10s"), 90, [], 1),
        (leaving("p", deleted_ago=10, grace=0, deadline="10s"), 90, ["p"], None),
        (leaving("p", deleted_ago=40, phase="Failed"), 60, ["p"], None),
        (leaving("p", deleted_ago=1000), None, [], None),
        (leaving("p", deleted_ago=1000, deadline="0"), 60, [], None),
        (leaving("p", deleted_ago=1000, deadline=None), 60, [], None),
        (leaving("p", deleted_ago=None), 60, [], None),
    ],
    ids=[
        *("due", "grace", "deadline", "long-deadline", "agent", "agent-over", "failed"),
        *("back", "never", "not-asked", "not-deleted"),
    ],
)
def test_pod_is_given_up_after_grace_period_and_deadline(pod, since, given_up, delay_s):
    """And ten seconds after its deletion was requested; never without a deadline."""
    made = plan(pod, since=since)
    assert names(made) == given_up
    assert made.result.delay == (None if delay_s is None else timedelta(seconds=delay_s))


@pytest.mark.parametrize("hours", [-2, 2])
def test_pod_is_given_up_in_time_when_the_wall_clock_is_set(hours):
    """The monotonic clock measures the wait."""
    pod = leaving("p", deleted_ago=20)
    first = plan(pod, since=20)
    assert first.result.delay == timedelta(seconds=10)
    wall = NOW.wall + timedelta(hours=hours)
    again = plan(pod, since=20, memory=first.memory, now=Now(wall, 9.0))
    last = plan(pod, since=20, memory=again.memory, now=Now(wall, 10.0))

    assert (names(again), again.result.delay) == ([], timedelta(seconds=1))
    assert names(last) == ["p"]


def test_pod_waits_for_its_deadline_at_most_when_the_clock_of_a_manager_is_behind():
    """The clock of the node controller is two hours ahead."""
    pod = leaving("p", deleted_ago=-7200, deadline="90s")

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
def test_pods_that_stay_on_a_lost_node_cause_a_warning(toleration, deadline, fields):
    """A deadline has no effect on pods that tolerate an unreachable node without a limit."""
    notes = None if deadline is None else {keys.LOST_NODE_DEADLINE_ANNOTATION: deadline}
    job = replicated_job("w", 1, pod_spec={"tolerations": [toleration]})
    data = jobset_json(job, annotations=notes)

    assert [each.field for each in warnings(data, Features())] == fields


def test_configured_deadline_is_the_default():
    """A JobSet may disable it."""
    pods = [leaving("a", deleted_ago=90, deadline=None), leaving("b", deleted_ago=90, deadline="0")]
    assert names(plan(*pods, default_s=30.0)) == ["a"]


def test_node_is_read_before_a_pod_is_given_up():
    """Only if a pod is to be given up."""
    early, due = leaving("early", deleted_ago=10), leaving("due", deleted_ago=30)
    assert not plan(early, confirmed=False).confirm
    first = plan(early, due, confirmed=False)
    assert first.confirm
    assert first.lost == ()


@pytest.mark.parametrize(("phase", "given_up"), [("Running", ["p"]), ("Failed", [])])
def test_pod_that_was_deleted_by_force_is_given_up_until_it_has_failed(phase, given_up):
    """The Job controller releases it once it is marked as failed."""
    assert names(plan(leaving("p", deleted_ago=90, grace=0, phase=phase))) == given_up


def test_event_names_node_time_deadline_and_the_first_pods():
    """One for each JobSet."""
    pods = [leaving(f"p{number:02}", deleted_ago=90) for number in range(12)]
    made = plan(*pods, leaving("q", deleted_ago=90, jobset="other", deadline="10s"))
    (first, second) = made.lost
    assert first.why.startswith(f"since nothing was heard of node 'n' since {stamp(60)}")
    event = first.event([pod.metadata.name for pod in first.pods])
    assert (event.type_, event.reason, event.pod) == ("Warning", "NodeLost", "p00")
    assert event.message.startswith("12 pods were deleted by force, since nothing was heard")
    listed = ", ".join(f"'p{n:02}'" for n in range(10))
    assert event.message.endswith(f"the deadline of 30 s: {listed} and 2 more")
    assert second.event(["q"]).message.endswith("deadline of 10 s: 'q'")
    assert made.result.summary == "gave up 13 pods"


LATER = [added(NOT_READY, 40), added(UNREACHABLE, 10)]


@pytest.mark.parametrize(
    ("template", "present", "expected"),
    [
        pytest.param([], [], LATER, id="before the deadline"),
        pytest.param([], LATER, None, id="as created"),
        pytest.param([], BOTH, LATER, id="another deadline"),
        pytest.param([ALL], [ALL], [*LATER, ALL], id="all: before the deadline"),
        pytest.param([ALL], [*LATER, ALL], None, id="all: as created"),
        pytest.param([ALL], [PLACED, ALL], [PLACED, *LATER, ALL], id="all: with placement"),
    ],
)
def test_resumed_job_has_the_tolerations_of_the_deadline(template, present, expected):
    """A queue may replace others; those of the deadline precede a toleration of all taints."""
    pod_spec = {"tolerations": template} if template else None
    data = jobset_json(replicated_job("w", 1, pod_spec=pod_spec))
    replicated = decoded(JobSet, data).spec.replicated_jobs[0]
    job = decoded(Job, {"metadata": {"name": "j", "uid": "u"}, "spec": {"suspend": True}})
    (action,) = resumptions(replicated, [job], lost_node_deadline_s=40.0)
    record = {keys.COPIED_FIELDS_ANNOTATION: json.dumps({"tolerations": BOTH})}
    patch = resume_patch(action, {"spec": {"tolerations": present}}, record)
    assert patch["spec"].get("template", {}).get("spec", {}).get("tolerations") == expected
