"""Whole lives of JobSets: each test plays the Job controller against the planner."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import ClassVar

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, replicated_job

A = "test-js-replicated-job-a-0"
B = ["test-js-replicated-job-b-0", "test-js-replicated-job-b-1", "test-js-replicated-job-b-2"]
ALL = [A, *B]
GATE_OFF = Features(restart_job=False, elastic_jobset=False, in_place_restart=False)


def rule(action, name="rule", reasons=(), patterns=(), targets=()):
    """A failure policy rule as JSON."""
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": list(reasons),
        "onJobFailureMessagePatterns": list(patterns),
        "targetReplicatedJobs": list(targets),
    }


def with_policy(*rules, max_restarts=1, features=None, **policy):
    """A started JobSet with a failure policy."""
    policy = {"maxRestarts": max_restarts, "rules": list(rules), **policy}
    cluster = ModelCluster(jobset_json(failurePolicy=policy), features)
    cluster.reconcile()
    return cluster


def restarts(cluster):
    """Both restart counters."""
    return cluster.status.restarts, cluster.status.restarts_count_towards_max


def active(cluster):
    """Whether none of Failed, Completed and Suspended is True."""
    return all(
        (cluster.condition(kind) or ("False", ""))[0] != "True"
        for kind in ("Failed", "Completed", "Suspended")
    )


def recreate(cluster):
    """Let terminating Jobs go and have them made again."""
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()


@pytest.fixture
def started():
    """The standard JobSet with its four Jobs."""
    cluster = ModelCluster(jobset_json())
    cluster.reconcile()
    return cluster


class TestBasics:
    def test_creates_every_job_and_the_service(self, started):
        """A new JobSet gets all its Jobs and one headless Service."""
        assert sorted(started.jobs) == ALL
        assert list(started.services) == ["test-js"]

    def test_all_jobs_complete(self, started):
        """The JobSet completes when every Job has."""
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
        """The order of the stored list is the one users of JobSet know."""
        stored = started.object["status"]["replicatedJobsStatus"]

        assert [item["name"] for item in stored] == ["replicated-job-b", "replicated-job-a"]
        assert started.object["status"]["restarts"] == 0

    def test_one_job_left(self, started):
        """A JobSet with one Job still running stays active and counts it."""
        started.complete(A, *B[:2])
        started.ready(B[2])
        started.reconcile()

        assert active(started)
        assert started.counters() == {
            "replicated-job-b": {"succeeded": 2, "ready": 1, "active": 1},
            "replicated-job-a": {"succeeded": 1},
        }

    def test_a_failure_without_a_policy_fails(self, started):
        """Without a failure policy the first failed Job ends the JobSet."""
        started.fail(B[1])
        started.reconcile()

        assert started.condition("Failed") == ("True", "FailedJobs")
        assert started.status.terminal_state == "Failed"
        assert (
            f"jobset failed due to one or more job failures (first failed job: {B[1]})"
            == started.status.conditions[0].message
        )
        failed = p.EmitEvent("Warning", "FailedJobs", started.status.conditions[0].message)
        assert failed == started.events[0]
        assert started.reasons() == ["FailedJobs", "FailurePolicyApplied"]

    def test_a_deleted_service_comes_back(self, started):
        """The Service is recreated when someone deletes it."""
        started.services.clear()
        started.reconcile()

        assert list(started.services) == ["test-js"]

    def test_an_existing_service_is_accepted(self):
        """A Service of that name is used as it is, whoever made it."""
        cluster = ModelCluster(jobset_json())
        cluster.services["test-js"] = {"foreign": True}
        cluster.reconcile()

        assert cluster.services == {"test-js": {"foreign": True}}

    def test_a_deleted_job_comes_back_uncounted(self, started):
        """A Job that someone deletes is made again at the same attempt."""
        del started.jobs[B[0]]
        started.reconcile()

        assert sorted(started.jobs) == ALL
        assert restarts(started) == (0, 0)

    def test_a_jobset_without_replicas_never_completes(self):
        """Nothing succeeds, so there is nothing to complete."""
        cluster = ModelCluster(jobset_json(replicated_job("a", 0)))
        cluster.reconcile()

        assert active(cluster)

    def test_a_bad_label_does_not_block_the_others(self, started):
        """A Job whose attempt is unreadable is left alone and reported; the rest goes on."""
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

    def test_another_manager_is_left_alone(self):
        """A JobSet of another controller gets nothing, and its status stays as it is."""
        status = {"restarts": 1, "replicatedJobsStatus": [{"name": "x", "ready": 7}]}
        cluster = ModelCluster(jobset_json(managedBy="example.com/other", status=status))
        cluster.reconcile()

        assert (not cluster.jobs, status) == (True, cluster.object["status"])

    def test_managed_by_this_controller(self):
        """The reserved value of managedBy means this controller."""
        cluster = ModelCluster(jobset_json(managedBy=keys.JOBSET_CONTROLLER_NAME))
        cluster.reconcile()

        assert len(cluster.jobs) == 4

    def test_a_jobset_being_deleted_is_left_alone(self, started):
        """Deletion is the garbage collector's business."""
        started.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        started.jobs.clear()

        plan = started.plan()
        assert (plan.empty, plan.notices) == (True, ())

    def test_without_optional_policies(self):
        """Fields that admission fills in may be removed later; the rules bear it."""
        spec = jobset_json()
        for name in ("network", "successPolicy", "startupPolicy"):
            del spec["spec"][name]
        cluster = ModelCluster(spec)
        cluster.reconcile()
        cluster.complete(*ALL)
        cluster.reconcile()

        assert (cluster.services, cluster.status.terminal_state) == ({}, "Completed")


