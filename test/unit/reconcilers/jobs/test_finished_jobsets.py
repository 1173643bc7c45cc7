"""A finished JobSet has no running Job, whatever came before."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, merge, replicated_job


def rule(action, target):
    """A rule for one ReplicatedJob."""
    return {
        "name": f"{target}-{action}".lower(),
        "action": action,
        "targetReplicatedJobs": [target],
    }


def started(*rules, max_restarts=1, **policy):
    """Two ReplicatedJobs of two Jobs each, all running."""
    cluster = ModelCluster(
        jobset_json(
            replicated_job("a", 2),
            replicated_job("b", 2),
            failurePolicy={"maxRestarts": max_restarts, "rules": list(rules), **policy},
        )
    )
    cluster.reconcile()
    cluster.ready(*cluster.jobs)
    cluster.reconcile()
    return cluster


def running(cluster):
    """Names of the Jobs that go on for ever if nobody ends them."""
    cluster.reconcile()
    cluster.collect()
    return sorted(name for name in cluster.jobs if cluster.job(name).status.finished is None)


def test_a_restart_and_the_end_in_one_decision():
    """The siblings of a Job whose ReplicatedJob was to be restarted do not outlive the JobSet."""
    cluster = started(rule("RestartReplicatedJob", "a"), rule("FailJobSet", "b"))
    cluster.fail("test-js-a-0")
    cluster.fail("test-js-b-0", after=1)
    cluster.reconcile()

    assert cluster.condition("Failed") == ("True", "FailJobSetFailurePolicyAction")
    assert running(cluster) == []


def test_a_restart_that_uses_up_the_budget_and_one_beyond_it():
    """With a budget of one, two ReplicatedJobs that fail at once end the JobSet and all its Jobs."""
    cluster = started(rule("RestartReplicatedJob", "a"), rule("RestartReplicatedJob", "b"))
    cluster.fail("test-js-a-0")
    cluster.fail("test-js-b-0", after=1)
    cluster.reconcile()

    assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
    assert running(cluster) == []


def test_a_deletion_that_fails_in_the_reconcile_that_completes_the_jobset():
    """What was left of an earlier attempt goes once the JobSet is complete."""
    cluster = started(rule("RestartJobSet", "a"), max_restarts=3)
    cluster.change_spec(successPolicy={"operator": "Any"})
    cluster.fail("test-js-a-0")
    cluster.carry_out(cluster.plan())
    del cluster.jobs["test-js-b-1"]
    cluster.carry_out(cluster.plan())
    plan = cluster.plan()
    stale = cluster.jobs["test-js-b-0"]
    stale["metadata"].pop("deletionTimestamp", None)
    cluster.complete("test-js-b-1")
    plan = cluster.plan()
    assert plan.partial_status.patch["terminalState"] == "Completed"

    cluster.carry_out(attrs.evolve(plan, actions=(), status=plan.partial_status))

    assert running(cluster) == []


def test_an_end_by_another_writer_while_jobs_are_recreated():
    """Restarts in place that are used up end a JobSet of which one Job was recreated already."""
    cluster = started(rule("RestartJobSet", "a"), max_restarts=3)
    cluster.fail("test-js-a-0")
    cluster.carry_out(cluster.plan())
    draft = StatusDraft(cluster.status, cluster.clock)
    draft.fail(keys.REACHED_MAX_RESTARTS_REASON, "all restarts are used up")
    cluster.object["status"] = merge(cluster.object["status"], draft.change().patch)

    assert running(cluster) == []


@pytest.mark.parametrize(
    "label", [keys.RESTART_ATTEMPT, keys.JOB_INDEX, keys.REPLICATED_JOB_NAME, keys.JOBSET_NAME]
)
def test_a_job_whose_labels_were_edited(label):
    """A Job that cannot be placed is left alone only as long as the JobSet goes on."""
    cluster = started(max_restarts=0)
    cluster.jobs["test-js-b-0"]["metadata"]["labels"][label] = "edited"
    cluster.fail("test-js-a-0")

    assert running(cluster) == []


def test_finished_jobs_stay():
    """Users read logs and results of Jobs that have ended, those of earlier attempts included."""
    cluster = started(rule("RestartReplicatedJob", "a"), rule("FailJobSet", "b"))
    cluster.complete("test-js-a-1")
    cluster.fail("test-js-a-0")
    cluster.fail("test-js-b-0", after=1)
    cluster.reconcile()
    running(cluster)

    assert sorted(cluster.jobs) == ["test-js-a-0", "test-js-a-1", "test-js-b-0"]
