"""The last restarts of a JobSet, as its status remembers them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.reconcilers.rules import history
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

AT = datetime(2026, 1, 1, tzinfo=UTC)
A = "test-js-replicated-job-a-0"
B = ["test-js-replicated-job-b-0", "test-js-replicated-job-b-1", "test-js-replicated-job-b-2"]


def record(number=1, kind=history.IN_PLACE, **more):
    """A restart that began at AT."""
    return RestartRecord(kind=kind, number=number, began_at=AT, **more)


def cluster(*rules, strategy="Recreate", **policy):
    """A started JobSet with a failure policy."""
    policy = {"maxRestarts": 9, "rules": list(rules), "restartStrategy": strategy, **policy}
    made = ModelCluster(jobset_json(failurePolicy=policy))
    made.reconcile()
    return made


def rule(action, name="mine"):
    """A rule for every failure."""
    return {"name": name, "action": action}


class TestBounds:
    def test_the_latest_ten_are_kept(self):
        """The oldest go first."""
        known = ()
        for number in range(1, 14):
            known = history.with_begun(known, record(number, outcome="Completed"))

        assert list(range(4, 14)) == [each.number for each in known]

    @pytest.mark.parametrize("letter", ["x", "\n", '"', "é", "\U0001f4a5"])
    def test_a_monstrous_cause_is_cut(self, letter):
        """A full history never takes more than 6 kB, whatever names and messages there are."""
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
        assert (
            len(msgspec.json.encode([history.record_json(one) for one in known])) <= 6100
        )  # brackets and commas

    def test_what_is_short_is_kept_whole(self):
        """Nothing is cut of an ordinary restart."""
        cause = RestartCause(reason="ContainerFailed", pod="p", node="n", container="c")
        one = record(2, cause=cause, last_pod="q" * 63)

        assert (one,) == history.with_begun((), one)

    def test_a_stored_record_reads_back(self):
        """What the API server gives back is what was written, so nothing is written twice."""
        one = record(3, cause=RestartCause(exit_code=0), lift_millis=0, counted=True)
        status = {"restartHistory": [history.record_json(one)]}

        assert (one,) == decoded(JobSet, {"status": status}).status.restart_history


class TestEnds:
    def test_a_completed_restart_has_the_time_it_took(self):
        """Without a measurement, the time since it was decided on."""
        known = history.with_begun((), record(2, detection_millis=500))
        (ended,) = history.with_ended(known, AT + timedelta(seconds=3), "Completed")

        assert (ended.outcome, ended.gathering_millis) == ("Completed", 2500)

    def test_what_is_over_stays_as_it_is(self):
        """A second end changes nothing."""
        known = (record(2, outcome="Interrupted"),)

        assert known is history.with_ended(known, AT, "Completed")
        assert history.with_ended((), AT, "Completed") == ()

    def test_another_restart_interrupts_the_one_before(self):
        """Only the latest is under way."""
        known = history.with_begun(history.with_begun((), record(2)), record(3))

        assert [each.outcome for each in known] == ["Interrupted", ""]

    def test_a_restart_in_place_becomes_that_of_the_jobs(self):
        """One failure is one restart; what was seen of the pod is kept."""
        seen = RestartCause(reason="ContainerFailed", pod="p", node="n", exit_code=7)
        begun = history.with_begun((), record(2, cause=seen, detection_millis=20))
        later = AT + timedelta(seconds=2)
        (one,) = history.with_begun(
            begun,
            evolve(
                record(1, history.RECREATE, cause=RestartCause(reason="PodFailurePolicy", job="j")),
                began_at=later,
                detection_millis=100,
            ),
        )

        assert (one.kind, one.began_at, one.detection_millis) == ("Recreate", AT, 2100)
        assert (
            RestartCause(reason="PodFailurePolicy", job="j", pod="p", node="n", exit_code=7)
            == one.cause
        )

    def test_the_time_to_lift_comes_later(self):
        """It goes to the restart of its epoch, if that is remembered."""
        known = (record(2, outcome="Completed"), record(3))

        assert [one.lift_millis for one in history.with_lift(known, 2, 0.012)] == [12, None]
        assert known == history.with_lift(known, 5, 0.012)


class TestRestartsOfJobs:
    def test_recreate(self):
        """All Jobs are made anew: who failed, why, by which rule, and how long it took."""
        of = cluster(rule("RestartJobSet"))
        of.fail(B[1], "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        of.reconcile()
        (begun,) = of.status.restart_history
        of.collect()
        of.reconcile()
        of.clock += timedelta(seconds=30)
        of.ready(A, *B)
        of.reconcile()
        (ended,) = of.status.restart_history

        assert (
            begun.kind,
            begun.number,
            begun.rule,
            begun.counted,
            begun.outcome,
        ) == ("Recreate", 1, "mine", True, "")
        assert (
            RestartCause(
                reason="BackoffLimitExceeded",
                job=B[1],
                message="Job has reached the specified backoff limit",
            )
            == begun.cause
        )
        assert ended.outcome == "Completed"
        assert ended.gathering_millis == 30_000

    def test_single_jobs_are_one_restart_for_each_rule(self):
        """Two Jobs that fail at once do not push two others out of the history."""
        of = cluster(rule("RestartJobAndIgnoreMaxRestarts"))
        of.fail(B[0])
        of.fail(B[2])
        of.reconcile()
        (one,) = of.status.restart_history

        assert ("RestartJob", B[0], 1, 1, False) == (
            one.kind,
            one.target,
            one.number,
            one.more_jobs,
            one.counted,
        )

    def test_a_replicated_job(self):
        """It is named, with the Job that failed as the cause."""
        of = cluster(rule("RestartReplicatedJob"))
        of.fail(B[2])
        of.reconcile()
        (one,) = of.status.restart_history

        assert ("RestartReplicatedJob", "replicated-job-b", B[2], 1, True) == (
            one.kind,
            one.target,
            one.cause.job,
            one.number,
            one.counted,
        )

    def test_by_hand(self):
        """A Job made anew on request is told once, and not counted."""
        of = cluster()
        of.jobs[A]["metadata"].setdefault("annotations", {})[keys.RESTART_ANNOTATION] = "now"
        of.reconcile()
        of.reconcile()
        (one,) = of.status.restart_history

        assert (
            one.kind,
            one.target,
            one.cause.reason,
            one.counted,
        ) == ("RestartJob", A, "JobRemade", False)

    @pytest.mark.parametrize("end", ["suspended", "failed"])
    def test_a_restart_that_never_ends(self, end):
        """A JobSet that is suspended or fails does not finish what was under way."""
        of = cluster(rule("RestartJobSet"), maxRestarts=1)
        of.fail(A)
        of.reconcile()
        if end == "suspended":
            of.change_spec(suspend=True)
        else:
            of.collect()
            of.reconcile()
            of.fail(A)
        of.reconcile()

        assert of.status.restart_history[-1].outcome == "Interrupted"
        assert len(of.status.restart_history) == 1

    def test_the_barrier_ends_what_restarts_in_place(self):
        """Jobs that are ready do not: their pods may wait for others."""
        of = cluster(rule("RestartJob"), strategy="InPlaceRestart")
        of.fail(A)
        of.reconcile()
        of.collect()
        of.reconcile()
        of.ready(A, *B)
        of.reconcile()

        assert of.status.restart_history[-1].outcome == ""


class TestCosts:
    def test_of_a_restart_that_is_over(self):
        """From the first sign to the end, once; not while it is under way."""
        end = AT + timedelta(seconds=9)
        begun = history.with_begun((), record(2))
        ended = history.with_ended(begun, end, "Completed")
        lifted = history.with_lift(ended, 2, 0.1)

        assert history.over((), begun, end) == ()
        assert [(o.record.number, o.seconds) for o in history.over(begun, ended, end)] == [(2, 9.0)]
        assert [o.seconds for o in history.over((), ended, end)] == [9.0]
        assert history.over(ended, lifted, end) == ()

    def test_of_one_that_another_one_interrupts(self):
        """Until the first sign of the next, so that no second is counted twice."""
        begun = history.with_begun((), record(2))
        following = evolve(record(3), began_at=AT + timedelta(seconds=4))
        both = history.with_begun(begun, following)
        (one,) = history.over(begun, both, AT + timedelta(seconds=5))

        assert (one.record.number, one.seconds) == (2, 4.0)

    def test_of_one_that_becomes_another_kind(self):
        """It goes on under its new name."""
        begun = history.with_begun((), record(2))
        taken = history.with_begun(begun, record(1, history.RECREATE))

        assert history.over(begun, taken, AT) == ()

    def test_of_one_in_a_full_history(self):
        """The oldest go; they are not over a second time, nor is what follows them."""
        known = ()
        for number in range(12):
            one = evolve(record(number, outcome="Completed"), began_at=AT + timedelta(number))
            new = history.with_begun(known, one)
            assert [number] == [each.record.number for each in history.over(known, new, AT)]
            known = new

    @pytest.mark.parametrize(
        ("of", "pods"),
        [
            (record(), 14),
            (record(kind=history.RECREATE), 14),
            (record(kind=history.REPLICATED_JOB, target="b"), 12),
            (record(kind=history.JOB, target="test-js-b-2"), 4),
            (record(kind=history.JOB, target="test-js-b-2", more_jobs=1), 8),
            (record(kind=history.JOB, target="test-js-gone-2"), 0),
        ],
    )
    def test_pods_that_started_over(self, of, pods):
        """By the kind of the restart, and by what the spec asks for."""
        data = jobset_json(replicated_job("a", 2), replicated_job("b", 3, parallelism=4))

        assert pods == history.pods_of_restart(decoded(JobSet, data), of)


def test_readiness_costs_no_write_of_its_own():
    """The record ends with the write of the counters; afterwards nothing changes."""
    of = ModelCluster(
        jobset_json(
            replicated_job("w", 2),
            failurePolicy={"maxRestarts": 3, "rules": [rule("RestartJob")]},
        )
    )
    of.reconcile()
    of.fail("test-js-w-0")
    of.reconcile()
    of.collect()
    of.reconcile()
    of.ready("test-js-w-0", "test-js-w-1")
    plan = of.plan()

    assert {"replicatedJobsStatus", "restartHistory"} <= set(plan.status.patch)
    of.reconcile()
    assert not of.plan().status.patch