class TestSuccessPolicy:
    CASES: ClassVar = {
        "all, no targets: one part done": ("All", [], [A], False),
        "all, no targets: everything done": ("All", [], ALL, True),
        "all, target b: a done": ("All", ["replicated-job-b"], [A], False),
        "all, target b: a third of b": ("All", ["replicated-job-b"], [A, B[0]], False),
        "all, target b: b done": ("All", ["replicated-job-b"], B, True),
        "any, target b: a done": ("Any", ["replicated-job-b"], [A], False),
        "any, target b: one of b": ("Any", ["replicated-job-b"], [B[1]], True),
        "any, no target: any one": ("Any", [], [B[2]], True),
    }

    @pytest.mark.parametrize("case", CASES)
    def test_completion(self, case):
        """Operator and targets say when the JobSet is complete."""
        operator, targets, done, expected = self.CASES[case]
        policy = {"operator": operator, "targetReplicatedJobs": targets}
        cluster = ModelCluster(jobset_json(successPolicy=policy))
        cluster.reconcile()
        cluster.complete(*done)
        cluster.reconcile()

        assert expected == (cluster.status.terminal_state == "Completed")

    def test_the_end_deletes_what_still_runs(self):
        """Active Jobs of a completed JobSet are deleted, finished ones kept."""
        cluster = ModelCluster(jobset_json(successPolicy={"operator": "Any"}))
        cluster.reconcile()
        cluster.complete(B[0])
        cluster.reconcile()
        cluster.collect()
        cluster.reconcile()

        assert [B[0]] == list(cluster.jobs)

    def test_a_failed_jobset_keeps_only_the_failed_job(self, started):
        """Active Jobs of a failed JobSet are deleted, the failed one is kept."""
        started.fail(B[0])
        started.reconcile()
        started.collect()
        started.reconcile()

        assert [B[0]] == list(started.jobs)

    def test_failure_wins_over_success(self):
        """A pass that sees both fails the JobSet."""
        cluster = ModelCluster(jobset_json(successPolicy={"operator": "Any"}))
        cluster.reconcile()
        cluster.complete(B[0])
        cluster.fail(B[1])
        cluster.reconcile()

        assert (cluster.status.terminal_state, cluster.condition("Completed")) == ("Failed", None)


