"""Lives of JobSets: each test plays the Job controller for the plan of the jobs reconciler."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.features import Features
from support.jobsets import ModelCluster, jobset_json, replicated_job
from support.model_kit import (
    begin,
    labels_of,
    recreated,
    restart_arrays,
    rule,
    settle,
    suspended,
    uids,
)

A = "test-js-replicated-job-a-0"
B = ["test-js-replicated-job-b-0", "test-js-replicated-job-b-1", "test-js-replicated-job-b-2"]
ALL = [A, *B]
NO_NUMBERS = Features(execution_attempts=False)
GATE_OFF = Features(restart_job=False, elastic_jobset=False, in_place_restart=False)


def with_policy(*rules, max_restarts=1, features=None, **policy):
    """Return a cluster with a started JobSet that has a failure policy."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules), **policy}
    return begin(features=features, failurePolicy=policy)


def restarts(cluster):
    """Return both restart counters."""
    return cluster.status.restarts, cluster.status.restarts_count_towards_max


def active(cluster):
    """Return True if none of Failed, Completed and Suspended is True."""
    return all(
        (cluster.condition(kind) or ("False", ""))[0] != "True"
        for kind in ("Failed", "Completed", "Suspended")
    )


@pytest.fixture
def started():
    """Return a cluster with the standard JobSet and its four Jobs."""
    return begin()


class TestBasics:
    def test_new_jobset_gets_every_job_and_the_service(self, started):
        """All Jobs and one headless Service."""
        assert sorted(started.jobs) == ALL
        assert list(started.services) == ["test-js"]

    def test_jobset_completes_when_all_jobs_are_complete(self, started):
        """Condition, terminal state, counters and event say so."""
        started.complete(*ALL)
        started.reconcile()

        assert started.condition("Completed") == ("True", "AllJobsCompleted")
        assert started.status.terminal_state == "Completed"
        assert started.counters() == {
            "replicated-job-b": {"succeeded": 3},
            "replicated-job-a": {"succeeded": 1},
        }
        assert started.reasons() == ["AllJobsCompleted"]

    def test_counters_are_stored_in_descending_order_of_names(self, started):
        """Users of JobSet know this order of the stored list."""
        stored = started.object["status"]["replicatedJobsStatus"]

        assert [item["name"] for item in stored] == ["replicated-job-b", "replicated-job-a"]
        assert started.object["status"]["restarts"] == 0

    def test_jobset_fails_when_a_job_fails_without_a_policy(self, started):
        """The first failed Job ends the JobSet and is named."""
        started.fail(B[1])
        started.reconcile()

        assert started.condition("Failed") == ("True", "FailedJobs")
        assert started.status.terminal_state == "Failed"
        message = f"jobset failed due to one or more job failures (first failed job: {B[1]})"
        assert started.status.conditions[0].message == message
        assert started.events[0] == p.EmitEvent("Warning", "FailedJobs", message)
        assert started.reasons() == ["FailedJobs", "FailurePolicyApplied"]

    def test_deleted_service_is_recreated(self, started):
        """A user may delete it by mistake."""
        started.services.clear()
        started.reconcile()

        assert list(started.services) == ["test-js"]

    def test_existing_service_is_used(self):
        """A Service of this name is not changed, even if another client created it."""
        cluster = ModelCluster(jobset_json())
        cluster.services["test-js"] = {"foreign": True}
        cluster.reconcile()

        assert cluster.services == {"test-js": {"foreign": True}}

    def test_deleted_job_is_recreated_without_a_restart(self, started):
        """A Job that a user deletes is recreated at the same attempt."""
        del started.jobs[B[0]]
        started.reconcile()

        assert sorted(started.jobs) == ALL
        assert restarts(started) == (0, 0)

    def test_jobset_without_replicas_stays_active(self):
        """No Job can succeed."""
        assert active(begin(replicated_job("a", 0)))

    def test_job_with_an_invalid_label_does_not_block_the_others(self, started):
        """A Job with an unreadable attempt is left alone and reported."""
        started.jobs[B[2]]["metadata"]["labels"][keys.RESTART_ATTEMPT] = "x"
        started.complete(A, *B[:2])
        plan = started.reconcile()

        assert [notice.reason for notice in plan.notices] == [keys.INVALID_JOB_REASON]
        assert B[2] in plan.notices[0].message
        assert B[2] in started.jobs
        assert started.counters() == {
            "replicated-job-b": {"succeeded": 2},
            "replicated-job-a": {"succeeded": 1},
        }

    def test_jobset_of_another_controller_is_left_alone(self):
        """It gets no Jobs, and its status stays as it is."""
        status = {"restarts": 1, "replicatedJobsStatus": [{"name": "x", "ready": 7}]}
        cluster = begin(managedBy="example.com/other", status=status)

        assert (cluster.jobs, cluster.object["status"]) == ({}, status)

    def test_terminating_jobset_is_left_alone(self, started):
        """The garbage collector deletes its children."""
        started.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        started.jobs.clear()

        plan = started.plan()
        assert (plan.empty, plan.notices) == (True, ())

    def test_jobset_without_optional_policies_completes(self):
        """Fields that admission sets may be removed later."""
        spec = jobset_json()
        for name in ("network", "successPolicy", "startupPolicy"):
            del spec["spec"][name]
        cluster = ModelCluster(spec)
        cluster.reconcile()
        cluster.complete(*ALL)
        cluster.reconcile()

        assert (cluster.services, cluster.status.terminal_state) == ({}, "Completed")


