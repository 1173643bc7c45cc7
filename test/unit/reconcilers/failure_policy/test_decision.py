"""Failure policy actions on parts of a JobSet, and the annotation that restarts a Job."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.plan import JobsMemory
from support.jobsets import merge, replicated_job
from support.model_kit import begin, labels_of, recreated, restart_arrays, rule, settle, uids

DRIVER = "test-js-driver-0"
WORKERS = ["test-js-workers-0", "test-js-workers-1", "test-js-workers-2"]
ALL = [DRIVER, *WORKERS]
COUNTED = "RestartReplicatedJob"
UNCOUNTED = "RestartReplicatedJobAndIgnoreMaxRestarts"


def with_policy(*rules, max_restarts=1, items=(), features=None, restart_strategy=None, **spec):
    """Return a cluster with a started JobSet, by default of a driver and three workers."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules)}
    if restart_strategy:
        policy["restartStrategy"] = restart_strategy
    items = items or (replicated_job("driver"), replicated_job("workers", 3))
    return begin(*items, features=features, failurePolicy=policy, **spec)


def arrays(cluster, name="workers"):
    """Return both restart arrays of a ReplicatedJob."""
    return restart_arrays(cluster, name)


def own_attempts(cluster):
    """Return the number of own restarts of each Job by its name."""
    return labels_of(cluster, keys.JOB_RESTART_ATTEMPT)


def mark(cluster, name):
    """Annotate a Job as a user does."""
    metadata = {"annotations": {keys.RESTART_ANNOTATION: ""}}
    cluster.jobs[name] = merge(cluster.jobs[name], {"metadata": metadata})