class TestFailurePolicy:
    def test_the_default_restarts_until_the_maximum(self):
        """All Jobs are recreated once; the second failure ends the JobSet."""
        cluster = with_policy()
        old = {name: job["metadata"]["uid"] for name, job in cluster.jobs.items()}
        cluster.fail(B[0])
        recreate(cluster)

        assert (restarts(cluster), active(cluster)) == ((1, 1), True)
        assert sorted(cluster.jobs) == ALL
        assert not old.items() & {
            (name, job["metadata"]["uid"]) for name, job in cluster.jobs.items()
        }
        assert cluster.reasons() == [
            "DefaultFailurePolicy",
            "RestartJobSetFailurePolicyAction",
            "FailurePolicyApplied",
        ]
        assert {"1"} == {
            job["metadata"]["labels"][keys.RESTART_ATTEMPT] for job in cluster.jobs.values()
        }

        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert cluster.condition("RestartingJobSet") == ("False", "JobSetFailed")
        assert restarts(cluster) == (1, 1)

    def test_no_restarts_allowed(self):
        """With maxRestarts 0 the first failure ends the JobSet."""
        cluster = with_policy(max_restarts=0)
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    FAIL = "FailJobSet"
    RESTART = "RestartJobSet"
    IGNORE = "RestartJobSetAndIgnoreMaxRestarts"
    # name: rules, the failed Job with reason and message, wanted (failed, restarts, counted)
    CASES: ClassVar = {
        "fail, no reasons": ([rule(FAIL)], (A, "PodFailurePolicy", ""), (True, 0, 0)),
        "fail, other reason": (
            [rule(FAIL, reasons=["BackoffLimitExceeded"])],
            (A, "PodFailurePolicy", ""),
            (False, 1, 1),
        ),
        "fail, pattern not found": (
            [rule(FAIL, patterns=["some message"])],
            (A, "PodFailurePolicy", "some critical error with a message"),
            (False, 1, 1),
        ),
        "fail, reason matches but not the pattern": (
            [rule(FAIL, reasons=["PodFailurePolicy"], patterns=["some message"])],
            (A, "PodFailurePolicy", "some critical error with a message"),
            (False, 1, 1),
        ),
        "fail, reason and pattern match": (
            [rule(FAIL, reasons=["PodFailurePolicy"], patterns=["some message"])],
            (A, "PodFailurePolicy", "some message"),
            (True, 0, 0),
        ),
        "fail, pattern inside a longer message": (
            [rule(FAIL, patterns=["critical error"])],
            (A, "PodFailurePolicy", "this is some message with critical error"),
            (True, 0, 0),
        ),
        "fail, one of two patterns": (
            [rule(FAIL, patterns=["nothing", "^a.c$"])],
            (A, "PodFailurePolicy", "abc"),
            (True, 0, 0),
        ),
        "fail, invalid pattern is skipped": (
            [rule(FAIL, patterns=["(", "xyz"])],
            (A, "PodFailurePolicy", "("),
            (False, 1, 1),
        ),
        "restart": ([rule(RESTART)], (A, "PodFailurePolicy", ""), (False, 1, 1)),
        "restart uncounted": ([rule(IGNORE)], (A, "PodFailurePolicy", ""), (False, 1, 0)),
        "fail, target matches": (
            [rule(FAIL, reasons=["FailedIndexes"], targets=["replicated-job-b"])],
            (B[0], "FailedIndexes", ""),
            (True, 0, 0),
        ),
        "fail, other target": (
            [rule(FAIL, reasons=["FailedIndexes"], targets=["replicated-job-a"])],
            (B[0], "FailedIndexes", ""),
            (False, 1, 1),
        ),
        "fail before restart": ([rule(FAIL), rule(RESTART)], (A, "X", ""), (True, 0, 0)),
        "restart before fail": ([rule(RESTART), rule(FAIL)], (A, "X", ""), (False, 1, 1)),
    }

    @pytest.mark.parametrize("features", [Features(), GATE_OFF], ids=["gates on", "gates off"])
    @pytest.mark.parametrize("case", CASES)
    def test_rules(self, case, features):
        """The first rule that applies decides; the default restarts and counts."""
        rules, (job, reason, message), expected = self.CASES[case]
        cluster = with_policy(*rules, features=features)
        cluster.fail(job, reason, message)
        cluster.reconcile()

        failed = cluster.status.terminal_state == "Failed"
        assert expected == (failed, *restarts(cluster))
        assert all("jobRestarts" not in i for i in cluster.object["status"]["replicatedJobsStatus"])

    def test_the_failing_rule_is_named(self):
        """FailJobSet has a reason and message of its own."""
        cluster = with_policy(rule("FailJobSet"))
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobSetFailurePolicyAction")
        assert (
            f"applying FailJobSet failure policy action (first failed job: {A})"
            == cluster.events[0].message
        )

    def test_the_restarting_condition(self):
        """It names the rule while Jobs are recreated, and ends when all are ready."""
        cluster = with_policy(rule("RestartJobSet", "Rule1"))
        cluster.fail(B[0])
        recreate(cluster)

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

    def test_uncounted_restarts_know_no_maximum(self):
        """Restarts that ignore the maximum go on for ever and are counted apart."""
        cluster = with_policy(rule(self.IGNORE))
        for number in (1, 2, 3):
            cluster.fail(B[0])
            recreate(cluster)

            assert ((number, 0), True) == (restarts(cluster), active(cluster))

    def test_rules_in_order_over_several_failures(self):
        """Host maintenance restarts for free; anything else ends the JobSet."""
        cluster = with_policy(
            rule(self.IGNORE, reasons=["PodFailurePolicy"], targets=["replicated-job-a"]),
            rule("FailJobSet", "catch-all"),
        )
        for number in (1, 2, 3):
            cluster.fail(A, "PodFailurePolicy")
            recreate(cluster)

            assert ((number, 0), True) == (restarts(cluster), active(cluster))

        cluster.fail(B[0], "")
        cluster.reconcile()

        assert (restarts(cluster), cluster.status.terminal_state) == ((3, 0), "Failed")

    def test_complete_and_failed_jobs_start_over_together(self):
        """A restart recreates complete Jobs too; the JobSet can complete afterwards."""
        cluster = with_policy()
        cluster.complete(A)
        cluster.fail(B[0])
        recreate(cluster)

        assert {k: v for k, v in cluster.counters().items() if v} == {}

        cluster.complete(*ALL)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Completed"

    def test_several_failures_are_one_restart(self):
        """All Jobs that failed in one attempt are covered by one restart."""
        cluster = with_policy(max_restarts=5)
        for name in ALL:
            cluster.fail(name)
        recreate(cluster)

        assert restarts(cluster) == (1, 1)

    def test_the_first_failure_is_named(self):
        """Among the Jobs a rule applies to, the one that failed first is named."""
        cluster = with_policy(max_restarts=5)
        cluster.fail(A, after=9)
        cluster.fail(B[2], after=3)
        cluster.fail(B[1], after=4)
        cluster.reconcile()

        assert cluster.events[0].message.endswith(f"(first failed job: {B[2]})")

    def test_rule_order_beats_time(self):
        """An earlier rule wins even if its Job failed later."""
        cluster = with_policy(
            rule("FailJobSet", targets=["replicated-job-a"]), rule("RestartJobSet")
        )
        cluster.fail(B[0], after=1)
        cluster.fail(A, after=5)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "FailJobSetFailurePolicyAction")
        assert cluster.events[0].message.endswith(f"(first failed job: {A})")

    def test_a_job_without_its_label_matches_no_rule(self):
        """Without the ReplicatedJob's name no rule applies, so the default does."""
        cluster = with_policy(rule("FailJobSet"), features=GATE_OFF)
        del cluster.jobs[A]["metadata"]["labels"][keys.REPLICATED_JOB_NAME]
        cluster.fail(A)
        cluster.reconcile()

        assert restarts(cluster) == (1, 1)

    @pytest.mark.parametrize(
        ("first", "second", "outcome"),
        [
            ("RestartJobSetAndIgnoreMaxRestarts", "FailJobSet", "FailJobSet"),
            ("RestartJob", "FailJobSet", "FailJobSet"),
            ("RestartJobSetAndIgnoreMaxRestarts", "RestartJobSet", "RestartJobSet"),
            ("RestartJob", "RestartReplicatedJob", "RestartReplicatedJob"),
            ("RestartReplicatedJob", "RestartJobSet", "RestartJobSet"),
        ],
    )
    def test_the_strongest_outcome_of_several_failures(self, first, second, outcome):
        """Each failure is decided by itself; none is dropped for an earlier rule's restart."""
        rules = (rule(first, "one", reasons=["X"]), rule(second, "two", reasons=["Y"]))
        cluster = with_policy(*rules, max_restarts=9)
        cluster.fail(B[0], "X")
        cluster.fail(B[1], "Y")
        cluster.reconcile()

        reasons = {event.reason for event in cluster.events}
        decided = {reason for reason in reasons if reason.endswith("FailurePolicyAction")}
        assert decided == {f"{outcome}FailurePolicyAction"}
        assert (cluster.status.terminal_state == "Failed") is (outcome == "FailJobSet")

    def test_a_restart_without_budget_next_to_one_that_is_free(self):
        """The one that counts ends the JobSet, as it would alone."""
        rules = (
            rule("RestartJobSetAndIgnoreMaxRestarts", "one", reasons=["X"]),
            rule("RestartJob", "two", reasons=["Y"]),
        )
        cluster = with_policy(*rules, max_restarts=0)
        cluster.fail(B[0], "X")
        cluster.fail(B[1], "Y")
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    def test_rules_without_names(self):
        """They have the names that admission would have given them."""
        cluster = with_policy({"action": "FailJobSet", "onJobFailureReasons": ["Other"]},
                              {"action": "RestartJobSet"})  # fmt: skip
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("RestartingJobSet") == ("True", "FailurePolicy_failurePolicyRule1")

    def test_stored_rules_that_can_never_apply(self):
        """They are told once, by an event that says what would be right."""
        cluster = with_policy(rule("FailJobSet") | {
            "onJobFailureReasons": ["BackOffLimitExceeded"],
            "onJobFailureMessagePatterns": ["("],
        })  # fmt: skip
        cluster.reconcile()
        cluster.reconcile()

        (event,) = [each for each in cluster.notices if each.type_ == "Warning"]
        assert event.reason == "FailurePolicyNeverApplies"
        assert "rules[0].onJobFailureReasons[0]" in event.message
        assert "its own is BackoffLimitExceeded" in event.message
        assert "rules[0].onJobFailureMessagePatterns[0]" in event.message

    def test_stored_rules_whose_names_are_not_unique_are_reported(self):
        """Admission refuses them, but may not have been asked; conditions name rules."""
        cluster = with_policy(
            {**rule("FailJobSet"), "name": "a"},
            {**rule("RestartJobSet"), "name": "b"},
            {**rule("RestartJobSet"), "name": "a"},
        )
        cluster.reconcile()

        (event,) = [each for each in cluster.notices if each.type_ == "Warning"]
        assert event.message == (
            "the failure policy may not do what it reads: "
            "rules[2].name 'a': another rule has this name, too"
        )

    def test_an_unknown_action_is_a_problem(self):
        """An action this controller does not know is reported, not guessed."""
        cluster = with_policy(rule("Dance"))
        cluster.fail(A)

        assert cluster.plan().problem == "unknown failure policy action 'Dance'"


