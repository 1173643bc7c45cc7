"""What a reconcile does about epochs, as tables in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet, RestartCause
from jobsetpy.reconcilers.restart_in_place.cause import FailureSignal
from jobsetpy.reconcilers.restart_in_place.failures import STATUS_LAG_S, Failure, SyncedMark
from jobsetpy.reconcilers.restart_in_place.observed import (
    Histogram,
    InvalidEpoch,
    Observations,
    ObservedEpochs,
)
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
STALLED = keys.BARRIER_STALLED_CONDITION
RESTARTING = keys.RESTARTING_IN_PLACE_CONDITION


def jobset(synced=1, deprecated=0, *, max_restarts=10, status=None, **spec):
    """A JobSet of one Job with four pods."""
    container = {"name": "worker", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    item = replicated_job("w", 1, parallelism=4, pod_spec={"containers": [container]})
    policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
    epochs = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
    data = jobset_json(
        item, status={**epochs, **(status or {})}, **{"failurePolicy": policy, **spec}
    )
    return decoded(JobSet, data)


def job(**status):
    """Its Job."""
    meta = {
        "name": "j",
        "uid": "j",
        "labels": {keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"},
    }
    return decoded(Job, {"metadata": meta, "spec": {"parallelism": 4}, "status": status})


def pod(name="p", epoch=1, state=None, **meta):
    """A pod of the Job, whose worker is in a state."""
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    annotations = {keys.EPOCH_ANNOTATION: str(epoch)}
    one = {"name": "worker", "state": {"running": {}} if state is None else state}
    return decoded(
        ChildPod,
        {
            "metadata": {
                "name": name,
                "annotations": annotations,
                "ownerReferences": [owner],
                **meta,
            },
            "status": {"phase": "Running", "containerStatuses": [one]},
        },
    )


def failure(code=7, *, epoch=1, at=0.0, name="p"):
    """A worker's end."""
    end = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": None}}
    before, after = pod(name, epoch), pod(name, epoch, end)
    return Failure(FailureSignal.CONTAINER_FAILED, epoch, before, after, at)


def gone(*, epoch=1, at=0.0):
    """A pod's end."""
    return Failure(FailureSignal.POD_DELETED, epoch, pod(epoch=epoch), None, at)


def at(seconds):
    """So long after the start."""
    return Now(START + timedelta(seconds=seconds), seconds)


def observed(of, epochs, *, notes=None, pods=(), **more):
    """A JobSet with so many pods at each epoch."""
    more = {"job_of": lambda _pod: job(), "members": lambda: ([job()], list(pods)), **more}
    counts = Histogram(epochs) if isinstance(epochs, dict) else epochs
    return ObservedEpochs(jobset=of, pods=counts, notes=notes or Observations(), **more)


def stored(of, plan):
    """The JobSet once the plan is carried out."""
    return of if plan.status is None else evolve(of, status=plan.status.status)


def condition(plan, kind):
    """Status and message of a condition in the status of a plan."""
    found = [c for c in plan.status.status.conditions if c.type == kind]
    return [(c.status, c.message) for c in found]


class TestWhoIsPlannedFor:
    def test_a_jobset_that_is_gone(self):
        """Nothing is done, and nothing remembered."""
        plan = plan_epochs(ObservedEpochs(jobset=None), EpochState(uid="x"), at(0))

        assert (plan.memory, plan.status, plan.result.delay) == (None, None, None)

    def test_another_jobset_of_the_name(self):
        """What is remembered of the one before does not count."""
        told = frozenset({InvalidEpoch("p", "p", "x")})
        memory = EpochState(uid="other", told=told, waiting_since=0.0)
        plan = plan_epochs(observed(jobset(), {1: 4}), memory, at(100))

        assert EpochState(uid="js-uid") == plan.memory

    def test_own_writes_are_waited_for(self):
        """Nothing is decided, and nothing that was noted is lost."""
        memory = EpochState(uid="js-uid", waiting_since=1.0)
        plan = plan_epochs(
            observed(jobset(), {1: 3, 2: 1}, notes=Observations((failure(),)), wait_s=2.5),
            memory,
            at(9),
        )

        assert (None, memory, False) == (plan.status, plan.memory, plan.judged)
        assert timedelta(seconds=2.5) == plan.result.delay

    @pytest.mark.parametrize("state", ["suspended", "completed", "another manager's"])
    def test_what_is_left_over_is_taken_back(self, state):
        """A restart is over when the JobSet is suspended or has ended; others' are left alone."""
        conditions = [{"type": RESTARTING, "status": "True", "reason": "r", "message": "m"}]
        spec = {}
        if state == "suspended":
            spec = {"suspend": True}
        elif state == "completed":
            conditions.append({"type": "Completed", "status": "True"})
        else:
            spec = {"managedBy": "example.com/other"}
        plan = plan_epochs(
            observed(jobset(status={"conditions": conditions}, **spec), {1: 4}),
            EpochState(uid="js-uid"),
            at(0),
        )

        if state == "another manager's":
            assert plan.status is None
        else:
            assert [("False", f"jobset {'is ' * (state == 'suspended')}{state}")] == condition(
                plan, RESTARTING
            )
            assert plan.status.events == ()