class TestRestartReplicatedJob:
    @pytest.mark.parametrize(("action", "counted"), [(COUNTED, [0, 1, 0]), (UNCOUNTED, None)])
    def test_all_jobs_of_a_replicated_job_are_recreated(self, action, counted):
        """The driver keeps running; the restart counts one at the index of the failed Job."""
        cluster = with_policy(rule(action))
        cluster.ready(*ALL)
        before = uids(cluster)
        cluster.complete(WORKERS[2])
        cluster.fail(WORKERS[1])
        settle(cluster)

        assert recreated(cluster, before) == set(WORKERS)
        assert arrays(cluster) == ([1, 1, 1], counted)
        assert own_attempts(cluster) == {DRIVER: "0", **dict.fromkeys(WORKERS, "1")}
        assert (cluster.status.restarts, cluster.condition("RestartingJobSet")) == (0, None)

    def test_event_names_rule_and_reason(self):
        """Action, ReplicatedJob, rule, reason and Job are in one event."""
        cluster = with_policy(rule(COUNTED, name="gpu"))
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        cluster.reconcile()

        (event,) = cluster.events
        assert event.reason == "RestartReplicatedJobFailurePolicyAction"
        assert event.message == (
            "applying RestartReplicatedJob failure policy action to replicated job 'workers' by "
            f"rule 'gpu' for reason 'PodFailurePolicy' (first failed job: {WORKERS[1]})"
        )

    def test_counted_restarts_stop_at_the_maximum(self):
        """The number of Jobs that each of them recreates does not matter."""
        cluster = with_policy(rule(COUNTED), max_restarts=2)
        for index in (0, 2):
            cluster.fail(WORKERS[index])
            settle(cluster)

        assert cluster.status.terminal_state == ""
        assert arrays(cluster) == ([2, 2, 2], [1, 0, 1])

        cluster.fail(WORKERS[1])
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    def test_restarts_that_ignore_the_maximum_are_unlimited(self):
        """Even if the maximum is zero."""
        cluster = with_policy(rule(UNCOUNTED), max_restarts=0)
        for _ in range(3):
            cluster.fail(WORKERS[0])
            settle(cluster)

        assert (cluster.status.terminal_state, arrays(cluster)) == ("", ([3, 3, 3], None))

    def test_jobs_that_fail_together_are_one_restart(self):
        """One restart covers all failed Jobs of a ReplicatedJob, in one write."""
        cluster = with_policy(rule(COUNTED), max_restarts=5)
        for after, name in enumerate(WORKERS):
            cluster.fail(name, after=3 - after)
        write = cluster.plan().status

        assert write.restarted == {"RestartReplicatedJob": 1}

        settle(cluster)

        assert arrays(cluster) == ([1, 1, 1], [0, 0, 1])

    def test_two_replicated_jobs_are_two_restarts_in_one_pass(self):
        """Each ReplicatedJob with failed Jobs counts one."""
        cluster = with_policy(rule(COUNTED), max_restarts=5)
        cluster.fail(DRIVER)
        cluster.fail(WORKERS[0])
        cluster.carry_out(cluster.plan())

        assert arrays(cluster, "driver") == ([1], [1])
        assert arrays(cluster) == ([1, 1, 1], [1, 0, 0])

    def test_running_jobs_are_deleted_when_the_budget_ends_in_the_same_pass(self):
        """The budget is one, and Jobs of two ReplicatedJobs fail together."""
        cluster = with_policy(rule(COUNTED), max_restarts=1)
        cluster.fail(DRIVER)
        cluster.fail(WORKERS[0])
        settle(cluster)
        settle(cluster)

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert not {WORKERS[1], WORKERS[2]} & cluster.jobs.keys()

    def test_restarts_of_jobs_and_of_the_replicated_job_add_up(self):
        """After a restart of one Job, the number of each index is raised by one."""
        cluster = with_policy(
            rule("RestartJob", ["One"], name="one"), rule(COUNTED), max_restarts=5
        )
        cluster.fail(WORKERS[0], "One")
        settle(cluster)
        cluster.fail(WORKERS[1])
        settle(cluster)

        assert arrays(cluster) == ([2, 1, 1], [1, 1, 0])
        expected = {DRIVER: "0", WORKERS[0]: "2", WORKERS[1]: "1", WORKERS[2]: "1"}
        assert own_attempts(cluster) == expected
        assert cluster.plan().empty

    def test_restart_is_stored_when_another_job_has_an_unknown_action(self):
        """The rule may have been stored with a newer CRD; its Job waits, the others restart."""
        cluster = with_policy(
            rule(COUNTED, ["One"], name="one"), rule("Dance", name="new"), max_restarts=5
        )
        cluster.fail(WORKERS[0], "One")
        cluster.fail(DRIVER)
        plan = cluster.plan()
        cluster.carry_out(plan)

        assert plan.problem == "unknown failure policy action 'Dance'"
        assert arrays(cluster) == ([1, 1, 1], [1, 0, 0])

    def test_no_worker_is_recreated_before_the_last_one_is_gone_when_recreation_blocks(self):
        """The restart strategy is BlockingRecreate."""
        cluster = with_policy(rule(COUNTED), restart_strategy="BlockingRecreate")
        cluster.fail(WORKERS[0])
        cluster.reconcile()
        cluster.collect(WORKERS[0], WORKERS[1])
        cluster.reconcile()

        assert sorted(cluster.jobs) == [DRIVER, WORKERS[2]]