class TestSuccessPolicy:
    @pytest.mark.parametrize(
        ("operator", "targets", "done", "expected"),
        [
            pytest.param("All", [], [A], False, id="all, no targets: one part done"),
            pytest.param("All", [], ALL, True, id="all, no targets: everything done"),
            pytest.param("All", ["replicated-job-b"], [A], False, id="all, target b: a done"),
            pytest.param("All", ["replicated-job-b"], [A, B[0]], False, id="all: a third of b"),
            pytest.param("All", ["replicated-job-b"], B, True, id="all, target b: b done"),
            pytest.param("Any", ["replicated-job-b"], [A], False, id="any, target b: a done"),
            pytest.param("Any", ["replicated-job-b"], [B[1]], True, id="any, target b: one of b"),
            pytest.param("Any", [], [B[2]], True, id="any, no target: any one"),
        ],
    )
    def test_jobset_completes_by_operator_and_targets(self, operator, targets, done, expected):
        """Jobs of other ReplicatedJobs do not count."""
        cluster = begin(successPolicy={"operator": operator, "targetReplicatedJobs": targets})
        cluster.complete(*done)
        cluster.reconcile()

        assert (cluster.status.terminal_state == "Completed") is expected

    def test_active_jobs_of_a_completed_jobset_are_deleted(self):
        """Finished Jobs are kept."""
        cluster = begin(successPolicy={"operator": "Any"})
        cluster.complete(B[0])
        settle(cluster)

        assert list(cluster.jobs) == [B[0]]

    def test_active_jobs_of_a_failed_jobset_are_deleted(self, started):
        """The failed Job is kept."""
        started.fail(B[0])
        settle(started)

        assert list(started.jobs) == [B[0]]

    def test_jobset_fails_when_one_job_fails_and_another_completes(self):
        """Failure wins if one pass sees both."""
        cluster = begin(successPolicy={"operator": "Any"})
        cluster.complete(B[0])
        cluster.fail(B[1])
        cluster.reconcile()

        assert (cluster.status.terminal_state, cluster.condition("Completed")) == ("Failed", None)


