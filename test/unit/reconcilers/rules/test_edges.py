"""Cases that the API server's schema or the controller normally excludes."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.failure_policy.decision import apply_failure_policy, failed_at
from jobsetpy.reconcilers.placement.admission import mutate
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import expected_pods, group_size
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.rules.features import Features, gate_names, gate_problems
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from support.jobsets import decoded, replicated_job
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
    assert group_size(jobset, GroupCounts(lost=2)) == expected_pods(jobset) - less
    bare = attrs.evolve(jobset, spec=attrs.evolve(jobset.spec, failure_policy=None))
    assert group_size(bare, GroupCounts(lost=2)) == expected_pods(jobset)


# ---- start


# ---- JSON


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
    mutation = mutate(pod, lambda _: [leader], lambda _: {"zone": "z"}, lambda *_: False)
    (step,) = (step for step in mutation.patch if "nodeSelector" in step["path"])
    assert step["value"] == {"zone": "z"}


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