class TestCause:
    def test_a_failure_deprecates_the_epoch(self):
        """The first one that counts is the cause; the others of the epoch belong to it."""
        notes = Observations((failure(at=3.0), failure(9, at=4.0)))
        plan = plan_epochs(observed(jobset(), {1: 4}, notes=notes), EpochState(), at(5))

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert condition(plan, RESTARTING) == [
            (
                "True",
                (
                    "pod 'p', container 'worker' exited with 7 (Error): "
                    "restarting in place from epoch 1 to 2, 4 pods to follow"
                ),
            )
        ]
        assert plan.begun.cause.container.exit_code == 7
        assert plan.begun.times.began == 3.0
        assert plan.judged

    def test_a_failure_that_proves_nothing_is_passed_over(self):
        """The next one may be the cause."""
        notes = Observations((failure(0), failure(1)))
        plan = plan_epochs(observed(jobset(), {1: 4}, notes=notes), EpochState(), at(5))

        assert plan.memory.cause.container.exit_code == 1

    @pytest.mark.parametrize(
        ("of", "notes", "more"),
        [
            (jobset(2, 1), Observations((failure(epoch=1),)), {}),
            (jobset(1, 1), Observations((failure(),)), {}),
            (jobset(max_restarts=0), Observations((failure(),)), {}),
            (jobset(), Observations((failure(),)), {"job_of": lambda _pod: None}),
            (
                jobset(),
                Observations((gone(),)),
                {"job_of": lambda _: job(conditions=[{"type": "Complete", "status": "True"}])},
            ),
        ],
        ids=[
            "older epoch",
            "already deprecated",
            "no restarts left",
            "no Job",
            "its Job has ended",
        ],
    )
    def test_what_is_no_cause(self, of, notes, more):
        """Nothing is written, and the failure is not looked at again."""
        epoch = of.status.synced_epoch
        plan = plan_epochs(observed(of, {epoch: 4}, notes=notes, **more), EpochState(), at(5))

        assert (plan.status, plan.memory.cause, plan.judged) == (None, None, True)

    def test_once_per_epoch(self):
        """An epoch that has ended early does not end again."""
        first = plan_epochs(
            observed(jobset(), {1: 4}, notes=Observations((failure(),))), EpochState(), at(5)
        )
        again = plan_epochs(
            observed(jobset(), {1: 4}, notes=Observations((failure(9),))), first.memory, at(6)
        )

        assert again.memory.cause.container.exit_code == 7

    def test_a_job_that_is_recreated(self):
        """Its restart is not counted."""
        of = jobset(max_restarts=0)
        plan = plan_epochs(
            observed(of, {1: 4}, notes=Observations(remade="j")), EpochState(), at(5)
        )

        assert plan.status.patch["deprecatedEpoch"] == 1
        assert plan.status.status.in_place_restart.uncounted_epochs == 1
        assert not plan.begun.charge.restarts

    def test_pods_that_go_with_a_suspension_are_no_failures(self):
        """What was noted while the JobSet was suspended does not count when it is resumed."""
        away = plan_epochs(observed(jobset(suspend=True), {1: 4}), EpochState(), at(0))
        back = plan_epochs(
            observed(jobset(), Histogram({}), notes=Observations((gone(),))), away.memory, at(9)
        )

        assert away.memory.left
        assert not back.memory.left
        assert back.status is None