class TestFailJob:
    def test_other_jobs_continue(self):
        """Nothing is restarted or counted; the JobSet fails once all other Jobs have ended."""
        cluster = with_policy(rule("FailJob", name="optional"))
        before = uids(cluster)
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        settle(cluster)

        assert (recreated(cluster, before), cluster.status.terminal_state) == (set(), "")
        assert cluster.counters()["workers"] == {"failed": 1}
        assert arrays(cluster) == (None, None)

        cluster.complete(DRIVER, WORKERS[0])
        cluster.reconcile()

        assert cluster.status.terminal_state == ""

        cluster.complete(WORKERS[2])
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobFailurePolicyAction")
        assert cluster.status.conditions[0].message == (
            "jobset cannot complete: 1 job stays failed by failure policy action FailJob by rule "
            f"'optional' for reason 'PodFailurePolicy' (first failed job: {WORKERS[1]})"
        )

    def test_job_that_stays_failed_is_reported(self):
        """An event about the Job names rule and reason, until the JobSet has finished."""
        cluster = with_policy(rule("FailJob", name="optional"))
        cluster.fail(WORKERS[1], "PodFailurePolicy")
        (notice,) = cluster.plan().notices

        assert (notice.job, notice.reason) == (WORKERS[1], "FailJobFailurePolicyAction")
        assert "by rule 'optional' for reason 'PodFailurePolicy'" in notice.message

        cluster.complete(DRIVER, WORKERS[0], WORKERS[2])
        cluster.reconcile()

        assert cluster.plan().notices == ()

    @pytest.mark.parametrize(
        ("operator", "targets", "complete", "end"),
        [
            pytest.param("All", ["driver"], [DRIVER], "Completed", id="not a target"),
            pytest.param("All", ["workers"], WORKERS[:1], "", id="a target may still run"),
            pytest.param("All", ["workers"], WORKERS[::2], "Failed", id="others need not end"),
            pytest.param("Any", ["workers"], WORKERS[:1], "Completed", id="one success is enough"),
            pytest.param("Any", ["workers"], [DRIVER], "", id="no success yet"),
        ],
    )
    def test_jobset_ends_by_its_success_policy(self, operator, targets, complete, end):
        """Only the targets of the policy count."""
        policy = {"operator": operator, "targetReplicatedJobs": targets}
        cluster = with_policy(rule("FailJob"), successPolicy=policy)
        cluster.fail(WORKERS[1])
        cluster.complete(*complete)
        cluster.reconcile()

        assert cluster.status.terminal_state == end

    @pytest.mark.parametrize("operator", ["All", "Any"])
    def test_jobset_fails_when_all_jobs_stay_failed(self, operator):
        """With either operator."""
        cluster = with_policy(rule("FailJob"), successPolicy={"operator": operator})
        for name in ALL:
            cluster.fail(name)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobFailurePolicyAction")

    def test_failures_that_the_rule_does_not_cover_are_decided_as_usual(self):
        """The order of rules and the oldest failure decide."""
        cluster = with_policy(
            rule("FailJob", ["Optional"], name="optional"),
            rule("RestartJob", targets=["driver"], name="late"),
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

    def test_earlier_rule_wins(self):
        """FailJob covers only Jobs to which no earlier rule applies."""
        cluster = with_policy(rule("RestartJob", reasons=["Again"]), rule("FailJob"))
        cluster.fail(WORKERS[0], "Again")
        cluster.fail(WORKERS[1], "Other")
        before = uids(cluster)
        settle(cluster)

        assert recreated(cluster, before) == {WORKERS[0]}

    @pytest.mark.parametrize(
        ("action", "expected"), [(COUNTED, set(WORKERS)), ("RestartJobSet", set(ALL))]
    )
    def test_restart_of_all_includes_the_failed_job(self, action, expected):
        """All Jobs of a restarted ReplicatedJob or JobSet start over."""
        cluster = with_policy(rule("FailJob", reasons=["Optional"]), rule(action))
        before = uids(cluster)
        cluster.fail(WORKERS[0], "Optional")
        cluster.reconcile()
        cluster.fail(WORKERS[1])
        settle(cluster)

        assert recreated(cluster, before) == expected

    def test_restart_ends_without_the_failed_job(self):
        """The condition of a restart ends when all other Jobs are ready."""
        cluster = with_policy(rule("FailJob", reasons=["Optional"]), rule("RestartJobSet"))
        cluster.fail(WORKERS[0])
        settle(cluster)
        cluster.fail(WORKERS[0], "Optional")
        cluster.ready(DRIVER, WORKERS[1], WORKERS[2])
        cluster.reconcile()

        assert cluster.condition("RestartingJobSet") == ("False", "JobsReady")

    def test_failed_job_does_not_stop_suspension_or_startup(self):
        """Missing Jobs are created, Jobs are suspended, and a start in order continues."""
        order = {"startupPolicyOrder": "InOrder"}
        cluster = with_policy(rule("FailJob"), startupPolicy=order)
        cluster.fail(DRIVER)
        cluster.reconcile()

        assert sorted(cluster.jobs) == ALL

        del cluster.jobs[WORKERS[0]]
        cluster.change_spec(suspend=True)
        cluster.reconcile()

        stopped = {name for name, job in cluster.jobs.items() if job["spec"]["suspend"] is True}
        assert stopped == set(WORKERS)

    def test_jobset_fails_when_only_jobs_that_can_never_start_are_left(self):
        """They depend, directly or not, on the completion of the failed Job."""
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

    def test_plan_is_the_same_for_any_order_of_jobs(self):
        """The cache returns Jobs in no particular order."""
        cluster = with_policy(rule("FailJob"))
        for name in (WORKERS[2], WORKERS[0]):
            cluster.fail(name)
        observed = cluster.observe()
        reversed_ = attrs.evolve(observed, jobs=observed.jobs[::-1])
        plans = [plan_jobs(each, JobsMemory(), cluster.now) for each in (observed, reversed_)]

        assert plans[0] == plans[1]


class TestRestartAnnotation:
    STATES: ClassVar = {
        "running": lambda cluster: cluster.ready(WORKERS[1]),
        "complete": lambda cluster: cluster.complete(WORKERS[1]),
        "failed": lambda cluster: cluster.fail(WORKERS[1]),
    }

    @pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
    @pytest.mark.parametrize("state", STATES)
    def test_job_is_recreated(self, state, suspend):
        """In any state and at the same attempt; nothing is counted."""
        cluster = with_policy(rule("FailJobSet"), suspend=suspend)
        before = uids(cluster)
        self.STATES[state](cluster)
        mark(cluster, WORKERS[1])
        settle(cluster)

        assert recreated(cluster, before) == {WORKERS[1]}
        assert own_attempts(cluster) == dict.fromkeys(ALL, "0")
        assert keys.RESTART_ANNOTATION not in cluster.jobs[WORKERS[1]]["metadata"]["annotations"]
        assert (cluster.status.restarts, arrays(cluster)) == (0, (None, None))
        (notice,) = cluster.notices
        assert (notice.reason, notice.job) == ("RestartRequested", WORKERS[1])

    def test_annotation_has_no_effect_on_a_finished_jobset(self):
        """Its Jobs are kept."""
        cluster = with_policy()
        cluster.complete(*ALL)
        cluster.reconcile()
        mark(cluster, DRIVER)

        assert cluster.plan().empty

    def test_outdated_job_is_deleted_without_the_event(self):
        """A Job of an earlier attempt is deleted in any case."""
        cluster = with_policy()
        cluster.fail(DRIVER)
        cluster.carry_out(cluster.plan())
        mark(cluster, DRIVER)
        settle(cluster)

        assert (cluster.status.restarts, cluster.notices) == (1, [])

    def test_annotation_of_a_template_is_not_inherited(self):
        """Its Jobs would be restarted for ever."""
        metadata = {"annotations": {keys.RESTART_ANNOTATION: "", "kept": "1"}}
        cluster = with_policy(items=[replicated_job("driver", metadata=metadata)])

        annotations = cluster.jobs[DRIVER]["metadata"]["annotations"]
        assert (keys.RESTART_ANNOTATION in annotations, annotations["kept"]) == (False, "1")
        assert cluster.plan().empty


class TestJobsWithoutOwnAttempts:
    """Jobs that were created while the feature gate RestartJob was off."""

    def started(self, *actions, max_restarts=1):
        """Return a cluster with such Jobs; the feature gate is on now."""
        rules = [rule(action, name=f"r{number}") for number, action in enumerate(actions)]
        off = Features(restart_job=False)
        cluster = with_policy(*rules, max_restarts=max_restarts, features=off)
        assert set(own_attempts(cluster).values()) == {None}
        cluster.features = Features()
        cluster.reconcile()
        return cluster

    def test_jobs_are_current(self):
        """Enabling the feature gate recreates nothing."""
        cluster = self.started("RestartJob")
        before = uids(cluster)
        settle(cluster)

        assert uids(cluster) == before

    @pytest.mark.parametrize(
        ("action", "expected", "counted"),
        [
            ("RestartJob", {WORKERS[1]}, [0, 1, 0]),
            ("RestartJobAndIgnoreMaxRestarts", {WORKERS[1]}, [0, 1, 0]),
            (COUNTED, set(WORKERS), [1, 1, 1]),
        ],
    )
    def test_failed_job_is_recreated_once(self, action, expected, counted):
        """With its siblings if the action covers them; the restart is counted once."""
        cluster = self.started(action, max_restarts=5)
        before = uids(cluster)
        cluster.fail(WORKERS[1])
        settle(cluster)

        assert recreated(cluster, before) == expected
        assert cluster.counters()["workers"]["jobRestarts"] == counted
        assert cluster.condition("Failed") is None
