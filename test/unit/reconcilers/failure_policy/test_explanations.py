"""Events about decisions of the failure policy and about waits, and the decision metric."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.failure_policy.decision import DECISIONS
from jobsetpy.reconcilers.rules.plan import EmitEvent
from support.jobsets import replicated_job
from support.model_kit import begin, rule

W = [f"test-js-w-{index}" for index in range(3)]
FAILED = "PodFailurePolicy"
TEXT = "Container c failed with exit code 3"


def started(*rules, max_restarts=1, policy=True):
    """Return a cluster with three Jobs of ``w`` and these rules."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules)} if policy else None
    return begin(replicated_job("w", 3), failurePolicy=policy)


def explanations(events):
    """Return the messages of the events that explain decisions."""
    return [e.message for e in events if e.reason == keys.FAILURE_POLICY_APPLIED_REASON]


@pytest.mark.parametrize(
    ("setup", "message", "decision"),
    [
        ({"policy": False}, "no failure policy", "NoFailurePolicy"),
        ({}, "no rule applies, action RestartJobSet", "RestartJobSet"),
        *(
            ({"rules": [rule(action, name="a")]}, f"rule 'a', action {action}", action)
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
                {"rules": [rule(action, name="a")], "max_restarts": 0},
                f"rule 'a', action {action} not taken, since all 0 restarts are used up",
                "ReachedMaxRestarts",
            )
            for action in ("RestartJobSet", "RestartJob", "RestartReplicatedJob")
        ),
    ],
)
def test_every_decision_is_explained(setup, message, decision):
    """One event about the Job names the rule, the Job, its reason and its message."""
    cluster = started(*setup.pop("rules", ()), **setup)
    cluster.fail(W[1], FAILED, TEXT)
    write = cluster.plan().status

    (event,) = (e for e in write.events if e.reason == keys.FAILURE_POLICY_APPLIED_REASON)
    assert event == EmitEvent(
        "Normal",
        "FailurePolicyApplied",
        f"{message}: job {W[1]!r} failed for reason {FAILED!r} ({TEXT})",
        W[1],
    )
    assert write.decisions == (decision,)


@pytest.mark.parametrize("action", ["RestartReplicatedJob", "FailJob"])
def test_action_with_an_event_of_its_own_has_no_explanation(action):
    """Its event already names rule, Job and reason."""
    cluster = started(rule(action, name="a"))
    cluster.fail(W[1], FAILED)
    plan = cluster.plan()

    assert explanations(plan.status.events) == []
    (own,) = [*plan.status.events, *plan.notices]
    assert f"by rule 'a' for reason {FAILED!r}" in own.message
    assert plan.status.decisions == (action,)


def test_failures_of_one_rule_are_explained_together():
    """Each action is counted, each rule explained once."""
    free = "RestartJobAndIgnoreMaxRestarts"
    rules = (rule("RestartJob", [FAILED], name="a"), rule(free, name="b"))
    cluster = started(*rules, max_restarts=5)
    cluster.fail(W[0], FAILED)
    cluster.fail(W[1], FAILED)
    cluster.fail(W[2], "DeadlineExceeded")
    write = cluster.plan().status

    assert explanations(write.events) == [
        f"rule 'a', action RestartJob: job {W[0]!r} failed for reason {FAILED!r}, and 1 more",
        f"rule 'b', action {free}: job {W[2]!r} failed for reason 'DeadlineExceeded'",
    ]
    assert sorted(write.decisions) == ["RestartJob", "RestartJob", free]


def test_last_restart_and_the_end_are_both_explained():
    """The first failed Job takes the only restart, and none is left for the second."""
    cluster = started(rule("RestartJob", name="a"), max_restarts=1)
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
    """With the write that counts the Job as failed; other passes count nothing."""
    cluster = started(rule("FailJob", name="a"), max_restarts=5)
    cluster.fail(W[0], FAILED)
    assert cluster.plan().status.decisions == ("FailJob",)
    assert cluster.plan().status.decisions == ("FailJob",)  # nothing is stored yet
    cluster.reconcile()
    assert cluster.plan().status.decisions == ()
    cluster.fail(W[1], FAILED)
    assert cluster.plan().status.decisions == ("FailJob",)
    cluster.reconcile()
    assert cluster.plan().status.decisions == ()


def test_list_of_decisions_has_each_once():
    """They are values of a metric's label, which must be few and known."""
    assert len(set(DECISIONS)) == len(DECISIONS) == 10


# ---- waits


def test_wait_for_dependencies_is_reported():
    """The text stays the same as long as something waits."""
    cluster = begin(
        replicated_job("a"),
        replicated_job("b", depends_on=[("a", "Ready")]),
        replicated_job("c", depends_on=[("a", "Complete"), ("b", "Complete")]),
    )
    text = (
        "replicated jobs wait for others: 'b' starts when 'a' is Ready; "
        "'c' starts when 'a' is Complete; 'c' starts when 'b' is Complete"
    )
    expected = (EmitEvent("Normal", "WaitingForDependencies", text),)
    assert cluster.reconcile().notices == expected
    cluster.ready("test-js-a-0")
    assert cluster.reconcile().notices == expected
    cluster.complete("test-js-a-0", "test-js-b-0")
    assert cluster.reconcile().notices == ()


def test_wait_for_deletion_is_reported():
    """With BlockingRecreate, until the last old Job is gone."""
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    cluster = begin(replicated_job("w", 3), failurePolicy=policy)
    cluster.fail(W[0])
    (notice,) = cluster.reconcile().notices
    assert notice.reason == "WaitingForDeletion"
    cluster.collect(W[0], W[1])
    assert cluster.reconcile().notices == (notice,)
    cluster.collect()
    assert cluster.reconcile().notices == ()


def test_plain_start_waits_for_nothing():
    """It causes no notice."""
    assert started().reconcile().notices == ()