@pytest.mark.parametrize(
    ("epoch", "version", "now", "expected"),
    [
        (1, 101, 10.0, True),
        (1, 100, 10.0, False),
        (1, 100, 10.0 + STATUS_LAG_S, True),
        (2, 999, 99.0, False),
        (0, 999, 99.0, False),
    ],
    ids=["a later status", "known by then", "long ago", "another epoch", "no epoch"],
)
def test_of_which_run_a_status_is(epoch, version, now, expected):
    """A status shows a run of the synced epoch if it is later than that, or long after."""
    assert expected is SyncedMark(1, 100, 10.0).shows_run(epoch, version, now)


class TestStalls:
    def looks(self, until, pods):
        """When the pods of a barrier that stays closed are looked at, over so many seconds."""
        of, now, memory, seen = jobset(1, 1), 0.0, EpochState(), []

        def members():
            seen.append(now)
            return [job()], pods

        while now < until:
            plan = plan_epochs(observed(of, {1: 1, 2: 3}, members=members), memory, at(now))
            memory, of = plan.memory, stored(of, plan)
            now += plan.result.delay.total_seconds()
        return seen

    def test_looks_become_rare(self):
        """First after a minute, then less and less often, up to ten minutes apart."""
        pods = [pod("a", 1), *(pod(f"b{i}", 2) for i in range(3))]
        times = self.looks(3000, pods)

        assert times[:7] == [60, 120, 240, 480, 960, 1560, 2160]

    def test_the_condition_and_the_event(self):
        """Both name who holds it; the event comes once per epoch, the condition keeps up."""
        of, pods = jobset(1, 1), [pod("a", 1)]
        view = observed(of, {1: 1, 2: 3}, pods=[*pods, *(pod(f"b{i}", 2) for i in range(3))])
        first = plan_epochs(view, EpochState(), at(0))
        told = plan_epochs(view, first.memory, at(60))
        later = plan_epochs(
            attrs.evolve(view, jobset=stored(of, told), members=lambda: ([job()], [])),
            told.memory,
            at(120),
        )
        text = "1 of 4 pods has not come to epoch 2 for more than 60 s: pod 'a' (at epoch 1)"

        assert (first.status, first.memory.missing, first.memory.stalled) == (None, 1, False)
        assert [("True", text)] == condition(told, STALLED)
        assert [(keys.BARRIER_STALLED_CONDITION, text)] == [
            (event.reason, event.message) for event in told.status.events
        ]
        assert (told.memory.missing, told.memory.stalled) == (1, True)
        assert later.status.events == ()
        assert "job 'j' is missing 4 pods" in condition(later, STALLED)[0][1]

    def test_a_barrier_that_opens_is_forgotten(self):
        """When all have come, the time starts anew."""
        memory = EpochState(
            uid="js-uid", waiting_since=0.0, look_at=9.0, stall_told=2, missing=1, stalled=True
        )
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), memory, at(100))

        assert plan.status.patch["syncedEpoch"] == 2
        assert (
            plan.memory.waiting_since,
            plan.memory.stall_told,
            plan.memory.missing,
            plan.memory.stalled,
        ) == (None, 0, 0, False)