class TestRestartStrategies:
    def gone_but_one(self, strategy):
        """A restart in which three of four old Jobs are gone."""
        cluster = with_policy(restartStrategy=strategy)
        cluster.fail(B[0])
        cluster.reconcile()
        cluster.collect(A, B[0], B[1])
        cluster.reconcile()
        return cluster

    def attempts(self, cluster):
        """The attempt of each Job."""
        return {n: j["metadata"]["labels"][keys.RESTART_ATTEMPT] for n, j in cluster.jobs.items()}

    @pytest.mark.parametrize("strategy", ["Recreate", "InPlaceRestart"])
    def test_recreate(self, strategy):
        """A Job is recreated as soon as its predecessor is gone."""
        cluster = self.gone_but_one(strategy)

        assert {A: "1", B[0]: "1", B[1]: "1", B[2]: "0"} == self.attempts(cluster)

        cluster.collect()
        cluster.reconcile()

        assert dict.fromkeys(ALL, "1") == self.attempts(cluster)

    def test_blocking_recreate(self):
        """Nothing is recreated before all predecessors are gone."""
        cluster = self.gone_but_one("BlockingRecreate")

        assert {B[2]: "0"} == self.attempts(cluster)

        cluster.collect()
        cluster.reconcile()

        assert dict.fromkeys(ALL, "1") == self.attempts(cluster)