class TestFailurePolicy:
    def test_default_policy_restarts_up_to_the_maximum(self):
        """All Jobs are recreated once; the second failure ends the JobSet."""
        cluster = with_policy()
        before = uids(cluster)
        cluster.fail(B[0])
        settle(cluster)

        assert (restarts(cluster), active(cluster)) == ((1, 1), True)
        assert recreated(cluster, before) == cluster.jobs.keys() == set(ALL)
        assert cluster.reasons() == [
            "DefaultFailurePolicy",
            "RestartJobSetFailurePolicyAction",
            "FailurePolicyApplied",
        ]
        assert labels_of(cluster, keys.RESTART_ATTEMPT) == dict.fromkeys(ALL, "1")

        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert cluster.condition("RestartingJobSet") == ("False", "JobSetFailed")
        assert restarts(cluster) == (1, 1)

    FAIL = "FailJobSet"
    RESTART = "RestartJobSet"
    IGNORE = "RestartJobSetAndIgnoreMaxRestarts"
    POD = "PodFailurePolicy"
    FAILED, COUNTED = (True, 0, 0), (False, 1, 1)
    # name: rules; the failed Job with reason and message; expected (failed, restarts, counted)
    CASES: ClassVar = {
        "fail, no reasons": ([rule(FAIL)], (A, POD, ""), FAILED),
        "fail, other reason": ([rule(FAIL, ["BackoffLimitExceeded"])], (A, POD, ""), COUNTED),
        "fail, pattern not found": (
            [rule(FAIL, patterns=["some message"])],
            (A, POD, "some critical error with a message"),
            COUNTED,
        ),
        "fail, reason matches but not the pattern": (
            [rule(FAIL, [POD], ["some message"])],
            (A, POD, "some critical error with a message"),
            COUNTED,
        ),
        "fail, reason and pattern match": (
            [rule(FAIL, [POD], ["some message"])],
            (A, POD, "some message"),
            FAILED,
        ),
        "fail, pattern inside a longer message": (
            [rule(FAIL, patterns=["critical error"])],
            (A, POD, "this is some message with critical error"),
            FAILED,
        ),
        "fail, one of two": ([rule(FAIL, patterns=["nothing", "^a.c$"])], (A, POD, "abc"), FAILED),
        "fail, invalid pattern": ([rule(FAIL, patterns=["(", "xyz"])], (A, POD, "("), COUNTED),
        "restart": ([rule(RESTART)], (A, POD, ""), COUNTED),
        "restart uncounted": ([rule(IGNORE)], (A, POD, ""), (False, 1, 0)),
        "fail, target matches": (
            [rule(FAIL, ["FailedIndexes"], targets=["replicated-job-b"])],
            (B[0], "FailedIndexes", ""),
            FAILED,
        ),
        "fail, other target": (
            [rule(FAIL, ["FailedIndexes"], targets=["replicated-job-a"])],
            (B[0], "FailedIndexes", ""),
            COUNTED,
        ),
        "fail before restart": ([rule(FAIL), rule(RESTART)], (A, "X", ""), FAILED),
        "restart before fail": ([rule(RESTART), rule(FAIL)], (A, "X", ""), COUNTED),
    }

    @pytest.mark.parametrize("features", [Features(), GATE_OFF], ids=["gates on", "gates off"])
    @pytest.mark.parametrize("case", CASES)
    def test_first_rule_that_applies_decides(self, case, features):
        """Without one, all Jobs are restarted and the restart counts."""
        rules, (job, reason, message), expected = self.CASES[case]
        cluster = with_policy(*rules, features=features)
        cluster.fail(job, reason, message)
        cluster.reconcile()

        failed = cluster.status.terminal_state == "Failed"
        assert (failed, *restarts(cluster)) == expected
        assert all("jobRestarts" not in i for i in cluster.object["status"]["replicatedJobsStatus"])

    def test_condition_and_event_name_the_action_that_failed_the_jobset(self):
        """FailJobSet has its own reason and message."""
        cluster = with_policy(rule("FailJobSet"))
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobSetFailurePolicyAction")
        message = f"applying FailJobSet failure policy action (first failed job: {A})"
        assert cluster.events[0].message == message

    def test_restarting_condition_names_the_rule_until_all_jobs_are_ready(self):
        """It becomes False with a reason of its own."""
        cluster = with_policy(rule("RestartJobSet", name="Rule1"))
        cluster.fail(B[0])
        settle(cluster)

        assert cluster.condition("RestartingJobSet") == ("True", "FailurePolicy_Rule1")

        cluster.ready(*ALL)
        cluster.reconcile()

        assert cluster.condition("RestartingJobSet") == ("False", "JobsReady")
        assert cluster.reasons() == [
            "FailurePolicy_Rule1",
            "RestartJobSetFailurePolicyAction",
            "FailurePolicyApplied",
            "JobsReady",
        ]

    def test_several_failures_of_one_attempt_are_one_restart(self):
        """The restart covers all Jobs that failed."""
        cluster = with_policy(max_restarts=5)
        for name in ALL:
            cluster.fail(name)
        settle(cluster)

        assert restarts(cluster) == (1, 1)

    def test_event_names_the_job_that_failed_first(self):
        """Among the Jobs that the rule applies to."""
        cluster = with_policy(max_restarts=5)
        cluster.fail(A, after=9)
        cluster.fail(B[2], after=3)
        cluster.fail(B[1], after=4)
        cluster.reconcile()

        assert cluster.events[0].message.endswith(f"(first failed job: {B[2]})")

    def test_earlier_rule_wins_over_earlier_failure(self):
        """Even if its Job failed later."""
        cluster = with_policy(
            rule("FailJobSet", targets=["replicated-job-a"]), rule("RestartJobSet")
        )
        cluster.fail(B[0], after=1)
        cluster.fail(A, after=5)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobSetFailurePolicyAction")
        assert cluster.events[0].message.endswith(f"(first failed job: {A})")

    def test_job_without_its_label_matches_no_rule(self):
        """The label names the ReplicatedJob; without it the default policy applies."""
        cluster = with_policy(rule("FailJobSet"), features=GATE_OFF)
        del cluster.jobs[A]["metadata"]["labels"][keys.REPLICATED_JOB_NAME]
        cluster.fail(A)
        cluster.reconcile()

        assert restarts(cluster) == (1, 1)

    @pytest.mark.parametrize(
        ("first", "second", "left", "state", "counters"),
        [
            pytest.param(IGNORE, "FailJobSet", 1, "", (1, 0, None), id="earlier restart"),
            pytest.param(IGNORE, "RestartJobSet", 0, "", (1, 0, None), id="no budget is needed"),
            pytest.param(IGNORE, None, 0, "", (1, 0, None), id="the default never comes first"),
            pytest.param(IGNORE, "RestartJob", 0, "", (1, 0, None), id="all include one"),
            pytest.param("FailJobSet", IGNORE, 1, "Failed", (0, 0, None), id="earlier end"),
            pytest.param("RestartJob", "FailJobSet", 9, "Failed", (0, 0, [1, 0, 0]), id="job, end"),
            pytest.param("RestartJob", "RestartJobSet", 9, "", (1, 1, [1, 0, 0]), id="job, all"),
            pytest.param("RestartJob", None, 9, "", (1, 1, [1, 0, 0]), id="job, default"),
            pytest.param("RestartJob", None, 1, "Failed", (0, 0, [1, 0, 0]), id="budget of both"),
            pytest.param("RestartJob", "RestartReplicatedJob", 9, "", (0, 0, [2, 1, 1]), id="job, rj"),
            pytest.param("RestartReplicatedJob", "RestartJob", 9, "", (0, 0, [1, 1, 1]), id="rj, job"),
            pytest.param("FailJob", "RestartJobSet", 9, "", (1, 1, None), id="all include failed"),
            pytest.param("FailJob", "RestartJob", 9, "", (0, 0, [0, 1, 0]), id="failed stays"),
        ],
    )  # fmt: skip
    def test_jobs_are_decided_in_the_order_of_rules_when_several_fail(
        self, first, second, left, state, counters
    ):
        """The first restart of all, or the end, covers the failures that come after it."""
        rules = [rule(first, ["X"], name="one")]
        rules += [rule(second, ["Y"], name="two")] if second else []
        cluster = with_policy(*rules, max_restarts=left)
        cluster.fail(B[0], "X", after=2)
        cluster.fail(B[1], "Y", after=1)
        cluster.reconcile()

        assert cluster.status.terminal_state == state
        assert (*restarts(cluster), restart_arrays(cluster, "replicated-job-b")[0]) == counters

    def test_rules_without_names_get_default_names(self):
        """The same names that admission would set."""
        cluster = with_policy({"action": "FailJobSet", "onJobFailureReasons": ["Other"]},
                              {"action": "RestartJobSet"})  # fmt: skip
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("RestartingJobSet") == ("True", "FailurePolicy_failurePolicyRule1")

    def test_unknown_action_is_reported(self):
        """The controller does not guess what it means."""
        cluster = with_policy(rule("Dance"))
        cluster.fail(A)

        assert cluster.plan().problem == "unknown failure policy action 'Dance'"


