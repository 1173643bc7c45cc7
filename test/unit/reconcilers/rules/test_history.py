"""History of a JobSet's restarts in its status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.rules import history
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import begin, rule, settle

AT = datetime(2026, 1, 1, tzinfo=UTC)
A = "test-js-replicated-job-a-0"
B = ["test-js-replicated-job-b-0", "test-js-replicated-job-b-1", "test-js-replicated-job-b-2"]


def record(number=1, kind=history.IN_PLACE, **more):
    """Return a restart that began at AT."""
    return RestartRecord(kind=kind, number=number, began_at=AT, **more)


def started(*rules, strategy="Recreate", **policy):
    """Return a cluster with a started JobSet that has a failure policy."""
    policy = {"maxRestarts": 9, "rules": list(rules), "restartStrategy": strategy, **policy}
    return begin(failurePolicy=policy)


class TestBounds:
    def test_latest_ten_restarts_are_kept(self):
        """The oldest are removed."""
        known = ()
        for number in range(1, 14):
            known = history.with_begun(known, record(number, outcome="Completed"))

        assert [each.number for each in known] == list(range(4, 14))

    @pytest.mark.parametrize("letter", ["x", "\n", '"', "é", "\U0001f4a5"])
    def test_texts_of_a_cause_are_cut(self, letter):
        """A full history takes at most 6 kB, for any names and messages."""
        long = letter * 5000
        cause = RestartCause(
            reason=long, job=long, pod=long, node=long, container=long, message=long, exit_code=137
        )
        texts = dict.fromkeys(("target", "rule", "last_pod", "last_node"), long)
        numbers = dict.fromkeys(
            ("detection_millis", "deprecation_millis", "gathering_millis", "lift_millis"),
            keys.INT32_MAX,
        )
        known = ()
        for _ in range(10):
            one = record(
                keys.INT32_MAX,
                "RestartReplicatedJob",
                more_jobs=1023,
                counted=True,
                cause=cause,
                outcome="Interrupted",
                **texts,
                **numbers,
            )
            known = history.with_begun(known, one)

        assert len(known) == 10
        stored = msgspec.json.encode([history.record_json(one) for one in known])
        assert len(stored) <= 6100  # with brackets and commas

    def test_short_texts_are_kept(self):
        """An ordinary restart is stored completely."""
        cause = RestartCause(reason="ContainerFailed", pod="p", node="n", container="c")
        one = record(2, cause=cause, last_pod="q" * 63)

        assert history.with_begun((), one) == (one,)

    def test_stored_record_reads_back(self):
        """The API server returns what was written, so that nothing is written twice."""
        one = record(3, cause=RestartCause(exit_code=0), lift_millis=0, counted=True)
        status = {"restartHistory": [history.record_json(one)]}

        assert decoded(JobSet, {"status": status}).status.restart_history == (one,)


class TestEnds:
    def test_completed_restart_has_its_duration(self):
        """Without a measurement, it is the time since the decision."""
        known = history.with_begun((), record(2, detection_millis=500))
        (ended,) = history.with_ended(known, AT + timedelta(seconds=3), "Completed")

        assert (ended.outcome, ended.gathering_millis) == ("Completed", 2500)

    def test_ended_restart_does_not_change(self):
        """A second end is ignored."""
        known = (record(2, outcome="Interrupted"),)

        assert history.with_ended(known, AT, "Completed") is known
        assert history.with_ended((), AT, "Completed") == ()

    def test_new_restart_interrupts_the_previous_one(self):
        """Only the latest restart is in progress."""
        known = history.with_begun(history.with_begun((), record(2)), record(3))

        assert [each.outcome for each in known] == ["Interrupted", ""]

    def test_restart_in_place_becomes_a_recreation(self):
        """One failure is one restart; what was observed of the pod is kept."""
        seen = RestartCause(reason="ContainerFailed", pod="p", node="n", exit_code=7)
        begun = history.with_begun((), record(2, cause=seen, detection_millis=20))
        later = AT + timedelta(seconds=2)
        recreation = evolve(
            record(1, history.RECREATE, cause=RestartCause(reason="PodFailurePolicy", job="j")),
            began_at=later,
            detection_millis=100,
        )
        (one,) = history.with_begun(begun, recreation)
        cause = RestartCause(reason="PodFailurePolicy", job="j", pod="p", node="n", exit_code=7)

        assert (one.kind, one.began_at, one.detection_millis) == ("Recreate", AT, 2100)
        assert one.cause == cause

    def test_lift_time_is_added_to_the_restart_of_its_epoch(self):
        """An epoch that is not in the history is ignored."""
        known = (record(2, outcome="Completed"), record(3))

        assert [one.lift_millis for one in history.with_lift(known, 2, 0.012)] == [12, None]
        assert history.with_lift(known, 5, 0.012) == known


class TestRestartsOfJobs:
    def test_recreation_is_recorded_with_cause_and_duration(self):
        """The failed Job, its reason, the rule, and the time until all Jobs are ready."""
        cluster = started(rule("RestartJobSet"))
        cluster.fail(B[1], "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        cluster.reconcile()
        (begun,) = cluster.status.restart_history
        cluster.collect()
        cluster.reconcile()
        cluster.clock += timedelta(seconds=30)
        cluster.ready(A, *B)
        cluster.reconcile()
        (ended,) = cluster.status.restart_history

        found = (begun.kind, begun.number, begun.rule, begun.counted, begun.outcome)
        assert found == ("Recreate", 1, "rule", True, "")
        message = "Job has reached the specified backoff limit"
        assert begun.cause == RestartCause(reason="BackoffLimitExceeded", job=B[1], message=message)
        assert ended.outcome == "Completed"
        assert ended.gathering_millis == 30_000

    def test_recreation_counts_from_the_decision_to_fail(self):
        """It includes the time in which the last pods of the failed Job end."""
        cluster = started()
        began = cluster.clock.replace(microsecond=0)
        cluster.clock = began + timedelta(seconds=20)
        conditions = [
            {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "",
             "lastTransitionTime": seconds_text(at)}
            for kind, at in (("FailureTarget", began), ("Failed", cluster.clock))
        ]  # fmt: skip
        cluster.set_status(A, active=0, ready=0, conditions=conditions)
        cluster.reconcile()
        (one,) = cluster.status.restart_history

        assert (one.began_at, one.detection_millis) == (began, 20_000)

    def test_restarts_of_single_jobs_are_one_record_for_each_rule(self):
        """Jobs that fail together do not push others out of the history."""
        cluster = started(rule("RestartJobAndIgnoreMaxRestarts"))
        cluster.fail(B[0])
        cluster.fail(B[2])
        cluster.reconcile()
        (one,) = cluster.status.restart_history

        found = (one.kind, one.target, one.number, one.more_jobs, one.counted)
        assert found == ("RestartJob", B[0], 1, 1, False)

    def test_restart_of_a_replicated_job_is_recorded_with_the_failed_job(self):
        """The Job is its cause."""
        cluster = started(rule("RestartReplicatedJob"))
        cluster.fail(B[2])
        cluster.reconcile()
        (one,) = cluster.status.restart_history

        found = (one.kind, one.target, one.cause.job, one.number, one.counted)
        assert found == ("RestartReplicatedJob", "replicated-job-b", B[2], 1, True)

    def test_requested_restart_is_recorded_once(self):
        """It is not counted."""
        cluster = started()
        cluster.jobs[A]["metadata"].setdefault("annotations", {})[keys.RESTART_ANNOTATION] = "now"
        cluster.reconcile()
        cluster.reconcile()
        (one,) = cluster.status.restart_history

        found = (one.kind, one.target, one.cause.reason, one.counted)
        assert found == ("RestartJob", A, "JobRemade", False)

    @pytest.mark.parametrize("end", ["suspended", "failed"])
    def test_restart_is_interrupted_when_the_jobset_is_suspended_or_fails(self, end):
        """It is not completed."""
        cluster = started(rule("RestartJobSet"), maxRestarts=1)
        cluster.fail(A)
        cluster.reconcile()
        if end == "suspended":
            cluster.change_spec(suspend=True)
        else:
            cluster.collect()
            cluster.reconcile()
            cluster.fail(A)
        cluster.reconcile()

        assert cluster.status.restart_history[-1].outcome == "Interrupted"
        assert len(cluster.status.restart_history) == 1

    def test_restart_in_place_is_ended_by_its_barrier(self):
        """Not when Jobs are ready: their pods may wait for others."""
        cluster = started(rule("RestartJob"), strategy="InPlaceRestart")
        cluster.fail(A)
        settle(cluster)
        cluster.ready(A, *B)
        cluster.reconcile()

        assert cluster.status.restart_history[-1].outcome == ""


class TestCosts:
    def test_cost_of_a_completed_restart_is_reported_once(self):
        """From its first sign to its end."""
        end = AT + timedelta(seconds=9)
        begun = history.with_begun((), record(2))
        ended = history.with_ended(begun, end, "Completed")
        lifted = history.with_lift(ended, 2, 0.1)

        assert history.over((), begun, end) == ()
        assert [(o.record.number, o.seconds) for o in history.over(begun, ended, end)] == [(2, 9.0)]
        assert [o.seconds for o in history.over((), ended, end)] == [9.0]
        assert history.over(ended, lifted, end) == ()

    def test_cost_of_an_interrupted_restart_ends_with_the_next_one(self):
        """No second is counted twice."""
        begun = history.with_begun((), record(2))
        following = evolve(record(3), began_at=AT + timedelta(seconds=4))
        both = history.with_begun(begun, following)
        (one,) = history.over(begun, both, AT + timedelta(seconds=5))

        assert (one.record.number, one.seconds) == (2, 4.0)

    def test_restart_that_becomes_another_kind_is_not_over(self):
        """It continues with its new kind."""
        begun = history.with_begun((), record(2))
        taken = history.with_begun(begun, record(1, history.RECREATE))

        assert history.over(begun, taken, AT) == ()

    def test_restart_that_leaves_a_full_history_is_not_over_again(self):
        """Nor is any of those that follow it."""
        known = ()
        for number in range(12):
            one = evolve(record(number, outcome="Completed"), began_at=AT + timedelta(number))
            new = history.with_begun(known, one)
            assert [each.record.number for each in history.over(known, new, AT)] == [number]
            known = new

    @pytest.mark.parametrize(
        ("restart", "pods"),
        [
            (record(), 14),
            (record(kind=history.RECREATE), 14),
            (record(kind=history.REPLICATED_JOB, target="b"), 12),
            (record(kind=history.JOB, target="test-js-b-2"), 4),
            (record(kind=history.JOB, target="test-js-b-2", more_jobs=1), 8),
            (record(kind=history.JOB, target="test-js-gone-2"), 0),
        ],
    )
    def test_number_of_restarted_pods_follows_the_kind_of_the_restart(self, restart, pods):
        """Sizes are those of the spec."""
        data = jobset_json(replicated_job("a", 2), replicated_job("b", 3, parallelism=4))

        assert history.pods_of_restart(decoded(JobSet, data), restart) == pods


def test_end_of_a_restart_causes_no_write_of_its_own():
    """The record ends with a write of counters; nothing changes afterwards."""
    policy = {"maxRestarts": 3, "rules": [rule("RestartJob")]}
    cluster = begin(replicated_job("w", 2), failurePolicy=policy)
    cluster.fail("test-js-w-0")
    settle(cluster)
    cluster.ready("test-js-w-0", "test-js-w-1")
    plan = cluster.plan()

    assert {"replicatedJobsStatus", "restartHistory"} <= set(plan.status.patch)
    cluster.reconcile()
    assert not cluster.plan().status.patch