class TestRestartJob:
    def arrays(self, cluster, name="replicated-job-b"):
        """Both restart arrays of a ReplicatedJob, ``None`` where absent."""
        for item in cluster.object["status"]["replicatedJobsStatus"]:
            if item["name"] == name:
                return item.get("jobRestarts"), item.get("jobRestartsCountTowardsMax")
        raise AssertionError(name)

    def test_only_the_failed_job_is_recreated(self):
        """The others keep running; the restart is counted for that Job."""
        cluster = with_policy(rule("RestartJob"))
        before = {name: job["metadata"]["uid"] for name, job in cluster.jobs.items()}
        cluster.fail(B[1])
        recreate(cluster)

        assert restarts(cluster) == (0, 0)
        assert self.arrays(cluster) == ([0, 1, 0], [0, 1, 0])
        assert [B[1]] == [
            name for name, job in cluster.jobs.items() if job["metadata"]["uid"] != before[name]
        ]
        assert cluster.jobs[B[1]]["metadata"]["labels"][keys.JOB_RESTART_ATTEMPT] == "1"
        assert cluster.reasons() == ["RestartJobFailurePolicyAction", "FailurePolicyApplied"]

    def test_uncounted(self):
        """Ignoring the maximum leaves the counting array out."""
        cluster = with_policy(rule("RestartJobAndIgnoreMaxRestarts"))
        cluster.fail(A)
        recreate(cluster)

        assert self.arrays(cluster, "replicated-job-a") == ([1], None)

    def test_several_failures_are_counted_one_by_one_in_one_write(self):
        """Each failed Job counts one, and all of them cost one status write."""
        cluster = with_policy(rule("RestartJob"), max_restarts=5)
        cluster.fail(B[0])
        cluster.fail(B[2])
        cluster.fail(A)
        writes = cluster.status_writes
        cluster.carry_out(cluster.plan())

        assert writes + 1 == cluster.status_writes
        assert self.arrays(cluster) == ([1, 0, 1], [1, 0, 1])
        assert self.arrays(cluster, "replicated-job-a") == ([1], [1])

    def test_the_maximum_stops_exactly_where_single_passes_would(self):
        """The failure past the maximum ends the JobSet, after the ones before it were counted."""
        cluster = with_policy(rule("RestartJob"), max_restarts=1)
        cluster.fail(B[0], after=1)
        cluster.fail(B[2], after=2)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")
        assert self.arrays(cluster) == ([1, 0, 0], [1, 0, 0])
        assert cluster.status.conditions[0].message.endswith(f"(first failed job: {B[2]})")

    def test_both_kinds_of_restarts_share_the_maximum(self):
        """One restart of all and one of a single Job use up a maximum of two."""
        cluster = with_policy(
            rule("RestartJob", targets=["replicated-job-b"]), rule("RestartJobSet"), max_restarts=2
        )
        cluster.fail(B[0])
        recreate(cluster)
        cluster.fail(A)
        recreate(cluster)

        assert active(cluster)

        cluster.fail(A)
        cluster.reconcile()

        assert cluster.condition("Failed") == ("True", "ReachedMaxRestarts")

    def test_restarts_of_jobs_survive_a_restart_of_all(self):
        """The arrays are kept, and new Jobs carry the number of their index."""
        cluster = with_policy(
            rule("RestartJob", targets=["replicated-job-b"]), rule("RestartJobSet"), max_restarts=9
        )
        cluster.fail(B[1])
        recreate(cluster)
        cluster.fail(A)
        recreate(cluster)

        assert self.arrays(cluster) == ([0, 1, 0], [0, 1, 0])
        assert cluster.jobs[B[1]]["metadata"]["labels"][keys.JOB_RESTART_ATTEMPT] == "1"
        assert restarts(cluster) == (1, 1)

    def test_blocking_recreate_applies(self):
        """A single Job that has to go blocks every creation under BlockingRecreate."""
        cluster = with_policy(rule("RestartJob"), restartStrategy="BlockingRecreate")
        cluster.fail(B[1])
        cluster.reconcile()
        del cluster.jobs[A]
        cluster.reconcile()

        assert A not in cluster.jobs

    def test_gate_off(self):
        """Without the gate the action is a problem of the JobSet, and no label is set."""
        cluster = with_policy(rule("RestartJob"), features=GATE_OFF)
        cluster.fail(A)

        assert "RestartJob" in cluster.plan().problem
        assert keys.JOB_RESTART_ATTEMPT not in cluster.jobs[A]["metadata"]["labels"]

    def test_more_replicas_than_can_be_counted(self):
        """A status that the API server refuses would be tried for ever; instead it is told."""
        item = replicated_job("a", 1025)
        cluster = ModelCluster(
            jobset_json(item, failurePolicy={"maxRestarts": 1, "rules": [rule("RestartJob")]})
        )
        cluster.reconcile()
        cluster.fail("test-js-a-3")

        assert "'a' has 1025" in cluster.plan().problem
        assert "jobRestarts" not in str(cluster.plan().status.patch)

    def test_a_job_from_before_the_gate_is_current(self):
        """A Job without the label of its own attempt is not outdated."""
        cluster = with_policy(rule("RestartJob"), features=GATE_OFF)
        cluster.features = Features()

        assert cluster.plan().empty