class TestRestartStrategies:
    def with_one_old_job(self, strategy):
        """Return a cluster during a restart, when three of four old Jobs are gone."""
        cluster = with_policy(restartStrategy=strategy)
        cluster.fail(B[0])
        cluster.reconcile()
        cluster.collect(A, B[0], B[1])
        cluster.reconcile()
        return cluster

    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [
            ("Recreate", {A: "1", B[0]: "1", B[1]: "1", B[2]: "0"}),
            ("InPlaceRestart", {A: "1", B[0]: "1", B[1]: "1", B[2]: "0"}),
            ("BlockingRecreate", {B[2]: "0"}),
        ],
    )
    def test_job_is_recreated_once_its_predecessor_is_gone(self, strategy, expected):
        """With BlockingRecreate all predecessors have to be gone."""
        cluster = self.with_one_old_job(strategy)

        assert labels_of(cluster, keys.RESTART_ATTEMPT) == expected

        cluster.collect()
        cluster.reconcile()

        assert labels_of(cluster, keys.RESTART_ATTEMPT) == dict.fromkeys(ALL, "1")


class TestRestartJob:
    @pytest.mark.parametrize(
        ("action", "counted"),
        [("RestartJob", [0, 1, 0]), ("RestartJobAndIgnoreMaxRestarts", None)],
    )
    def test_only_the_failed_job_is_recreated(self, action, counted):
        """Other Jobs keep running; the restart is counted for the failed Job."""
        cluster = with_policy(rule(action))
        before = uids(cluster)
        cluster.fail(B[1])
        settle(cluster)

        assert restarts(cluster) == (0, 0)
        assert restart_arrays(cluster, "replicated-job-b") == ([0, 1, 0], counted)
        assert recreated(cluster, before) == {B[1]}
        assert labels_of(cluster, keys.JOB_RESTART_ATTEMPT)[B[1]] == "1"
        assert cluster.reasons() == [f"{action}FailurePolicyAction", "FailurePolicyApplied"]

    def test_several_failures_are_counted_in_one_write(self):
        """Each failed Job counts one."""
        cluster = with_policy(rule("RestartJob"), max_restarts=5)
        cluster.fail(B[0])
        cluster.fail(B[2])
        cluster.fail(A)
        writes = cluster.status_writes
        cluster.carry_out(cluster.plan())

        assert cluster.status_writes == writes + 1
        assert restart_arrays(cluster, "replicated-job-b") == ([1, 0, 1], [1, 0, 1])
        assert restart_arrays(cluster, "replicated-job-a") == ([1], [1])

    def test_failure_past_the_maximum_ends_the_jobset(self):
        """Earlier failures are counted first, as if each had been seen in its own pass."""
        cluster = with_policy(rule("RestartJob"), max_restarts=1)
        cluster.fail(B[0], after=1)
        cluster.fail(B[2], after=2)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert restart_arrays(cluster, "replicated-job-b") == ([1, 0, 0], [1, 0, 0])
        assert cluster.status.conditions[0].message.endswith(f"(first failed job: {B[2]})")

    def test_restarts_of_jobs_and_of_jobsets_share_the_maximum(self):
        """One restart of all and one of a single Job use up a maximum of two."""
        cluster = with_policy(
            rule("RestartJob", targets=["replicated-job-b"]), rule("RestartJobSet"), max_restarts=2
        )
        cluster.fail(B[0])
        settle(cluster)
        cluster.fail(A)
        settle(cluster)

        assert active(cluster)

        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    def test_restart_counts_of_jobs_are_kept_after_a_restart_of_all(self):
        """New Jobs carry the number of their index."""
        cluster = with_policy(
            rule("RestartJob", targets=["replicated-job-b"]), rule("RestartJobSet"), max_restarts=9
        )
        cluster.fail(B[1])
        settle(cluster)
        cluster.fail(A)
        settle(cluster)

        assert restart_arrays(cluster, "replicated-job-b") == ([0, 1, 0], [0, 1, 0])
        assert labels_of(cluster, keys.JOB_RESTART_ATTEMPT)[B[1]] == "1"
        assert restarts(cluster) == (1, 1)

    def test_blocking_recreate_applies_to_restarts_of_single_jobs(self):
        """A single terminating Job blocks every creation."""
        cluster = with_policy(rule("RestartJob"), restartStrategy="BlockingRecreate")
        cluster.fail(B[1])
        cluster.reconcile()
        del cluster.jobs[A]
        cluster.reconcile()

        assert A not in cluster.jobs

    @pytest.mark.parametrize("action", ["RestartJob", "RestartReplicatedJob"])
    def test_action_is_reported_when_its_feature_gate_is_disabled(self, action):
        """The restart could not be counted; no label is set either."""
        cluster = with_policy(rule(action), features=GATE_OFF)
        cluster.fail(A)

        assert "feature gate RestartJob" in cluster.plan().problem
        assert keys.JOB_RESTART_ATTEMPT not in cluster.jobs[A]["metadata"]["labels"]

    def test_job_restarts_are_reported_when_there_are_too_many_replicas(self):
        """The API server refuses such a status, so that its write would be repeated for ever."""
        policy = {"maxRestarts": 1, "rules": [rule("RestartJob")]}
        cluster = begin(replicated_job("a", 1025), failurePolicy=policy)
        cluster.fail("test-js-a-3")

        assert "'a' has 1025" in cluster.plan().problem
        assert "jobRestarts" not in str(cluster.plan().status.patch)

    def test_job_created_without_the_feature_gate_is_current(self):
        """The label of its own attempt is missing."""
        cluster = with_policy(rule("RestartJob"), features=GATE_OFF)
        cluster.features = Features()

        assert cluster.plan().empty


