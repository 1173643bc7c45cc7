"""Failure policy actions that touch a part of a JobSet, and the annotation that restarts a Job."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.plan import JobsMemory
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, merge, replicated_job

DRIVER = "test-js-driver-0"
WORKERS = ["test-js-workers-0", "test-js-workers-1", "test-js-workers-2"]
ALL = [DRIVER, *WORKERS]
COUNTED = "RestartReplicatedJob"
UNCOUNTED = "RestartReplicatedJobAndIgnoreMaxRestarts"


def rule(action, name="rule", reasons=(), targets=()):
    """A failure policy rule as JSON."""
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": list(reasons),
        "targetReplicatedJobs": list(targets),
    }


def with_policy(*rules, max_restarts=1, items=(), features=None, restart_strategy=None, **spec):
    """A started JobSet with a failure policy: a driver and three workers, unless told otherwise."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules)}
    if restart_strategy:
        policy["restartStrategy"] = restart_strategy
    items = items or (replicated_job("driver"), replicated_job("workers", 3))
    cluster = ModelCluster(jobset_json(*items, failurePolicy=policy, **spec), features)
    cluster.reconcile()
    return cluster


def recreate(cluster):
    """Let terminating Jobs go and have them made again."""
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()


def uids(cluster):
    """The UID of each Job."""
    return {name: job["metadata"]["uid"] for name, job in cluster.jobs.items()}


def remade(cluster, before):
    """Names of the Jobs that are others than before."""
    return {name for name, uid in uids(cluster).items() if uid != before.get(name)}


def arrays(cluster, name="workers"):
    """Both restart arrays of a ReplicatedJob, ``None`` where absent."""
    for item in cluster.object["status"]["replicatedJobsStatus"]:
        if item["name"] == name:
            return item.get("jobRestarts"), item.get("jobRestartsCountTowardsMax")
    raise AssertionError(name)


def own_attempts(cluster):
    """The own attempt of each Job."""
    label = keys.JOB_RESTART_ATTEMPT
    return {name: job["metadata"]["labels"][label] for name, job in cluster.jobs.items()}


def mark(cluster, name):
    """Annotate a Job, as a person would."""
    metadata = {"annotations": {keys.RESTART_ANNOTATION: ""}}
    cluster.jobs[name] = merge(cluster.jobs[name], {"metadata": metadata})


