"""Cases that the API server's schema or the controller normally excludes."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job, JobSpec
from jobsetpy.api.jobset import ChildPod, JobSet, ReplicatedJob, ReplicatedJobStatus
from jobsetpy.api.meta import Condition, ObjectMeta
from jobsetpy.api.name_rules import dns1123_subdomain, label_value
from jobsetpy.reconcilers.failure_policy.decision import apply_failure_policy, failed_at
from jobsetpy.reconcilers.jobs.startup_policy import dependencies_reached, has_started
from jobsetpy.reconcilers.jobs.suspension import resumptions
from jobsetpy.reconcilers.placement.admission import mutate
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods, group_size
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Histogram
from jobsetpy.reconcilers.rules.conditions import is_true
from jobsetpy.reconcilers.rules.features import Features, gate_names, gate_problems
from jobsetpy.reconcilers.rules.field_errors import invalid
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, condition_json
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import begin, rule

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(*rules, **spec):
    """Return a cluster with a started JobSet of three Jobs ``w`` and one ``other``."""
    policy = {"maxRestarts": 3, "rules": list(rules)}
    return begin(replicated_job("w", 3), replicated_job("other"), failurePolicy=policy, **spec)


# ---- failures


def decide(made, *jobs):
    """Apply the failure policy to these Jobs; return its problem and the messages of its events."""
    draft = StatusDraft(made.status, NOW)
    problem = apply_failure_policy(made.jobset, jobs, draft, Features())
    return problem, [event.message for event in draft.change().events]


@pytest.mark.parametrize(
    "labels",
    [
        {keys.REPLICATED_JOB_NAME: "unknown", keys.JOB_INDEX: "0"},
        {keys.REPLICATED_JOB_NAME: "w"},
        {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "x"},
        {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "3"},
    ],
)
def test_job_without_a_valid_place_is_not_restarted(labels):
    """Its labels say which counter to raise; the problem is reported."""
    made = cluster(rule("RestartJob"))
    made.fail("test-js-w-0")
    job = made.job("test-js-w-0")
    job = attrs.evolve(job, metadata=attrs.evolve(job.metadata, labels=labels))
    problem, events = decide(made, job)
    assert "its labels do not place it" in problem
    assert events == []


def test_failure_without_a_time_is_the_last():
    """It counts as if it had just happened."""
    made = cluster()
    made.fail("test-js-w-0")
    timed, untimed = made.job("test-js-w-0"), Job()
    assert failed_at(timed) < failed_at(untimed)


def test_failure_without_a_condition_is_reported_without_a_reason():
    """The event names the Job."""
    made = cluster()
    del made.object["spec"]["failurePolicy"]
    problem, events = decide(made, made.job("test-js-w-1"))
    assert problem == ""
    assert events[-1] == "no failure policy: job 'test-js-w-1' failed"


def test_failed_job_of_an_unknown_replicated_job_is_not_counted():
    """With the feature gate off, FailJob leaves it and reports it."""
    policy = {"maxRestarts": 1, "rules": [rule("FailJob")]}
    off = Features(restart_job=False)
    made = begin(replicated_job("w", 2), failurePolicy=policy, features=off)
    made.fail("test-js-w-0")
    made.jobs["test-js-w-0"]["metadata"]["labels"][keys.REPLICATED_JOB_NAME] = "unknown"
    plan = made.plan()
    assert plan.status.decisions == ()
    assert [notice.reason for notice in plan.notices] == [keys.FAIL_JOB_REASON]


def test_jobs_that_stay_failed_outside_the_targets_do_not_end_the_jobset():
    """The success policy has targets."""
    policy = {"operator": "All", "targetReplicatedJobs": ["other"]}
    made = cluster(rule("FailJob"), successPolicy=policy)
    for index in range(3):
        made.fail(f"test-js-w-{index}")
    made.reconcile()
    assert made.status.terminal_state == ""
    made.complete("test-js-other-0")
    made.reconcile()
    assert made.status.terminal_state == "Completed"


@pytest.mark.parametrize(("action", "less"), [("FailJob", 2), ("RestartJob", 0)])
def test_pods_of_a_failed_job_are_not_expected_when_it_may_stay_failed(action, less):
    """Only FailJob lets it stay failed."""
    jobset = cluster(rule(action)).jobset
    assert group_size(jobset, Histogram(lost=2)) == expected_pods(jobset) - less
    bare = attrs.evolve(jobset, spec=attrs.evolve(jobset.spec, failure_policy=None))
    assert group_size(bare, Histogram(lost=2)) == expected_pods(jobset)


# ---- start


def test_nothing_has_started_without_counters():
    """Except a ReplicatedJob without replicas; no dependency is reached."""
    empty, two = ReplicatedJob(name="a", replicas=0), ReplicatedJob(name="a", replicas=2)
    assert has_started(empty.replicas, None)
    assert not has_started(two.replicas, None)
    dependent = decoded(JobSet, jobset_json(replicated_job("b", depends_on=[("a", "Ready")])))
    dependent = dependent.spec.replicated_jobs[0]
    counters = {"a": ReplicatedJobStatus(name="a", ready=1)}
    assert dependencies_reached(dependent, counters, {"a": 1})
    assert not dependencies_reached(dependent, {}, {"a": 1})
    assert not dependencies_reached(dependent, counters, {})


def test_only_suspended_jobs_are_resumed():
    """A running Job is left as it is."""
    running = Job(metadata=ObjectMeta(name="r", uid="1"), spec=JobSpec(suspend=False))
    waiting = Job(metadata=ObjectMeta(name="s", uid="2"), spec=JobSpec(suspend=True))
    item = cluster().jobset.spec.replicated_jobs[0]
    assert [action.name for action in resumptions(item, [running, waiting])] == ["s"]


# ---- JSON


def test_condition_without_a_time_is_written_without_it():
    """Required fields are written."""
    assert condition_json(Condition(type="A", status="True")) == {
        "type": "A",
        "status": "True",
        "reason": "",
        "message": "",
    }


@pytest.mark.parametrize("template", [3, {"spec": 3}, {"spec": {"template": 3}}])
def test_template_of_a_wrong_type_gets_no_defaults(template):
    """The schema refuses it later."""
    jobset = {"spec": {"replicatedJobs": [{"name": "a", "template": template}]}}
    paths = [step["path"] for step in default_jobset(jobset)]
    assert not any(path.endswith("restartPolicy") for path in paths)


def test_group_name_of_a_wrong_type_is_left_to_the_schema():
    """Validation does not report it a second time."""
    jobset = jobset_json()
    jobset["spec"]["replicatedJobs"][0]["groupName"] = 3
    assert [p.field for p in validate_create(jobset) if "groupName" in p.field] == []


def test_all_problems_of_a_name_are_reported():
    """Its length and its characters are judged separately."""
    assert dns1123_subdomain("a" * 253) == []
    assert len(dns1123_subdomain("a" * 254)) == 1
    assert len(dns1123_subdomain("A" * 254)) == 2
    assert label_value("") == []
    assert len(label_value("-")) == 1
    assert len(label_value("-" * 64)) == 2


def test_field_error_has_the_format_of_the_api_server():
    """Path, kind of error, value and reason."""
    assert str(invalid("spec.a", 3, "no")) == "spec.a: Invalid value: 3: no"


def test_owner_that_does_not_control_a_pod_is_ignored():
    """Only the owner with ``controller: true`` counts, at any position."""
    pod = {
        "metadata": {
            "name": "js-w-0-1-abcde",
            "annotations": {
                keys.JOBSET_NAME: "js",
                keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "zone",
                keys.COMPLETION_INDEX_ANNOTATION: "1",
            },
            "labels": {keys.JOBSET_NAME: "js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"},
            "ownerReferences": [
                {"kind": "Other", "name": "o", "uid": "1"},
                {"kind": "Job", "name": "js-w-0", "uid": "2", "controller": True},
            ],
        },
        "spec": {},
    }
    owner = {"uid": "2", "controller": True}
    leader = decoded(
        ChildPod, {"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": "n"}}
    )
    mutation = mutate(pod, lambda _: [leader], lambda _: {"zone": "z"})
    (step,) = (step for step in mutation.patch if "nodeSelector" in step["path"])
    assert step["value"] == {"zone": "z"}


def test_condition_is_true_only_when_its_status_is_true():
    """An absent condition is not true."""
    conditions = (Condition(type="A", status="True"), Condition(type="B", status="False"))
    assert [is_true(conditions, kind) for kind in "ABC"] == [True, False, False]


# ---- feature gates

GATES = {"RestartJob", "ElasticJobSet", "InPlaceRestart", "Coscheduling"}


@pytest.mark.parametrize(
    ("gates", "on"),
    [
        ({}, GATES),
        ({"RestartJob": False}, GATES - {"RestartJob"}),
        ({"AllAlpha": False}, set()),
        ({"AllAlpha": False, "ElasticJobSet": True}, {"ElasticJobSet"}),
        ({"AllBeta": False, "TLSOptions": True}, GATES),
    ],
)
def test_gates_are_enabled_by_default(gates, on):
    """The name of a gate wins over the one for a group of gates."""
    features = Features.from_gates(gates)
    names = dict(zip(gate_names(), attrs.astuple(features), strict=True))
    assert {name for name, value in names.items() if value} >= on
    assert {name for name in GATES if names[name]} == on
    assert gate_problems(gates) == []


def test_gates_that_cannot_be_set_are_reported():
    """Unknown gates, and locked ones with another value."""
    problems = gate_problems({"X": True, "TLSOptions": False, "RestartJob": False})
    assert problems == [
        "unrecognized feature gate: X",
        "cannot set feature gate TLSOptions to False, it is locked",
    ]