class TestMissingMembers:
    """Workers run, but not all of the group is there."""

    def follow(self, of, epochs, until, jobs=None):
        """Plan whenever it is time; when and what was done."""
        now, memory, seen = 0.0, EpochState(), []
        while now <= until:
            view = observed(of, epochs, members=lambda: (jobs or [job()], []))
            plan = plan_epochs(view, memory, at(now))
            seen.append((now, plan.result.summary or plan.status is not None))
            memory, of = plan.memory, stored(of, plan)
            if plan.result.delay is None or of.status.deprecated_epoch:
                break
            now += plan.result.delay.total_seconds()
        return seen

    def test_the_grace(self):
        """After some seconds their epoch is over."""
        assert self.follow(jobset(), {1: 3}, 100) == [(0.0, False), (10.0, "deprecated 1")]

    def test_no_restarts_left(self):
        """It is said, and a minute later the JobSet fails."""
        assert self.follow(jobset(max_restarts=0), {1: 3}, 100) == [
            (0.0, False),
            (10.0, True),
            (70.0, "failed: no restarts left"),
        ]

    @pytest.mark.parametrize("epochs", [{1: 4}, Histogram({1: 3}, succeeded=1)])
    def test_a_whole_group(self, epochs):
        """Nobody is missing of a group of which some have succeeded."""
        assert self.follow(jobset(), epochs, 100) == [(0.0, False)]

    def test_a_pod_that_is_being_deleted_is_missing(self):
        """Its node may be gone, and its object stay for hours."""
        pods = Histogram({1: 4}, leaving=1)

        assert self.follow(jobset(), pods, 100) == [(0.0, False), (10.0, "deprecated 1")]

    def test_jobs_that_are_about_to_end(self):
        """Their pods are not missed; it is looked again less and less often."""
        ending = [job(conditions=[{"type": "FailureTarget", "status": "True"}])]
        times = [time for time, _ in self.follow(jobset(), {1: 3}, 400, jobs=ending)]

        assert times == [0, 10, 20, 40, 80, 160, 320]

    @pytest.mark.parametrize(
        "of",
        [
            jobset(status={"inPlaceRestart": {"pods": 2}}),
            jobset(status={"inPlaceRestart": {"pods": 4, "jobRestartsAtSync": 1}}),
            jobset(status={"inPlaceRestart": {"pods": 4, "resumeTime": "2026-01-01T00:00:00Z"}}),
        ],
        ids=["resized", "recreated", "resumed"],
    )
    def test_pods_that_are_to_come_are_not_missing(self, of):
        """Somebody asked for them, and the others run on until they are there."""
        assert self.follow(of, {1: 3}, 100) == [(0.0, False)]

    def test_it_is_asked_for_once(self):
        """When it begins, and when it is over; in between a timer sees to it."""
        counts, known = Histogram({1: 3}), EpochState(lacking_since=1.0)

        assert needs_plan(jobset(), counts, Observations(), EpochState())
        assert not needs_plan(jobset(), counts, Observations(), known)
        assert needs_plan(jobset(), Histogram({1: 4}), Observations(), known)


class TestMeasures:
    def test_phases_of_a_restart(self):
        """Each phase once: when it is over."""
        of = jobset()
        began = plan_epochs(
            observed(of, {1: 3, 2: 1}, notes=Observations(opened=(2, 4.0))), EpochState(), at(5)
        )
        ended = plan_epochs(
            observed(
                stored(of, began), {2: 4}, notes=Observations(opened=(2, 4.0), single=(2, 7.0))
            ),
            began.memory,
            at(10),
        )

        assert (began.begun.cause, began.begun.times.began, began.ended) == (None, 4.0, None)
        assert ended.ended.times.phases == {"deprecate": 2.0, "gather": 3.0}
        assert (ended.ended.times.lifted, ended.ended.times.began) == (10, 4.0)
        assert ended.begun is None

    def test_all_pods_come_at_once(self):
        """The restart is counted when it ends; nothing of it was to be seen before."""
        plan = plan_epochs(
            observed(jobset(), {2: 4}, notes=Observations(opened=(2, 4.0))), EpochState(), at(5)
        )

        assert plan.begun is plan.ended
        assert plan.ended.times.phases == {}
        assert plan.ended.times.began == 4.0

    def test_a_restart_that_another_manager_began(self):
        """It was counted then."""
        plan = plan_epochs(observed(jobset(1, 1), {2: 4}), EpochState(), at(5))

        assert plan.begun is None

    def test_the_first_start_is_no_restart(self):
        """Nothing is counted."""
        plan = plan_epochs(observed(jobset(0, 0), {1: 4}), EpochState(), at(5))

        assert (plan.begun, plan.ended.charge.restarts) == (None, False)


