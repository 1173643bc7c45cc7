"""What is told of decisions beyond conditions: rule, Job and reason; waits; and what is counted."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.failure_policy import DECISIONS
from jobsetpy.reconcilers.rules.plan import EmitEvent
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, replicated_job

W = [f"test-js-w-{index}" for index in range(3)]
FAILED = "PodFailurePolicy"
TEXT = "Container c failed with exit code 3"


def started(*rules, max_restarts=1, policy=True, **spec):
    """Three Jobs of ``w``, with these rules."""
    if policy:
        spec["failurePolicy"] = {"maxRestarts": max_restarts, "rules": list(rules)}
    cluster = ModelCluster(jobset_json(replicated_job("w", 3), **spec))
    cluster.reconcile()
    return cluster


def rule(action, name="rule", **fields):
    return {"name": name, "action": action, **fields}


def explanations(events):
    return [e.message for e in events if e.reason == keys.FAILURE_POLICY_APPLIED_REASON]


@pytest.mark.parametrize(
    ("setup", "told", "decision"),
    [
        ({"policy": False}, "no failure policy", "NoFailurePolicy"),
        ({}, "no rule applies, action RestartJobSet", "RestartJobSet"),
        *(
            ({"rules": [rule(action, "a")]}, f"rule 'a', action {action}", action)
            for action in (
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            )
        ),
        *(
            (
                {"rules": [rule(action, "a")], "max_restarts": 0},
                f"rule 'a', action {action} not taken, since all 0 restarts are used up",
                "ReachedMaxRestarts",
            )
            for action in ("RestartJobSet", "RestartJob", "RestartReplicatedJob")
        ),
    ],
)
def test_every_decision_is_explained(setup, told, decision):
    """One event names the rule, the Job, its reason and its message, and refers to the Job."""
    cluster = started(*setup.pop("rules", ()), **setup)
    cluster.fail(W[1], FAILED, TEXT)
    write = cluster.plan().status

    (event,) = (e for e in write.events if e.reason == keys.FAILURE_POLICY_APPLIED_REASON)
    assert event == EmitEvent(
        "Normal",
        "FailurePolicyApplied",
        f"{told}: job {W[1]!r} failed for reason {FAILED!r} ({TEXT})",
        W[1],
    )
    assert write.decisions == (decision,)


@pytest.mark.parametrize("action", ["RestartReplicatedJob", "FailJob"])
def test_other_actions_explain_themselves(action):
    """Their own events name rule, Job and reason already; a second one would only repeat that."""
    cluster = started(rule(action, "a"))
    cluster.fail(W[1], FAILED)
    plan = cluster.plan()

    assert explanations(plan.status.events) == []
    (own,) = [*plan.status.events, *plan.notices]
    assert f"by rule 'a' for reason {FAILED!r}" in own.message
    assert plan.status.decisions == (action,)


def test_jobs_of_one_rule_are_explained_together():
    """Three failures of two rules: each action is counted, each rule explained once."""
    free = "RestartJobAndIgnoreMaxRestarts"
    cluster = started(
        rule("RestartJob", "a", onJobFailureReasons=[FAILED]),
        rule(free, "b"),
        max_restarts=5,
    )
    cluster.fail(W[0], FAILED)
    cluster.fail(W[1], FAILED)
    cluster.fail(W[2], "DeadlineExceeded")
    write = cluster.plan().status

    assert explanations(write.events) == [
        f"rule 'a', action RestartJob: job {W[0]!r} failed for reason {FAILED!r}, and 1 more",
        f"rule 'b', action {free}: job {W[2]!r} failed for reason 'DeadlineExceeded'",
    ]
    assert sorted(write.decisions) == ["RestartJob", "RestartJob", free]


def test_the_last_restart_and_the_end_are_both_explained():
    """The first Job takes the only restart there is, and the second finds none left."""
    cluster = started(rule("RestartJob", "a"), max_restarts=1)
    cluster.fail(W[0], FAILED)
    cluster.fail(W[1], FAILED)
    write = cluster.plan().status

    assert [text.partition(":")[0] for text in explanations(write.events)] == [
        "rule 'a', action RestartJob",
        "rule 'a', action RestartJob not taken, since all 1 restarts are used up",
    ]
    assert write.decisions == ("RestartJob", "ReachedMaxRestarts")
    assert write.finished == "Failed"


def test_fail_job_is_counted_once_for_each_job():
    """With the write that counts the Job as failed; passes before and after it count nothing."""
    cluster = started(rule("FailJob", "a"), max_restarts=5)
    cluster.fail(W[0], FAILED)
    assert cluster.plan().status.decisions == ("FailJob",)
    assert cluster.plan().status.decisions == ("FailJob",)  # nothing was stored yet
    cluster.reconcile()
    assert cluster.plan().status.decisions == ()
    cluster.fail(W[1], FAILED)
    assert cluster.plan().status.decisions == ("FailJob",)
    cluster.reconcile()
    assert cluster.plan().status.decisions == ()


def test_decisions_are_the_known_ones():
    """Labels of a metric must be few and known before."""
    assert len(set(DECISIONS)) == len(DECISIONS) == 10


# ---- waits


def test_waiting_for_dependencies_is_reported():
    """As long as something waits, in a text that does not change meanwhile."""
    cluster = ModelCluster(
        jobset_json(
            replicated_job("a"),
            replicated_job("b", depends_on=[("a", "Ready")]),
            replicated_job("c", depends_on=[("a", "Complete"), ("b", "Complete")]),
        )
    )
    text = (
        "replicated jobs wait for others: 'b' starts when 'a' is Ready; "
        "'c' starts when 'a' is Complete; 'c' starts when 'b' is Complete"
    )
    told = (EmitEvent("Normal", "WaitingForDependencies", text),)
    assert cluster.reconcile().notices == told
    cluster.ready("test-js-a-0")
    assert cluster.reconcile().notices == told
    cluster.complete("test-js-a-0", "test-js-b-0")
    assert cluster.reconcile().notices == ()


def test_waiting_for_deletion_is_reported():
    """With BlockingRecreate, until the last old Job is gone."""
    cluster = ModelCluster(
        jobset_json(
            replicated_job("w", 3),
            failurePolicy={"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
        )
    )
    cluster.reconcile()
    cluster.fail(W[0])
    (notice,) = cluster.reconcile().notices
    assert notice.reason == "WaitingForDeletion"
    cluster.collect(W[0], W[1])
    assert cluster.reconcile().notices == (notice,)
    cluster.collect()
    assert cluster.reconcile().notices == ()


def test_a_plain_start_waits_for_nothing():
    """No notice where nothing holds anything up."""
    assert started().reconcile().notices == ()