class TestSuspension:
    def test_jobs_of_a_suspended_jobset_are_created_suspended(self):
        """The condition says so."""
        cluster = begin(suspend=True)

        assert suspended(cluster) == dict.fromkeys(ALL, True)
        assert cluster.condition("Suspended") == ("True", "SuspendedJobs")
        assert cluster.counters() == {
            "replicated-job-b": {"suspended": 3},
            "replicated-job-a": {"suspended": 1},
        }

    def test_running_jobs_are_suspended(self, started):
        """The condition says so."""
        started.change_spec(suspend=True)
        started.reconcile()

        assert suspended(started) == dict.fromkeys(ALL, True)
        assert started.condition("Suspended") == ("True", "SuspendedJobs")

    def test_resumed_jobs_get_the_changed_template(self):
        """Labels, annotations, node selector and tolerations that changed during the suspension."""
        cluster = begin(suspend=True)
        for name in ALL:
            cluster.set_status(name, startTime="2026-01-01T00:00:00Z")
        for item in cluster.object["spec"]["replicatedJobs"]:
            pod = item["template"]["spec"]["template"]
            pod["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "2"}}
            pod["spec"]["nodeSelector"] = {"zone": "z"}
            pod["spec"]["tolerations"] = [{"key": "t", "tolerationSeconds": 5}]
        cluster.reconcile()

        assert suspended(cluster) == dict.fromkeys(ALL, True)

        cluster.change_spec(suspend=False)
        cluster.reconcile()

        for job in cluster.jobs.values():
            pod = job["spec"]["template"]
            assert job["spec"]["suspend"] is False
            assert "startTime" not in job["status"]
            labels = pod["metadata"]["labels"]
            assert (labels["l"], labels[keys.JOBSET_NAME]) == ("1", "test-js")
            assert pod["metadata"]["annotations"]["a"] == "2"
            assert pod["spec"]["nodeSelector"] == {"zone": "z"}
            assert pod["spec"]["tolerations"] == [{"key": "t", "tolerationSeconds": 5}]
        assert cluster.condition("Suspended") == ("False", "ResumeJobs")

        cluster.complete(*ALL)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Completed"

    def test_second_resume_adds_no_toleration_twice(self):
        """Tolerations are compared by value."""
        template = replicated_job("a", pod_spec={"tolerations": [{"key": "t"}]})
        cluster = ModelCluster(jobset_json(template, suspend=True))
        for suspend in (True, False, True, False):
            cluster.change_spec(suspend=suspend)
            cluster.reconcile()

        pod_spec = cluster.jobs["test-js-a-0"]["spec"]["template"]["spec"]
        assert pod_spec["tolerations"] == [{"key": "t"}]

    def test_time_to_live_of_a_job_template_is_dropped(self):
        """A Job that deletes itself before its JobSet ends would be recreated and run again."""
        item = replicated_job("a")
        item["template"]["spec"]["ttlSecondsAfterFinished"] = 0
        cluster = begin(item)

        assert "ttlSecondsAfterFinished" not in cluster.jobs["test-js-a-0"]["spec"]

    def test_fields_of_an_earlier_queue_are_removed_when_resumed(self):
        """Fields that the template no longer has are removed from the Jobs."""
        cluster = ModelCluster(jobset_json(suspend=True), NO_NUMBERS)
        for name in ("one", "two"):
            cluster.reconcile()
            for item in cluster.object["spec"]["replicatedJobs"]:
                pod = item["template"]["spec"]["template"]
                pod["metadata"] = {"labels": {name: "l"}, "annotations": {name: "a"}}
                pod["spec"]["nodeSelector"] = {f"{name}.test/flavor": "x"}
                pod["spec"]["tolerations"] = [{"key": name}]
                pod["spec"]["schedulingGates"] = [{"name": name}]
            cluster.change_spec(suspend=False)
            cluster.reconcile()
            assert set(suspended(cluster).values()) == {False}
            cluster.change_spec(suspend=True)
        fresh = ModelCluster(copy.deepcopy(cluster.object), NO_NUMBERS)
        fresh.object.pop("status")
        fresh.reconcile()

        assert fresh.jobs.keys() == cluster.jobs.keys()
        for name, job in cluster.jobs.items():
            assert job["spec"]["template"] == fresh.jobs[name]["spec"]["template"]

    def test_node_selector_is_removed_when_the_template_has_none(self):
        """A JobSet that is in no queue runs on any node."""
        cluster = begin(replicated_job("a", pod_spec={"nodeSelector": {"z": "1"}}), suspend=True)
        template = cluster.object["spec"]["replicatedJobs"][0]["template"]
        del template["spec"]["template"]["spec"]["nodeSelector"]
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        assert not cluster.jobs["test-js-a-0"]["spec"]["template"]["spec"].get("nodeSelector")

    @pytest.mark.parametrize("record", [None, "", "[]", '{"labels": 1}'])
    def test_nothing_is_removed_when_a_job_has_no_record_of_its_fields(self, record):
        """As a Job of the Go controller; fields of the JobSet's template are copied."""
        cluster = begin(replicated_job("a", pod_spec={"nodeSelector": {"z": "1"}}), suspend=True)
        metadata = cluster.jobs["test-js-a-0"]["metadata"]
        metadata["annotations"] |= {keys.COPIED_FIELDS_ANNOTATION: record}
        if record is None:
            del metadata["annotations"][keys.COPIED_FIELDS_ANNOTATION]
        template = cluster.object["spec"]["replicatedJobs"][0]["template"]
        template["spec"]["template"]["spec"]["nodeSelector"] = {"y": "2"}
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        pod_spec = cluster.jobs["test-js-a-0"]["spec"]["template"]["spec"]
        assert pod_spec["nodeSelector"] == {"z": "1", "y": "2"}

    def test_fields_that_others_add_to_a_template_stay_when_resumed(self):
        """Also if the JobSet's own fields change: those of the Job API, of placement, of policies."""
        cluster = begin(replicated_job("a"), suspend=True, features=NO_NUMBERS)
        template = cluster.jobs["test-js-a-0"]["spec"]["template"]
        template["metadata"]["labels"] |= {
            "controller-uid": "u",
            "job-name": "test-js-a-0",
            "batch.kubernetes.io/controller-uid": "u",
            "batch.kubernetes.io/job-name": "test-js-a-0",
            keys.POD_GROUP_NAME: "g",
            "cost-center": "research",
        }
        template["metadata"]["annotations"]["mesh.test/inject"] = "no"
        template["spec"] |= {
            "nodeSelector": {keys.NAMESPACED_JOB_LABEL: "x", "pool": "p"},
            "tolerations": [{"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists"}, {"key": "p"}],
            "schedulingGates": [{"name": keys.COSCHEDULING_GATE}],
        }
        before = copy.deepcopy(template)
        pod = cluster.object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod |= {"schedulingGates": [{"name": "n"}], "tolerations": [{"key": "t"}]}
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        after = cluster.jobs["test-js-a-0"]["spec"]["template"]
        assert after["metadata"] == before["metadata"]
        assert after["spec"]["nodeSelector"] == before["spec"]["nodeSelector"]
        assert after["spec"]["tolerations"] == [*before["spec"]["tolerations"], {"key": "t"}]
        assert after["spec"]["schedulingGates"] == [{"name": keys.COSCHEDULING_GATE}, {"name": "n"}]

    def test_suspension_whose_status_write_was_refused_is_recorded_when_it_ends(self, started):
        """It is recorded if it had suspended all Jobs."""
        for job in started.jobs.values():
            job["spec"]["suspend"] = True
        started.reconcile()
        assert set(suspended(started).values()) == {False}
        assert started.condition("Suspended") == ("False", "ResumeJobs")

    def test_single_job_that_a_user_suspends_is_resumed(self, started):
        """The JobSet was not suspended, so it has no condition."""
        next(iter(started.jobs.values()))["spec"]["suspend"] = True
        started.reconcile()
        assert set(suspended(started).values()) == {False}
        assert started.condition("Suspended") is None

    def test_suspension_ends_a_restart(self):
        """The restarting condition becomes False with a reason of its own."""
        cluster = with_policy()
        cluster.fail(A)
        cluster.reconcile()
        cluster.change_spec(suspend=True)
        settle(cluster)

        assert cluster.condition("RestartingJobSet") == ("False", "JobSetSuspended")

    def test_policies_apply_to_a_suspended_jobset(self):
        """A Job that fails during the suspension counts."""
        cluster = begin(suspend=True)
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Failed"


class TestStartupPolicy:
    def in_order(self, *jobs, **spec):
        """Return a cluster with a JobSet that starts in order."""
        return begin(*jobs, startupPolicy={"startupPolicyOrder": "InOrder"}, **spec)

    @pytest.mark.parametrize("order", ["InOrder", "AnyOrder"])
    def test_all_jobs_are_created_when_suspended(self, order):
        """The order has no effect before the JobSet is resumed."""
        cluster = begin(suspend=True, startupPolicy={"startupPolicyOrder": order})

        assert suspended(cluster) == dict.fromkeys(ALL, True)
        assert cluster.condition("StartupPolicyInProgress") is None

    def test_jobs_are_resumed_in_order(self):
        """Suspended stays True until the last Job is resumed."""
        cluster = self.in_order(suspend=True)
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        assert cluster.counters() == {"replicated-job-a": {}, "replicated-job-b": {"suspended": 3}}
        assert cluster.condition("Suspended")[0] == "True"

        cluster.ready(A)
        cluster.reconcile()

        assert cluster.counters() == {
            "replicated-job-a": {"ready": 1, "active": 1},
            "replicated-job-b": {},
        }
        assert cluster.condition("StartupPolicyInProgress")[0] == "True"

        cluster.ready(*B)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyCompleted")[0] == "True"
        assert cluster.condition("StartupPolicyInProgress")[0] == "False"
        assert cluster.condition("Suspended")[0] == "False"

    def test_jobs_are_created_in_order(self):
        """Jobs of the next ReplicatedJob are created once all Jobs before them are ready."""
        cluster = self.in_order()

        assert list(cluster.jobs) == [A]
        in_progress = ("True", "InOrderStartupPolicyInProgress")
        assert cluster.condition("StartupPolicyInProgress") == in_progress

        cluster.ready(A)
        cluster.reconcile()

        assert sorted(cluster.jobs) == ALL

        cluster.set_status(B[0], active=1)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyInProgress")[0] == "True"

        cluster.ready(*B)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyCompleted")[0] == "True"
        assert cluster.counters() == {
            "replicated-job-a": {"ready": 1, "active": 1},
            "replicated-job-b": {"ready": 3, "active": 3},
        }

    def test_jobs_are_recreated_in_order(self):
        """A restart starts over."""
        cluster = self.in_order(failurePolicy={"maxRestarts": 1})
        cluster.ready(A)
        cluster.reconcile()
        cluster.ready(*B)
        cluster.reconcile()
        cluster.complete(A)
        cluster.fail(B[0])
        settle(cluster)

        assert list(cluster.jobs) == [A]

        cluster.ready(A)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyInProgress")[0] == "True"

        cluster.ready(*B)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyCompleted")[0] == "True"
        assert labels_of(cluster, keys.RESTART_ATTEMPT) == dict.fromkeys(ALL, "1")

    def test_replicated_job_without_replicas_does_not_block_the_next(self):
        """It counts as started."""
        cluster = self.in_order(replicated_job("a", 0), replicated_job("b"))

        assert list(cluster.jobs) == ["test-js-b-0"]


class TestDependsOn:
    def test_dependencies_form_a_chain(self):
        """Complete waits for the end, Ready for the start."""
        cluster = begin(
            replicated_job("a"),
            replicated_job("b", depends_on=[("a", "Complete")]),
            replicated_job("c", 3, depends_on=[("b", "Ready")]),
        )
        counts = []
        for step in (None, ("ready", "a"), ("complete", "a"), ("ready", "b")):
            if step is not None:
                getattr(cluster, step[0])(f"test-js-{step[1]}-0")
            cluster.reconcile()
            counts.append(len(cluster.jobs))

        assert counts == [1, 1, 2, 5]

        cluster.each(cluster.complete)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Completed"

    @pytest.mark.parametrize(
        ("first", "second"), [("Complete", "Complete"), ("Ready", "Complete"), ("Ready", "Ready")]
    )
    def test_dependent_waits_for_all_dependencies(self, first, second):
        """It starts after the second one."""
        steps = {"Complete": "complete", "Ready": "ready"}
        cluster = begin(
            replicated_job("a"),
            replicated_job("b"),
            replicated_job("c", 3, depends_on=[("a", first), ("b", second)]),
        )
        assert len(cluster.jobs) == 2

        getattr(cluster, steps[first])("test-js-a-0")
        cluster.reconcile()
        assert len(cluster.jobs) == 2

        getattr(cluster, steps[second])("test-js-b-0")
        cluster.reconcile()
        assert len(cluster.jobs) == 5

    def test_dependent_of_a_suspended_jobset_is_not_created(self):
        """Once resumed, it waits as usual."""
        dependent = replicated_job("b", 3, depends_on=[("a", "Ready")])
        cluster = begin(replicated_job("a"), dependent, suspend=True)
        assert suspended(cluster) == {"test-js-a-0": True}

        cluster.change_spec(suspend=False)
        cluster.reconcile()
        assert suspended(cluster) == {"test-js-a-0": False}

        cluster.ready("test-js-a-0")
        cluster.reconcile()
        assert list(suspended(cluster).values()) == [False] * 4


class TestTimeToLive:
    @pytest.mark.parametrize(
        ("spec", "after_s", "deleted", "delay_s"),
        [
            pytest.param({"ttlSecondsAfterFinished": 5}, 2, False, 3, id="waits"),
            pytest.param({"ttlSecondsAfterFinished": 5}, 5, True, None, id="is over"),
            pytest.param({}, 86_400_000, False, None, id="kept for ever"),
        ],
    )
    def test_finished_jobset_is_deleted_after_its_time_to_live(
        self, spec, after_s, deleted, delay_s
    ):
        """By UID; before that, the plan asks for a reconcile at that time."""
        cluster = self.completed(**spec)
        cluster.clock += timedelta(seconds=after_s)
        plan = cluster.plan()

        assert plan.empty is not deleted
        assert plan.actions == ((p.DeleteJobSet("test-js", "js-uid"),) if deleted else ())
        assert plan.result.delay == (delay_s and timedelta(seconds=delay_s))

    def completed(self, **spec):
        """Return a cluster whose JobSet has just completed."""
        cluster = begin(**spec)
        cluster.complete(*ALL)
        cluster.reconcile()
        return cluster

    def test_jobset_is_deleted_immediately_when_its_time_to_live_is_zero(self):
        """The pass after its completion deletes it."""
        assert self.completed(ttlSecondsAfterFinished=0).deleted


class TestElastic:
    @pytest.mark.parametrize(
        ("features", "completions", "expected"),
        [
            pytest.param(Features(), 4, (4, 4), id="gate on"),
            pytest.param(GATE_OFF, 4, (2, 2), id="gate off"),
            pytest.param(Features(), 8, (2, 2), id="parallelism and completions differ"),
        ],
    )
    def test_running_job_gets_the_size_of_its_template(self, features, completions, expected):
        """Only with the feature gate, and only if parallelism and completions are equal."""
        cluster = begin(replicated_job("a", parallelism=2), features=features)
        spec = cluster.object["spec"]["replicatedJobs"][0]["template"]["spec"]
        spec.update(parallelism=4, completions=completions)
        cluster.reconcile()
        child = cluster.jobs["test-js-a-0"]["spec"]

        assert (child["parallelism"], child["completions"]) == expected


class TestVolumes:
    POLICIES: ClassVar = [
        {
            "templates": [
                {
                    "metadata": {"name": "cache", "labels": {"l": "1"}, "annotations": {"a": "2"}},
                    "spec": {"accessModes": ["ReadWriteOnce"]},
                }
            ],
            "retentionPolicy": {"whenDeleted": "Delete"},
        },
        {
            "templates": [{"metadata": {"name": "data"}, "spec": {}}],
            "retentionPolicy": {"whenDeleted": "Retain"},
        },
    ]

    @pytest.mark.parametrize("suspend", [False, True])
    def test_claims_are_created_once(self, suspend):
        """Also while suspended; the JobSet owns only claims that are deleted with it."""
        cluster = begin(volumeClaimPolicies=self.POLICIES, suspend=suspend)

        assert sorted(cluster.claims) == ["cache-test-js", "data-test-js"]
        cache = cluster.claims["cache-test-js"]
        assert cache["metadata"]["labels"] == {"l": "1", keys.JOBSET_NAME: "test-js"}
        assert cache["metadata"]["annotations"] == {"a": "2"}
        assert cache["spec"] == {"accessModes": ["ReadWriteOnce"]}
        assert cache["metadata"]["ownerReferences"][0]["uid"] == "js-uid"
        assert "ownerReferences" not in cluster.claims["data-test-js"]["metadata"]

    def test_pod_gets_the_volumes_that_its_containers_mount(self):
        """Init containers count as well."""
        mounts = {"name": "c", "image": "i", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}
        cluster = begin(
            replicated_job("a", pod_spec={"initContainers": [mounts], "volumes": [{"name": "x"}]}),
            replicated_job("b"),
            volumeClaimPolicies=self.POLICIES,
        )
        volumes = {
            name: job["spec"]["template"]["spec"].get("volumes")
            for name, job in cluster.jobs.items()
        }

        claim = {"claimName": "cache-test-js"}
        assert volumes == {
            "test-js-a-0": [{"name": "x"}, {"name": "cache", "persistentVolumeClaim": claim}],
            "test-js-b-0": None,
        }