class TestHistory:
    def test_record_has_the_observed_failure_when_all_pods_come_together(self):
        """A restart has one cause and one beginning, also if a single write has all of it."""
        notes = Observations((failure(7, at=4.0),), opened=(2, 4.5))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (one.cause.reason, one.cause.exit_code, one.detection_millis, one.outcome) == (
            "ContainerFailed",
            7,
            1000,
            "Completed",
        )
        assert plan.begun.cause.container.exit_code == 7

    def test_record_has_phases_when_the_restart_does_not_count(self):
        """They are measured as those of any other restart."""
        of = jobset()
        began = plan_epochs(
            observed(of, {1: 4}, notes=Observations(remade="j")), EpochState(), at(5)
        )
        notes = Observations(opened=(2, 6.0), single=(2, 7.0))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (one,) = ended.status.status.restart_history

        assert (one.counted, one.deprecation_millis, one.gathering_millis) == (False, 2000, 3000)

    def test_a_restart_by_a_failure_that_was_seen(self):
        """Cause and detection come with the first write, phases and the last pod with the second."""
        notes = Observations((failure(137, at=4.0),))
        of = jobset()
        began = plan_epochs(observed(of, {1: 4}, notes=notes), EpochState(), at(5))
        (begun,) = began.status.status.restart_history
        notes = Observations(opened=(2, 6.0), single=(2, 7.0), latest=(2, "q", "n2"))
        ended = plan_epochs(observed(stored(of, began), {2: 4}, notes=notes), began.memory, at(10))
        (done,) = ended.status.status.restart_history

        assert ("InPlace", 2, True, START + timedelta(seconds=4), 1000, "") == (
            begun.kind,
            begun.number,
            begun.counted,
            begun.began_at,
            begun.detection_millis,
            begun.outcome,
        )
        assert (
            RestartCause(
                reason="ContainerFailed",
                pod="p",
                container="worker",
                exit_code=137,
                message="Error",
            )
            == begun.cause
        )
        assert (
            done.deprecation_millis,
            done.gathering_millis,
            done.last_pod,
            done.last_node,
            done.outcome,
        ) == (2000, 3000, "q", "n2", "Completed")

    def test_the_lift_is_reported_with_the_next_write(self):
        """Its end is known only once the write is done that ends it."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        of = stored(of, began)
        ended = plan_epochs(observed(of, {2: 4}), began.memory, at(10)).stored(10.25)
        of = stored(of, ended)
        again = plan_epochs(observed(of, {2: 3, 3: 1}), ended.memory, at(20))

        assert [one.lift_millis for one in again.status.status.restart_history] == [250, None]

    def test_a_restart_that_a_pod_opened(self):
        """Without a failure that was seen, the first pod at the new epoch is named."""
        notes = Observations(opened=(2, 4.0), opener=(2, "p", "n1"))
        plan = plan_epochs(observed(jobset(), {1: 3, 2: 1}, notes=notes), EpochState(), at(5))

        assert RestartCause(reason="PodRestarted", pod="p", node="n1") == (
            plan.status.status.restart_history[-1].cause
        )

    def test_all_pods_come_at_once(self):
        """The restart is remembered by the one write there is."""
        notes = Observations(opened=(2, 4.0), opener=(2, "p", "n1"), latest=(2, "q", "n2"))
        plan = plan_epochs(observed(jobset(), {2: 4}, notes=notes), EpochState(), at(5))
        (one,) = plan.status.status.restart_history

        assert (
            one.outcome,
            one.cause.pod,
            one.last_pod,
            one.detection_millis,
        ) == ("Completed", "p", "q", 1000)

    def test_another_manager_ends_it(self):
        """What it did not see itself, it reckons by the clock on the wall."""
        of = jobset()
        began = plan_epochs(observed(of, {1: 3, 2: 1}), EpochState(), at(5))
        ended = plan_epochs(observed(stored(of, began), {2: 4}), EpochState(), at(9))
        (one,) = ended.status.status.restart_history

        assert (
            one.gathering_millis,
            one.deprecation_millis,
            one.outcome,
        ) == (4000, None, "Completed")

    def test_a_job_recreated_by_hand(self):
        """It is remembered, and not counted."""
        plan = plan_epochs(
            observed(jobset(), {1: 3}, notes=Observations(remade="j")), EpochState(), at(5)
        )
        (one,) = plan.status.status.restart_history

        assert (
            one.kind,
            one.counted,
            one.cause.reason,
            one.cause.job,
        ) == ("InPlace", False, "JobRemade", "j")

    def test_a_gathering_of_new_pods_is_no_restart(self):
        """Neither the first start nor what comes of recreated Jobs is one more."""
        first = plan_epochs(observed(jobset(0, 0), {1: 4}), EpochState(), at(5))

        assert first.status.status.restart_history == ()


class TestUnusableAnnotations:
    def test_each_is_reported_once(self):
        """One Warning for each pod and value, as long as it is there."""
        one, two = InvalidEpoch("a", "a", "x"), InvalidEpoch("b", "b", "y" * 50)
        view = observed(jobset(), {1: 2}, invalid={"a": one}, notes=Observations(invalid=1))
        first = plan_epochs(view, EpochState(), at(0))
        both = attrs.evolve(view, invalid={"a": one, "b": two}, notes=Observations(invalid=2))
        second = plan_epochs(both, first.memory, at(1))
        none = plan_epochs(attrs.evolve(view, invalid={}), second.memory, at(2))
        again = plan_epochs(view, none.memory, at(3))

        assert [event.pod for event in first.notices] == ["a"]
        assert [event.pod for event in second.notices] == ["b"]
        assert second.notices[0].message.endswith(
            f"has the unusable value '{'y' * 40}...'; delete the pod, and its Job makes another one"
        )
        assert none.notices == ()
        assert [event.pod for event in again.notices] == ["a"]


@pytest.mark.parametrize(
    ("of", "epochs", "notes", "memory", "expected"),
    [
        (jobset(), {1: 4}, Observations(), EpochState(), False),
        (jobset(), {1: 3, 2: 1}, Observations(), EpochState(), True),
        (jobset(), {1: 4}, Observations((failure(),)), EpochState(), True),
        (jobset(1, 1), {1: 4}, Observations((failure(),)), EpochState(), False),
        (jobset(2, 1), {2: 4}, Observations((failure(),)), EpochState(), False),
        (jobset(), {1: 4}, Observations(remade="j"), EpochState(), True),
        (jobset(), {1: 4}, Observations(invalid=1), EpochState(), True),
        (jobset(), {1: 4}, Observations(invalid=1), EpochState(invalid=1), False),
        (jobset(suspend=True), {1: 3, 2: 1}, Observations(), EpochState(), False),
    ],
    ids=[
        *("at rest", "a new epoch", "a failure", "a failure that is known", "an old failure"),
        *("a Job made anew", "an unusable annotation", "a known one", "suspended"),
    ],
)
def test_whether_a_plan_is_needed(of, epochs, notes, memory, expected):
    """The one question that is asked at each event."""
    assert expected is bool(needs_plan(of, Histogram(epochs), notes, memory))


class TestMembersThatHaveSucceeded:
    """One of four pods has succeeded when another one fails."""

    COUNTS = Histogram({1: 2, 2: 1}, succeeded=1)

    def plan(self, choice=None, counts=COUNTS):
        """The plan for a JobSet with the user's choice, and the JobSet."""
        of = jobset()
        if choice is not None:
            annotations = {keys.AFTER_SUCCESS_ANNOTATION: choice}
            of = evolve(of, metadata=evolve(of.metadata, annotations=annotations))
        return plan_epochs(observed(of, counts), EpochState(uid="js-uid"), at(0))

    def test_others_restart_in_place_unless_the_user_chooses_otherwise(self):
        """The condition says that the pod that has succeeded does not come along."""
        plan = self.plan()
        ((held, message),) = condition(plan, RESTARTING)

        assert (plan.status.status.deprecated_epoch, plan.status.status.restarts) == (1, 0)
        assert held == "True"
        assert message.endswith("1 pod has succeeded and will not come along")

    def test_all_jobs_are_recreated_when_the_user_asks_for_it(self):
        """It is one restart that counts, and no epoch is deprecated."""
        status = self.plan("Recreate").status.status
        ((held, message),) = condition(self.plan("Recreate"), keys.RESTARTING_CONDITION)
        (record,) = status.restart_history

        assert (status.restarts, status.restarts_count_towards_max) == (1, 1)
        assert (status.synced_epoch, status.deprecated_epoch) == (1, 0)
        assert (record.kind, record.number, record.counted) == ("Recreate", 1, True)
        assert held == "True"
        assert "recreating all jobs, since 1 pod has succeeded already" in message

    def test_group_restarts_in_place_when_no_pod_has_succeeded(self):
        """The choice is about groups that cannot come together again."""
        status = self.plan("Recreate", Histogram({1: 3, 2: 1})).status.status

        assert (status.deprecated_epoch, status.restarts) == (1, 0)
