"""Finished JobSets have no running Jobs."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from support.jobsets import merge, replicated_job
from support.model_kit import begin


def rule(action, target):
    """Return a rule for one ReplicatedJob."""
    name = f"{target}-{action}".lower()
    return {"name": name, "action": action, "targetReplicatedJobs": [target]}


def started(*rules, max_restarts=1, **policy):
    """Return a cluster with two ReplicatedJobs of two running Jobs each."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules), **policy}
    jobs = (replicated_job("a", 2), replicated_job("b", 2))
    cluster = begin(*jobs, failurePolicy=policy)
    cluster.ready(*cluster.jobs)
    cluster.reconcile()
    return cluster


def running(cluster):
    """Return the names of Jobs that would run for ever."""
    cluster.reconcile()
    cluster.collect()
    return sorted(name for name in cluster.jobs if cluster.job(name).status.finished is None)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ("FailJobSet", "FailJobSetFailurePolicyAction"),
        ("RestartReplicatedJob", "ReachedMaxRestarts"),
    ],
)
def test_no_job_runs_when_a_restart_and_the_end_are_one_decision(second, reason):
    """Siblings of a Job whose ReplicatedJob was to restart are deleted, too."""
    cluster = started(rule("RestartReplicatedJob", "a"), rule(second, "b"))
    cluster.fail("test-js-a-0")
    cluster.fail("test-js-b-0", after=1)
    cluster.reconcile()

    assert cluster.condition("Failed") == ("True", reason)
    assert running(cluster) == []


def test_old_job_is_deleted_when_its_deletion_failed_before_the_jobset_completed():
    """Jobs of an earlier attempt are deleted once the JobSet is complete."""
    cluster = started(rule("RestartJobSet", "a"), max_restarts=3)
    cluster.change_spec(successPolicy={"operator": "Any"})
    cluster.fail("test-js-a-0")
    cluster.carry_out(cluster.plan())
    del cluster.jobs["test-js-b-1"]
    cluster.carry_out(cluster.plan())
    stale = cluster.jobs["test-js-b-0"]
    stale["metadata"].pop("deletionTimestamp", None)
    cluster.complete("test-js-b-1")
    plan = cluster.plan()
    assert plan.partial_status.patch["terminalState"] == "Completed"

    cluster.carry_out(attrs.evolve(plan, actions=(), status=plan.partial_status))

    assert running(cluster) == []


def test_no_job_runs_when_another_writer_ends_the_jobset_during_a_restart():
    """Restarts in place may be used up while a Job is already recreated."""
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
def test_job_with_an_edited_label_is_deleted_when_the_jobset_ends(label):
    """It is left alone only as long as the JobSet runs."""
    cluster = started(max_restarts=0)
    cluster.jobs["test-js-b-0"]["metadata"]["labels"][label] = "edited"
    cluster.fail("test-js-a-0")

    assert running(cluster) == []


def test_finished_jobs_are_kept():
    """Users read their logs and results, also those of earlier attempts."""
    cluster = started(rule("RestartReplicatedJob", "a"), rule("FailJobSet", "b"))
    cluster.complete("test-js-a-1")
    cluster.fail("test-js-a-0")
    cluster.fail("test-js-b-0", after=1)
    cluster.reconcile()
    running(cluster)

    assert sorted(cluster.jobs) == ["test-js-a-0", "test-js-a-1", "test-js-b-0"]