class TestSuspension:
    def test_created_suspended(self):
        """All Jobs exist and are suspended, and the condition says so."""
        cluster = ModelCluster(jobset_json(suspend=True))
        cluster.reconcile()

        assert {True} == {job["spec"]["suspend"] for job in cluster.jobs.values()}
        assert cluster.condition("Suspended") == ("True", "SuspendedJobs")
        assert cluster.counters() == {
            "replicated-job-b": {"suspended": 3},
            "replicated-job-a": {"suspended": 1},
        }

    def test_suspending_a_running_jobset(self, started):
        """Running Jobs are suspended."""
        started.change_spec(suspend=True)
        started.reconcile()

        assert {True} == {job["spec"]["suspend"] for job in started.jobs.values()}
        assert started.condition("Suspended") == ("True", "SuspendedJobs")

    def test_resuming_takes_the_template_over(self):
        """Labels, annotations, node selector and tolerations changed meanwhile reach the Jobs."""
        cluster = ModelCluster(jobset_json(suspend=True))
        cluster.reconcile()
        for name in ALL:
            cluster.set_status(name, startTime="2026-01-01T00:00:00Z")
        for item in cluster.object["spec"]["replicatedJobs"]:
            pod = item["template"]["spec"]["template"]
            pod["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "2"}}
            pod["spec"]["nodeSelector"] = {"zone": "z"}
            pod["spec"]["tolerations"] = [{"key": "t", "tolerationSeconds": 5}]
        cluster.reconcile()

        assert {True} == {job["spec"]["suspend"] for job in cluster.jobs.values()}

        cluster.change_spec(suspend=False)
        cluster.reconcile()

        for job in cluster.jobs.values():
            pod = job["spec"]["template"]
            assert job["spec"]["suspend"] is False
            assert "startTime" not in job["status"]
            assert (
                pod["metadata"]["labels"]["l"],
                pod["metadata"]["labels"][keys.JOBSET_NAME],
            ) == ("1", "test-js")
            assert pod["metadata"]["annotations"]["a"] == "2"
            assert pod["spec"]["nodeSelector"] == {"zone": "z"}
            assert pod["spec"]["tolerations"] == [{"key": "t", "tolerationSeconds": 5}]
        assert cluster.condition("Suspended") == ("False", "ResumeJobs")

        cluster.complete(*ALL)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Completed"

    def test_resuming_again_adds_nothing_twice(self):
        """Tolerations are compared by value, so a second resume leaves the list as it is."""
        template = replicated_job("a", pod_spec={"tolerations": [{"key": "t"}]})
        cluster = ModelCluster(jobset_json(template, suspend=True))
        for suspend in (True, False, True, False):
            cluster.change_spec(suspend=suspend)
            cluster.reconcile()

        pod_spec = cluster.jobs["test-js-a-0"]["spec"]["template"]["spec"]
        assert pod_spec["tolerations"] == [{"key": "t"}]

    def test_a_job_template_with_a_time_to_live(self):
        """The Job stays as long as its JobSet: one that is deleted would run a second time."""
        item = replicated_job("a")
        item["template"]["spec"]["ttlSecondsAfterFinished"] = 0
        cluster = ModelCluster(jobset_json(item))
        cluster.reconcile()

        assert "ttlSecondsAfterFinished" not in cluster.jobs["test-js-a-0"]["spec"]

    def test_readmission_into_another_queue(self):
        """What an earlier resumption brought and the template no longer has leaves the Jobs."""
        cluster = ModelCluster(jobset_json(suspend=True))
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
            assert {False} == {job["spec"]["suspend"] for job in cluster.jobs.values()}
            cluster.change_spec(suspend=True)
        fresh = ModelCluster(copy.deepcopy(cluster.object))
        fresh.object.pop("status")
        fresh.reconcile()

        assert fresh.jobs.keys() == cluster.jobs.keys()
        for name, job in cluster.jobs.items():
            assert job["spec"]["template"] == fresh.jobs[name]["spec"]["template"]

    def test_a_template_without_directives(self):
        """A JobSet whose last queue is gone runs anywhere again."""
        cluster = ModelCluster(
            jobset_json(replicated_job("a", pod_spec={"nodeSelector": {"z": "1"}}), suspend=True)
        )
        cluster.reconcile()
        del cluster.object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "nodeSelector"
        ]
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        assert not cluster.jobs["test-js-a-0"]["spec"]["template"]["spec"].get("nodeSelector")

    def test_resuming_keeps_what_others_add_to_the_template(self):
        """The Job API's labels, the placement's selector and toleration, the coscheduler's gate."""
        cluster = ModelCluster(jobset_json(replicated_job("a"), suspend=True))
        cluster.reconcile()
        template = cluster.jobs["test-js-a-0"]["spec"]["template"]
        template["metadata"]["labels"] |= {
            "controller-uid": "u",
            "job-name": "test-js-a-0",
            "batch.kubernetes.io/controller-uid": "u",
            "batch.kubernetes.io/job-name": "test-js-a-0",
            keys.POD_GROUP_NAME: "g",
        }
        template["spec"] |= {
            "nodeSelector": {keys.NAMESPACED_JOB_LABEL: "x"},
            "tolerations": [{"key": keys.NO_SCHEDULE_TAINT, "operator": "Exists"}],
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

    def test_a_suspension_whose_write_was_refused(self, started):
        """It is written down when it is over, if all Jobs were stopped by it."""
        for job in started.jobs.values():
            job["spec"]["suspend"] = True
        started.reconcile()
        assert {False} == {job["spec"]["suspend"] for job in started.jobs.values()}
        assert started.condition("Suspended") == ("False", "ResumeJobs")

    def test_somebody_suspends_one_job(self, started):
        """It is resumed; nobody says that the JobSet was suspended."""
        next(iter(started.jobs.values()))["spec"]["suspend"] = True
        started.reconcile()
        assert {False} == {job["spec"]["suspend"] for job in started.jobs.values()}
        assert started.condition("Suspended") is None

    def test_never_suspended_has_no_condition(self, started):
        """A condition never appears as False."""
        assert started.condition("Suspended") is None

    def test_suspending_ends_a_restart(self):
        """The restarting condition becomes False with a reason of its own."""
        cluster = with_policy()
        cluster.fail(A)
        cluster.reconcile()
        cluster.change_spec(suspend=True)
        recreate(cluster)

        assert cluster.condition("RestartingJobSet") == ("False", "JobSetSuspended")

    def test_policies_apply_while_suspended(self):
        """A Job that fails while the JobSet is suspended counts."""
        cluster = ModelCluster(jobset_json(suspend=True))
        cluster.reconcile()
        cluster.fail(A)
        cluster.reconcile()

        assert cluster.status.terminal_state == "Failed"


class TestStartupPolicy:
    def in_order(self, **spec):
        """A JobSet that starts in order."""
        order = {"startupPolicyOrder": "InOrder"}
        cluster = ModelCluster(jobset_json(startupPolicy=order, **spec))
        cluster.reconcile()
        return cluster

    @pytest.mark.parametrize("order", ["InOrder", "AnyOrder"])
    def test_created_suspended(self, order):
        """Suspended Jobs are all created, whatever the order."""
        cluster = ModelCluster(
            jobset_json(suspend=True, startupPolicy={"startupPolicyOrder": order})
        )
        cluster.reconcile()

        assert sorted(cluster.jobs) == ALL
        assert {True} == {job["spec"]["suspend"] for job in cluster.jobs.values()}
        assert cluster.condition("StartupPolicyInProgress") is None

    def test_any_order_resumes_all(self):
        """Without an order all Jobs are resumed at once."""
        cluster = ModelCluster(jobset_json(suspend=True))
        cluster.reconcile()
        cluster.change_spec(suspend=False)
        cluster.reconcile()

        assert cluster.counters() == {"replicated-job-a": {}, "replicated-job-b": {}}

    def test_in_order_resumes_one_after_the_other(self):
        """A resumed JobSet starts in order; Suspended stays True until the end."""
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

    def test_in_order_from_scratch(self):
        """Jobs of the next ReplicatedJob exist only when those before are ready."""
        cluster = self.in_order()

        assert list(cluster.jobs) == [A]
        assert (cluster.condition("StartupPolicyInProgress")) == (
            "True",
            "InOrderStartupPolicyInProgress",
        )

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

    def test_in_order_again_after_a_restart(self):
        """A restart starts over in order."""
        cluster = self.in_order(failurePolicy={"maxRestarts": 1})
        cluster.ready(A)
        cluster.reconcile()
        cluster.ready(*B)
        cluster.reconcile()
        cluster.complete(A)
        cluster.fail(B[0])
        recreate(cluster)

        assert list(cluster.jobs) == [A]

        cluster.ready(A)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyInProgress")[0] == "True"

        cluster.ready(*B)
        cluster.reconcile()

        assert cluster.condition("StartupPolicyCompleted")[0] == "True"
        assert {"1"} == {
            job["metadata"]["labels"][keys.RESTART_ATTEMPT] for job in cluster.jobs.values()
        }

    def test_a_replicated_job_without_replicas_has_started(self):
        """Zero replicas hold nobody up."""
        order = {"startupPolicyOrder": "InOrder"}
        cluster = ModelCluster(
            jobset_json(replicated_job("a", 0), replicated_job("b"), startupPolicy=order)
        )
        cluster.reconcile()

        assert list(cluster.jobs) == ["test-js-b-0"]


class TestDependsOn:
    def test_ready(self):
        """The dependent starts when the other is ready."""
        cluster = ModelCluster(
            jobset_json(replicated_job("a"), replicated_job("b", 3, depends_on=[("a", "Ready")]))
        )
        cluster.reconcile()

        assert list(cluster.jobs) == ["test-js-a-0"]

        cluster.ready("test-js-a-0")
        cluster.reconcile()

        assert len(cluster.jobs) == 4

    def test_a_chain(self):
        """Complete waits for the end, Ready for the start."""
        cluster = ModelCluster(
            jobset_json(
                replicated_job("a"),
                replicated_job("b", depends_on=[("a", "Complete")]),
                replicated_job("c", 3, depends_on=[("b", "Ready")]),
            )
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
    def test_all_dependencies_are_needed(self, first, second):
        """With two dependencies the dependent waits for both."""
        steps = {"Complete": "complete", "Ready": "ready"}
        cluster = ModelCluster(
            jobset_json(
                replicated_job("a"),
                replicated_job("b"),
                replicated_job("c", 3, depends_on=[("a", first), ("b", second)]),
            )
        )
        cluster.reconcile()
        assert len(cluster.jobs) == 2

        getattr(cluster, steps[first])("test-js-a-0")
        cluster.reconcile()
        assert len(cluster.jobs) == 2

        getattr(cluster, steps[second])("test-js-b-0")
        cluster.reconcile()
        assert len(cluster.jobs) == 5

    def test_suspended(self):
        """Suspended, the dependents are not even created; resumed, they wait as ever."""
        cluster = ModelCluster(
            jobset_json(
                replicated_job("a"),
                replicated_job("b", 3, depends_on=[("a", "Ready")]),
                suspend=True,
            )
        )
        cluster.reconcile()
        assert {n: j["spec"]["suspend"] for n, j in cluster.jobs.items()} == {"test-js-a-0": True}

        cluster.change_spec(suspend=False)
        cluster.reconcile()
        assert {n: j["spec"]["suspend"] for n, j in cluster.jobs.items()} == {"test-js-a-0": False}

        cluster.ready("test-js-a-0")
        cluster.reconcile()
        assert [job["spec"]["suspend"] for job in cluster.jobs.values()] == [False] * 4


class TestTimeToLive:
    def ended(self, **spec):
        """A JobSet that completed now."""
        cluster = ModelCluster(jobset_json(**spec))
        cluster.reconcile()
        cluster.complete(*ALL)
        cluster.reconcile()
        return cluster

    def test_waits(self):
        """The pass asks to come back when the time is over."""
        cluster = self.ended(ttlSecondsAfterFinished=5)
        cluster.clock += timedelta(seconds=2)

        assert timedelta(seconds=3) == cluster.plan().result.delay

    def test_deletes(self):
        """When the time is over the JobSet is deleted, by UID."""
        cluster = self.ended(ttlSecondsAfterFinished=5)
        cluster.clock += timedelta(seconds=5)
        plan = cluster.plan()

        assert ((p.DeleteJobSet("test-js", "js-uid"),), None) == (plan.actions, plan.result.delay)

    def test_zero(self):
        """Zero deletes at once."""
        cluster = self.ended(ttlSecondsAfterFinished=0)

        assert cluster.deleted

    def test_kept_for_ever(self):
        """Without the field a finished JobSet stays."""
        cluster = self.ended()
        cluster.clock += timedelta(days=1000)

        assert (cluster.plan().empty, cluster.plan().result.delay) == (True, None)

    def test_not_finished(self, started):
        """A running JobSet has no time to live."""
        started.change_spec(ttlSecondsAfterFinished=0)

        assert started.plan().empty


class TestElastic:
    def resized(self, features, parallelism=4, completions=4):
        """A JobSet whose template changed from 2 pods."""
        cluster = ModelCluster(jobset_json(replicated_job("a", parallelism=2)), features)
        cluster.reconcile()
        spec = cluster.object["spec"]["replicatedJobs"][0]["template"]["spec"]
        spec.update(parallelism=parallelism, completions=completions)
        cluster.reconcile()
        child = cluster.jobs["test-js-a-0"]["spec"]
        return child["parallelism"], child["completions"]

    def test_gate_on(self):
        """The running Job gets the template's size."""
        assert self.resized(Features()) == (4, 4)

    def test_gate_off(self):
        """Without the gate the running Job keeps its size."""
        assert self.resized(GATE_OFF) == (2, 2)

    def test_unequal_values_are_not_elastic(self):
        """Parallelism and completions have to be equal."""
        assert self.resized(Features(), parallelism=4, completions=8) == (2, 2)


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
    def test_claims(self, suspend):
        """Claims are made once, also while suspended; only those to be deleted are owned."""
        cluster = ModelCluster(jobset_json(volumeClaimPolicies=self.POLICIES, suspend=suspend))
        cluster.reconcile()

        assert sorted(cluster.claims) == ["cache-test-js", "data-test-js"]
        cache = cluster.claims["cache-test-js"]
        assert cache["metadata"]["labels"] == {"l": "1", keys.JOBSET_NAME: "test-js"}
        assert (
            cache["metadata"]["annotations"],
            cache["spec"],
        ) == ({"a": "2"}, {"accessModes": ["ReadWriteOnce"]})
        assert cache["metadata"]["ownerReferences"][0]["uid"] == "js-uid"
        assert "ownerReferences" not in cluster.claims["data-test-js"]["metadata"]

    def test_volumes_are_mounted_where_they_are_named(self):
        """A pod gets a volume if one of its containers mounts it, init containers included."""
        mounts = {"name": "c", "image": "i", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}
        cluster = ModelCluster(
            jobset_json(
                replicated_job(
                    "a", pod_spec={"initContainers": [mounts], "volumes": [{"name": "x"}]}
                ),
                replicated_job("b"),
                volumeClaimPolicies=self.POLICIES,
            )
        )
        cluster.reconcile()
        volumes = {
            name: job["spec"]["template"]["spec"].get("volumes")
            for name, job in cluster.jobs.items()
        }

        claim = {"claimName": "cache-test-js"}
        assert {
            "test-js-a-0": [{"name": "x"}, {"name": "cache", "persistentVolumeClaim": claim}],
            "test-js-b-0": None,
        } == volumes