class TestRestartReplicatedJob:
    @pytest.mark.parametrize(("action", "counted"), [(COUNTED, [0, 1, 0]), (UNCOUNTED, None)])
    def test_all_its_jobs_are_recreated(self, action, counted):
        """Workers start over together, the driver goes on; it counts one at the failed index."""
        cluster = with_policy(rule(action))
        cluster.ready(*ALL)
        before = uids(cluster)
        cluster.complete(WORKERS[2])
        cluster.fail(WORKERS[1])
        recreate(cluster)

        assert set(WORKERS) == remade(cluster, before)
        assert ([1, 1, 1], counted) == arrays(cluster)
        assert {DRIVER: "0", **dict.fromkeys(WORKERS, "1")} == own_attempts(cluster)
        assert (cluster.status.restarts, cluster.condition("RestartingJobSet")) == (0, None)

    def test_the_event_names_rule_and_reason(self):
        """One event tells action, ReplicatedJob, rule, reason and Job."""
        cluster = with_policy(rule(COUNTED, "gpu"))
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        cluster.reconcile()

        (event,) = cluster.events
        assert event.reason == "RestartReplicatedJobFailurePolicyAction"
        assert (
            "applying RestartReplicatedJob failure policy action to replicated job 'workers' by "
            f"rule 'gpu' for reason 'PodFailurePolicy' (first failed job: {WORKERS[1]})"
        ) == event.message

    def test_the_maximum(self):
        """Counted restarts stop at the maximum, however many Jobs each of them recreates."""
        cluster = with_policy(rule(COUNTED), max_restarts=2)
        for index in (0, 2):
            cluster.fail(WORKERS[index])
            recreate(cluster)

        assert cluster.status.terminal_state == ""
        assert arrays(cluster) == ([2, 2, 2], [1, 0, 1])

        cluster.fail(WORKERS[1])
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    def test_uncounted_restarts_know_no_maximum(self):
        """Restarts that ignore the maximum go on even if it is zero."""
        cluster = with_policy(rule(UNCOUNTED), max_restarts=0)
        for _ in range(3):
            cluster.fail(WORKERS[0])
            recreate(cluster)

        assert (cluster.status.terminal_state, arrays(cluster)) == ("", ([3, 3, 3], None))

    def test_jobs_that_fail_together_are_one_restart(self):
        """All failed Jobs of a ReplicatedJob are covered by one restart, in one write."""
        cluster = with_policy(rule(COUNTED), max_restarts=5)
        for after, name in enumerate(WORKERS):
            cluster.fail(name, after=3 - after)
        write = cluster.plan().status

        assert (write.jobs_restarted, write.replicated_jobs_restarted) == (0, 1)

        recreate(cluster)

        assert arrays(cluster) == ([1, 1, 1], [0, 0, 1])

    def test_two_replicated_jobs_are_two_restarts_in_one_pass(self):
        """Each ReplicatedJob with failed Jobs counts one."""
        cluster = with_policy(rule(COUNTED), max_restarts=5)
        cluster.fail(DRIVER)
        cluster.fail(WORKERS[0])
        cluster.carry_out(cluster.plan())

        assert arrays(cluster, "driver") == ([1], [1])
        assert arrays(cluster) == ([1, 1, 1], [1, 0, 0])

    def test_what_still_runs_goes_when_the_budget_ends_in_the_same_pass(self):
        """A budget of one, two ReplicatedJobs that fail at once: no sibling runs on."""
        cluster = with_policy(rule(COUNTED), max_restarts=1)
        cluster.fail(DRIVER)
        cluster.fail(WORKERS[0])
        recreate(cluster)
        recreate(cluster)

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert not {WORKERS[1], WORKERS[2]} & cluster.jobs.keys()

    def test_restarts_of_jobs_and_of_the_replicated_job_add_up(self):
        """After a restart of one Job, all indexes move on by one and stay current."""
        cluster = with_policy(rule("RestartJob", "one", ["One"]), rule(COUNTED), max_restarts=5)
        cluster.fail(WORKERS[0], "One")
        recreate(cluster)
        cluster.fail(WORKERS[1])
        recreate(cluster)

        assert arrays(cluster) == ([2, 1, 1], [1, 1, 0])
        assert {WORKERS[0]: "2", WORKERS[1]: "1", WORKERS[2]: "1"} == {
            name: attempt for name, attempt in own_attempts(cluster).items() if name != DRIVER
        }
        assert cluster.plan().empty

    def test_blocking_recreate(self):
        """Under BlockingRecreate no worker comes back before the last one is gone."""
        cluster = with_policy(rule(COUNTED), restart_strategy="BlockingRecreate")
        cluster.fail(WORKERS[0])
        cluster.reconcile()
        cluster.collect(WORKERS[0], WORKERS[1])
        cluster.reconcile()

        assert [DRIVER, WORKERS[2]] == sorted(cluster.jobs)

    def test_gate_off(self):
        """Without the gate RestartJob nothing could count the restart: a problem to be told."""
        cluster = with_policy(rule(COUNTED), features=Features(restart_job=False))
        cluster.fail(DRIVER)

        assert "feature gate RestartJob" in cluster.plan().problem


class TestFailJob:
    def test_the_others_continue(self):
        """Nothing is restarted or counted, and the end of the others ends the JobSet."""
        cluster = with_policy(rule("FailJob", "optional"))
        before = uids(cluster)
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        recreate(cluster)

        assert (set(), "") == (remade(cluster, before), cluster.status.terminal_state)
        assert cluster.counters()["workers"] == {"failed": 1}
        assert arrays(cluster) == (None, None)

        cluster.complete(DRIVER, WORKERS[0])
        cluster.reconcile()

        assert cluster.status.terminal_state == ""

        cluster.complete(WORKERS[2])
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobFailurePolicyAction")
        assert (
            "jobset cannot complete: 1 job stays failed by failure policy action FailJob by rule "
            f"'optional' for reason 'PodFailurePolicy' (first failed job: {WORKERS[1]})"
        ) == cluster.status.conditions[0].message

    def test_it_is_reported(self):
        """An event about the Job names rule and reason; a finished JobSet says no more."""
        cluster = with_policy(rule("FailJob", "optional"))
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        (notice,) = cluster.plan().notices

        assert (WORKERS[1], "FailJobFailurePolicyAction") == (notice.job, notice.reason)
        assert "by rule 'optional' for reason 'PodFailurePolicy'" in notice.message

        cluster.complete(DRIVER, WORKERS[0], WORKERS[2])
        cluster.reconcile()

        assert cluster.plan().notices == ()

    ENDS: ClassVar = {
        "all targets complete beside it": ("All", ["driver"], [DRIVER], "Completed"),
        "a target may still be busy": ("All", ["workers"], WORKERS[:1], ""),
        "others need not end": ("All", ["workers"], [WORKERS[0], WORKERS[2]], "Failed"),
        "one success is enough": ("Any", ["workers"], WORKERS[:1], "Completed"),
        "no success yet": ("Any", ["workers"], [DRIVER], ""),
    }

    @pytest.mark.parametrize("case", ENDS)
    def test_ends(self, case):
        """The success policy decides, and its targets alone."""
        operator, targets, complete, end = self.ENDS[case]
        policy = {"operator": operator, "targetReplicatedJobs": targets}
        cluster = with_policy(rule("FailJob"), successPolicy=policy)
        cluster.fail(WORKERS[1])
        cluster.complete(*complete)
        cluster.reconcile()

        assert end == cluster.status.terminal_state

    @pytest.mark.parametrize("operator", ["All", "Any"])
    def test_all_failed(self, operator):
        """With every Job failed no operator has anything left to hope for."""
        cluster = with_policy(rule("FailJob"), successPolicy={"operator": operator})
        for name in ALL:
            cluster.fail(name)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobFailurePolicyAction")

    def test_other_failures_are_decided_as_ever(self):
        """Rule order and oldest failure hold among the Jobs that FailJob does not cover."""
        cluster = with_policy(
            rule("FailJob", "optional", ["Optional"]),
            rule("RestartJob", "late", targets=["driver"]),
            rule("RestartJob"),
            max_restarts=1,
        )
        cluster.fail(WORKERS[0], "Optional", after=0)
        cluster.fail(WORKERS[1], after=1)
        cluster.fail(DRIVER, after=2)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert cluster.status.conditions[0].message.endswith(f"(first failed job: {WORKERS[1]})")
        assert arrays(cluster, "driver") == ([1], [1])

    def test_an_earlier_rule_covers_the_job(self):
        """FailJob covers only Jobs that no earlier rule applies to."""
        cluster = with_policy(rule("RestartJob", reasons=["Again"]), rule("FailJob"))
        cluster.fail(WORKERS[0], "Again")
        cluster.fail(WORKERS[1], "Other")
        before = uids(cluster)
        recreate(cluster)

        assert {WORKERS[0]} == remade(cluster, before)

    @pytest.mark.parametrize(
        ("action", "expected"), [(COUNTED, set(WORKERS)), ("RestartJobSet", set(ALL))]
    )
    def test_a_restart_of_all_includes_it(self, action, expected):
        """All Jobs of a restarted ReplicatedJob or JobSet start over, the failed one too."""
        cluster = with_policy(rule("FailJob", reasons=["Optional"]), rule(action))
        before = uids(cluster)
        cluster.fail(WORKERS[0], "Optional")
        cluster.reconcile()
        cluster.fail(WORKERS[1])
        recreate(cluster)

        assert expected == remade(cluster, before)

    def test_a_restart_ends_without_it(self):
        """The condition of a restart ends when all others are ready."""
        cluster = with_policy(rule("FailJob", reasons=["Optional"]), rule("RestartJobSet"))
        cluster.fail(WORKERS[0])
        recreate(cluster)
        cluster.fail(WORKERS[0], "Optional")
        cluster.ready(DRIVER, WORKERS[1], WORKERS[2])
        cluster.reconcile()

        assert cluster.condition("RestartingJobSet") == ("False", "JobsReady")

    def test_it_does_not_stop_what_comes_next(self):
        """Missing Jobs are made, Jobs are suspended, and the start in order goes on."""
        order = {"startupPolicyOrder": "InOrder"}
        cluster = with_policy(rule("FailJob"), startupPolicy=order)
        cluster.fail(DRIVER)
        cluster.reconcile()

        assert sorted(cluster.jobs) == ALL

        del cluster.jobs[WORKERS[0]]
        cluster.change_spec(suspend=True)
        cluster.reconcile()

        assert set(WORKERS) == {
            name for name, job in cluster.jobs.items() if job["spec"]["suspend"] is True
        }

    def test_what_waits_for_its_completion_waits_in_vain(self):
        """The JobSet fails once only Jobs are missing that can never start, however deep."""
        items = (
            replicated_job("a", 2),
            replicated_job("b", depends_on=[("a", "Complete")]),
            replicated_job("c", depends_on=[("b", "Ready")]),
            replicated_job("server"),
        )
        policy = {"operator": "All", "targetReplicatedJobs": ["c", "a"]}
        cluster = with_policy(rule("FailJob"), items=items, successPolicy=policy)
        cluster.ready("test-js-server-0")
        cluster.fail("test-js-a-0")
        cluster.reconcile()

        assert cluster.status.terminal_state == ""

        cluster.complete("test-js-a-1")
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobFailurePolicyAction")

    def test_the_order_of_jobs_does_not_matter(self):
        """The same Jobs in another order give the same plan."""
        cluster = with_policy(rule("FailJob"))
        for name in (WORKERS[2], WORKERS[0]):
            cluster.fail(name)
        observed = cluster.observe()
        turned = attrs.evolve(observed, jobs=observed.jobs[::-1])

        assert plan_jobs(observed, JobsMemory(), cluster.now) == plan_jobs(
            turned, JobsMemory(), cluster.now
        )


class TestRestartAnnotation:
    STATES: ClassVar = {
        "running": lambda cluster: cluster.ready(WORKERS[1]),
        "complete": lambda cluster: cluster.complete(WORKERS[1]),
        "failed": lambda cluster: cluster.fail(WORKERS[1]),
    }

    @pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
    @pytest.mark.parametrize("state", STATES)
    def test_the_job_is_recreated(self, state, suspend):
        """A Job in any state starts over at the same attempt; nothing is counted."""
        cluster = with_policy(rule("FailJobSet"), suspend=suspend)
        before = uids(cluster)
        self.STATES[state](cluster)
        mark(cluster, WORKERS[1])
        recreate(cluster)

        assert {WORKERS[1]} == remade(cluster, before)
        assert dict.fromkeys(ALL, "0") == own_attempts(cluster)
        assert keys.RESTART_ANNOTATION not in cluster.jobs[WORKERS[1]]["metadata"]["annotations"]
        assert (cluster.status.restarts, arrays(cluster)) == (0, (None, None))
        (notice,) = cluster.notices
        assert ("RestartRequested", WORKERS[1]) == (notice.reason, notice.job)

    def test_a_finished_jobset_stays_as_it_is(self):
        """After the end the annotation does nothing."""
        cluster = with_policy()
        cluster.complete(*ALL)
        cluster.reconcile()
        mark(cluster, DRIVER)

        assert cluster.plan().empty

    def test_an_outdated_job_goes_anyway(self):
        """A Job of an earlier attempt is deleted for that reason, without the event."""
        cluster = with_policy()
        cluster.fail(DRIVER)
        cluster.carry_out(cluster.plan())
        mark(cluster, DRIVER)
        recreate(cluster)

        assert (cluster.status.restarts, cluster.notices) == (1, [])

    def test_templates_do_not_pass_it_on(self):
        """In a template the annotation would restart for ever, so Jobs do not inherit it."""
        metadata = {"annotations": {keys.RESTART_ANNOTATION: "", "kept": "1"}}
        cluster = with_policy(items=[replicated_job("driver", metadata=metadata)])

        annotations = cluster.jobs[DRIVER]["metadata"]["annotations"]
        assert (keys.RESTART_ANNOTATION in annotations, annotations["kept"]) == (False, "1")
        assert cluster.plan().empty


class TestJobsFromBeforeTheGate:
    """Jobs that carry no attempt of their own, since the gate RestartJob was off."""

    GATE_OFF = Features(restart_job=False)

    def started(self, *actions, max_restarts=1):
        """A JobSet whose Jobs were made while the gate was off, which is on now."""
        rules = [rule(action, f"r{number}") for number, action in enumerate(actions)]
        cluster = with_policy(*rules, max_restarts=max_restarts, features=self.GATE_OFF)
        assert all(
            keys.JOB_RESTART_ATTEMPT not in job["metadata"]["labels"]
            for job in cluster.jobs.values()
        )
        cluster.features = Features()
        cluster.reconcile()
        return cluster

    def test_they_are_current(self):
        """Switching the gate on recreates nothing."""
        cluster = self.started("RestartJob")
        before = uids(cluster)
        recreate(cluster)

        assert before == uids(cluster)

    @pytest.mark.parametrize("action", ["RestartJob", "RestartJobAndIgnoreMaxRestarts"])
    def test_one_that_fails_is_recreated_once(self, action):
        """The restart is counted once, and the Job that comes of it carries its attempt."""
        cluster = self.started(action, max_restarts=5)
        before = uids(cluster)
        cluster.fail(WORKERS[1])
        recreate(cluster)

        assert {WORKERS[1]} == remade(cluster, before)
        assert cluster.counters()["workers"]["jobRestarts"] == [0, 1, 0]
        assert None is cluster.condition("Failed")

    def test_a_whole_replicated_job_is_recreated_once(self):
        """So are the siblings, which carry no attempt either."""
        cluster = self.started(COUNTED, max_restarts=5)
        before = uids(cluster)
        cluster.fail(WORKERS[1])
        recreate(cluster)

        assert set(WORKERS) == remade(cluster, before)
        assert cluster.counters()["workers"]["jobRestarts"] == [1, 1, 1]
