"""Pauses between restarts in quick succession, and budgets of restarts within a window."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.validation.restart_settings import restart_settings
from jobsetpy.reconcilers.rules.backoff import OFF, RestartBackoff
from jobsetpy.reconcilers.rules.plan import CreateJob, JobsMemory
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import decoded, jobset_json, merge, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = keys.MAX_RESTARTS_WINDOW_ANNOTATION
PAUSE = keys.RESTART_BACKOFF_ANNOTATION


class RestartGroup:
    """Four pods that restart in place, in virtual time."""

    def __init__(self, *, max_restarts=100, notes=None, backoff=None):
        policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
        job = replicated_job("w", 1, parallelism=4)
        self.json = jobset_json(job, failurePolicy=policy, annotations=notes)
        self.backoff = backoff or RestartBackoff()
        self.memory = EpochState()
        self.at = 0.0
        self.wall = START
        self.writes = 0

    @property
    def jobset(self):
        return decoded(JobSet, self.json)

    @property
    def status(self):
        return self.jobset.status

    def plan(self, **epochs):
        """Reconcile once with pods at these epochs, such as ``e2=4``; return the plan."""
        counts = {int(name[1:]): count for name, count in epochs.items()}
        observed = ObservedEpochs(
            jobset=self.jobset, pods=GroupCounts(counts), backoff=self.backoff
        )
        now = Now(self.wall + timedelta(seconds=self.at), self.at)
        plan = plan_epochs(observed, self.memory, now)
        self.memory = plan.memory
        if plan.status is not None:
            self.writes += 1
            patch = json.loads(json.dumps(plan.status.patch))
            self.json["status"] = merge(self.json.get("status"), patch)
        return plan

    def restart(self, *, ran_s=0.0, new_manager=False):
        """Restart after the workers have run for a while; return the seconds until the start."""
        self.at += ran_s
        epoch = self.status.synced_epoch + 1
        self.plan(**{f"e{epoch - 1}": 3, f"e{epoch}": 1})
        assert self.status.deprecated_epoch == epoch - 1
        waited = 0.0
        while True:
            if new_manager:
                self.memory = EpochState()
            plan = self.plan(**{f"e{epoch}": 4})
            if self.status.synced_epoch == epoch:
                return waited
            assert plan.status is None
            step = plan.result.delay.total_seconds()
            assert step > 0
            waited += step / 2
            self.at += step / 2
            if step < 0.01:
                self.at += step
                waited += step

    def condition(self, kind):
        """Return a condition, ``None`` if it is absent."""
        return next((c for c in self.status.conditions if c.type == kind), None)


def running(**more):
    """Return a restart group whose workers run."""
    group = RestartGroup(**more)
    group.plan(e1=4)
    assert group.status.synced_epoch == 1
    return group


@pytest.mark.parametrize("new_manager", [False, True], ids=["one manager", "a new one each time"])
def test_starts_wait_after_restarts_in_quick_succession(new_manager):
    """The first does not wait, then the pause is doubled; each restart costs two writes."""
    group = running()
    waits = [round(group.restart(ran_s=5, new_manager=new_manager), 1) for _ in range(12)]

    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert group.writes == 1 + 2 * 12


def test_long_run_ends_the_series():
    """The next restart is the first of another series."""
    group = running()
    assert [round(group.restart(ran_s=10), 1) for _ in range(4)] == [0, 1, 2, 4]
    assert round(group.restart(ran_s=299), 1) == 8
    assert round(group.restart(ran_s=301), 1) == 0
    assert round(group.restart(ran_s=10), 1) == 1


def test_condition_gives_the_pause_and_its_reason():
    """Users of ``kubectl describe`` see why nothing starts."""
    group = running()
    for _ in range(4):
        group.restart(ran_s=15)
    group.at += 15
    group.plan(e5=3, e6=1)

    message = group.condition("RestartingInPlace").message
    expected = "3 pods to follow; waits 8 s before the next start: 4 restarts in 67 s"
    assert message.endswith(expected)


def test_condition_of_a_single_restart_gives_no_pause():
    """It does not wait."""
    group = running()
    group.restart(ran_s=1)

    assert "waits" not in group.condition("RestartingInPlace").message


@pytest.mark.parametrize(
    "more",
    [{"notes": {PAUSE: "0"}}, {"notes": {PAUSE: "0s"}}, {"backoff": OFF}],
    ids=["by the JobSet", "with a unit", "for all"],
)
def test_pauses_are_disabled_by_settings(more):
    """No start waits, and nothing is stored for pauses."""
    group = running(**more)

    assert [group.restart(ran_s=1) for _ in range(6)] == [0] * 6
    assert "restartPacing" not in group.json["status"]


def test_jobset_may_have_its_own_pauses():
    """By annotations; an invalid value is ignored."""
    notes = {
        PAUSE: "10s",
        keys.RESTART_BACKOFF_MAX_ANNOTATION: "15s",
        keys.RESTART_BACKOFF_RESET_ANNOTATION: "soon",
    }
    group = running(notes=notes, backoff=OFF)

    assert [round(group.restart(ran_s=1)) for _ in range(4)] == [0, 10, 15, 15]


def test_pause_ends_when_pauses_are_disabled():
    """A user who has fixed the cause does not have to wait."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    group.plan(e11=4)
    assert group.status.synced_epoch == 10
    group.json["metadata"]["annotations"] = {PAUSE: "0"}
    group.plan(e11=4)

    assert group.status.synced_epoch == 11


def test_start_waits_when_all_pods_reach_an_epoch_together():
    """The pause is stored first, so that the next manager continues it."""
    group = running()
    group.restart()
    group.plan(e3=4)
    assert (group.status.synced_epoch, group.status.deprecated_epoch) == (2, 2)
    group.memory = EpochState()
    plan = group.plan(e3=4)
    assert plan.status is None
    assert 0.9 < plan.result.delay.total_seconds() <= 1
    group.at += 1
    group.plan(e3=4)

    assert group.status.synced_epoch == 3


def test_resumed_jobset_does_not_wait():
    """A user who resumes it wants it to run."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    condition = {"type": "Suspended", "status": "False", "reason": "r", "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:30Z"}  # fmt: skip
    group.json["status"]["conditions"].append(condition)
    group.plan(e11=4)

    assert group.status.synced_epoch == 11


def test_start_waits_for_its_own_pause_at_most_when_its_time_is_far_ahead():
    """Clocks of managers differ; this is the second restart of the series."""
    group = running(notes={keys.RESTART_BACKOFF_MAX_ANNOTATION: "20s"})
    group.restart()
    group.plan(e2=3, e3=1)
    group.json["status"]["restartPacing"]["notBefore"] = "2026-06-01T00:00:00Z"
    group.memory = EpochState()

    assert group.plan(e3=4).result.delay == timedelta(seconds=1)


@pytest.mark.parametrize("hours", [-2, -0.1, 0.0001, 0.1, 2])
@pytest.mark.parametrize("new_manager", [False, True], ids=["same manager", "another manager"])
def test_pause_keeps_its_length_when_the_wall_clock_is_set(hours, new_manager):
    """Neither a clock that is set back nor one that is set forward changes the start."""
    group = running()
    for _ in range(4):
        group.restart(ran_s=5)
    group.plan(e5=3, e6=1)
    assert round(group.plan(e6=4).result.delay.total_seconds(), 1) == 8
    group.wall += timedelta(hours=hours)
    if new_manager:
        group.memory = EpochState()
    waited = 0
    while group.status.synced_epoch < 6:
        group.plan(e6=4)
        if group.status.synced_epoch < 6:
            group.at += 0.5
            waited += 0.5

    # Another manager can only compare the clocks, once.
    assert (0 if new_manager and hours > 0 else 8) <= waited <= 8


@pytest.mark.parametrize("hours", [-2, 2])
def test_series_continues_and_ends_when_the_wall_clock_is_set(hours):
    """The manager has measured how long the workers ran."""
    group = running()
    for _ in range(3):
        group.restart(ran_s=5)
    group.wall += timedelta(hours=hours)
    assert round(group.restart(ran_s=5)) == 4
    group.wall += timedelta(hours=hours)

    assert round(group.restart(ran_s=301)) == 0


def test_series_ends_after_a_run_of_unknown_length_when_another_manager_is_far_behind():
    """A start in the future does not tell how long the workers ran."""
    group = running()
    for _ in range(5):
        group.restart(ran_s=5)
    group.wall -= timedelta(hours=2)
    group.memory = EpochState()

    assert round(group.restart(ran_s=5)) == 0


def test_stalled_condition_is_cleared_while_all_pods_wait_for_a_pause():
    """No pod is missing then."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    stalled = {"type": "BarrierStalled", "status": "True", "reason": "PodsMissing", "message": "m"}
    group.json["status"]["conditions"].append(stalled)
    group.plan(e11=4)
    found = group.condition("BarrierStalled")
    assert (found.status, found.reason) == ("False", "RestartBackoff")
    assert group.plan(e11=4).status is None


# ---- budgets within a window ---------------------------------------------------------------------


def test_jobset_fails_when_too_many_restarts_are_within_the_window():
    """Older restarts do not count."""
    group = running(max_restarts=2, notes={WINDOW: "1h", PAUSE: "0"})
    for ran_s in (0, 1000, 2700, 1000, 3000):
        group.restart(ran_s=ran_s)
    group.restart(ran_s=700)
    group.at += 100
    group.plan(e7=3, e8=1)
    failed = group.condition("Failed")

    assert failed.reason == "ReachedMaxRestarts"
    assert failed.message.endswith("max number of restarts within 1 h")
    assert len(group.status.restart_pacing.counted_times) <= 3


def test_restarts_of_a_window_are_forgotten_when_the_clock_is_set_back():
    """They would otherwise count for hours, and could end the JobSet."""
    group = running(max_restarts=1, notes={WINDOW: "1h", PAUSE: "0"})
    group.restart()
    group.wall -= timedelta(hours=5)
    group.restart(ran_s=2 * 3600)

    assert group.condition("Failed") is None
    assert len(group.status.restart_pacing.counted_times) == 1


def test_restarts_of_a_window_count_when_another_managers_clock_is_a_little_behind():
    """A small difference between two clocks frees no budget."""
    group = running(max_restarts=1, notes={WINDOW: "1h", PAUSE: "0"})
    group.restart()
    group.wall -= timedelta(seconds=30)
    group.plan(e2=3, e3=1)

    assert group.condition("Failed").reason == "ReachedMaxRestarts"


def test_number_of_stored_times_is_bounded():
    """For any number of restarts and any maximum."""
    group = running(max_restarts=2000, notes={WINDOW: "24h", PAUSE: "0"})
    for _ in range(130):
        group.restart()

    assert len(group.status.restart_pacing.counted_times) == 101


def test_restart_in_place_that_becomes_a_recreation_counts_once():
    """The recreation counts by its own rule."""
    group = running(max_restarts=5, notes={WINDOW: "1h"})
    group.plan(e1=3, e2=1)
    assert len(group.status.restart_pacing.counted_times) == 1
    group.json["status"]["restarts"] = 1  # by a rule that does not count it
    group.plan(e2=4)

    assert group.status.synced_epoch == 2
    assert group.status.restart_pacing.counted_times == ()


# ---- recreation ----------------------------------------------------------------------------------


def child(uid, *conditions, **metadata):
    """Return the JobSet's Job, of the attempt that its UID names."""
    attempt = uid.removeprefix("u")
    labels = {keys.RESTART_ATTEMPT: attempt, keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}
    metadata |= {"name": "test-js-w-0", "namespace": "default", "uid": uid, "labels": labels}
    return decoded(Job, {"metadata": metadata, "status": {"conditions": list(conditions)}})


def creates(plan):
    """Return True if a plan creates a Job."""
    return any(isinstance(action, CreateJob) for action in plan.actions)


class Recreations:
    """A JobSet of one Job that fails repeatedly and is recreated."""

    def __init__(self, *, notes=None, **more):
        policy = {"maxRestarts": 50, **more}
        job = replicated_job("w", 1)
        self.json = jobset_json(
            job, failurePolicy=policy, annotations={PAUSE: "1s"} | (notes or {})
        )
        self.at = 0.0
        self.wall = START
        self.memory = JobsMemory()

    def plan(self, *jobs):
        """Reconcile once with these Jobs; return the plan."""
        observed = ObservedJobSet(
            key=ObjectKey("default", "test-js"), jobset=decoded(JobSet, self.json), jobs=jobs,
            surroundings={("Service", "test-js")}, backoff=RestartBackoff(),
        )  # fmt: skip
        now = Now(self.wall + timedelta(seconds=self.at), self.at)
        plan = plan_jobs(observed, attrs.evolve(self.memory, children=frozenset()), now)
        self.memory = plan.memory
        if plan.status is not None:
            patch = json.loads(json.dumps(plan.status.patch))
            self.json["status"] = merge(self.json.get("status"), patch)
        return plan

    def fail(self):
        """Let the Job of the current attempt fail."""
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                  "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        self.plan(child(f"u{self.json.get('status', {}).get('restarts', 0)}", failed))

    def recreate(self):
        """Let the Job fail; return the seconds until the next one is created."""
        self.fail()
        plan = self.plan()
        if creates(plan):
            return 0
        wait_s = plan.result.delay.total_seconds()
        self.at += wait_s
        assert creates(self.plan())
        return wait_s

    def condition(self, kind):
        """Return a condition, ``None`` if it is absent."""
        return next((c for c in self.json["status"]["conditions"] if c["type"] == kind), None)


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
def test_recreations_do_not_wait_by_default(strategy):
    """As in the Go controller; nothing is stored for a pause."""
    jobs = Recreations(restartStrategy=strategy)
    del jobs.json["metadata"]["annotations"]

    assert [jobs.recreate() for _ in range(6)] == [0] * 6
    assert "restartPacing" not in jobs.json["status"]


def test_recreations_wait_after_failures_in_quick_succession():
    """Old Jobs are deleted immediately; new ones are created after the pause."""
    jobs = Recreations()
    waits = []
    for _ in range(6):
        jobs.at += 5
        waits.append(round(jobs.recreate(), 1))
    condition = jobs.condition("RestartingJobSet")

    assert waits == [0, 1, 2, 4, 8, 16]
    assert "; waits 16 s before the next start: 5 restarts in " in condition["message"]
    jobs.at += 301
    assert jobs.recreate() == 0


@pytest.mark.parametrize("hours", [-2, 2])
def test_recreation_waits_for_its_pause_when_the_wall_clock_is_set(hours):
    """The monotonic clock measures it from the time when the pause was first seen."""
    jobs = Recreations()
    for _ in range(4):
        jobs.recreate()
    jobs.fail()
    waits = [jobs.plan().result.delay.total_seconds()]
    jobs.wall += timedelta(hours=hours)
    for _ in range(7):
        jobs.at += 1
        waits.append(jobs.plan().result.delay.total_seconds())
    jobs.at += 1

    assert waits == [8, 7, 6, 5, 4, 3, 2, 1]
    assert creates(jobs.plan())


@pytest.mark.parametrize(
    ("finalizers", "named"),
    [
        (["example.com/x"], "test-js-w-0 (kept by example.com/x): they"),
        (["foregroundDeletion", "example.com/x"], "test-js-w-0: they"),
    ],
    ids=["another's", "pods are not gone yet"],
)
def test_finalizers_are_named_when_only_those_of_others_keep_a_job(finalizers, named):
    """In the condition of all deletions that take too long."""
    jobs = Recreations()
    jobs.recreate()
    old = child("u0", finalizers=finalizers, deletionTimestamp="2026-01-01T00:00:00Z")
    first = jobs.plan(old)
    jobs.at += 330
    jobs.wall += timedelta(seconds=330)
    late = jobs.plan(old)

    assert first.result.delay == timedelta(seconds=330)
    (condition,) = [c for c in late.status.status.conditions if c.type == "DeletionStalled"]
    assert named in condition.message


def finished(at):
    """Return a JobSet that completed at this time, with a time to live of 60 s."""
    jobs = Recreations()
    jobs.json["spec"]["ttlSecondsAfterFinished"] = 60
    end = {"type": "Completed", "status": "True", "reason": "r", "message": "m"}
    jobs.json["status"] = {"conditions": [{**end, "lastTransitionTime": at}]}
    return jobs


@pytest.mark.parametrize("hours", [-2, 2])
def test_finished_jobset_is_deleted_in_time_when_the_wall_clock_is_set(hours):
    """Neither later nor earlier than its time to live."""
    jobs = finished("2026-01-01T00:00:00Z")
    assert jobs.plan().result.delay == timedelta(seconds=60)
    jobs.wall += timedelta(hours=hours)
    jobs.at += 59
    assert jobs.plan().result.delay == timedelta(seconds=1)
    jobs.at += 1

    assert [type(action).__name__ for action in jobs.plan().actions] == ["DeleteJobSet"]


def test_finished_jobset_is_kept_for_its_time_at_most_when_a_manager_is_behind():
    """The clock of the previous manager, which wrote the end, was two hours ahead."""
    jobs = finished("2026-01-01T02:00:00Z")

    assert jobs.plan().result.delay == timedelta(seconds=60)


def test_recreations_within_the_window_count():
    """As restarts in place do."""
    jobs = Recreations(maxRestarts=1, notes={WINDOW: "10m", PAUSE: "0"})
    jobs.recreate()
    jobs.at += 601
    jobs.recreate()
    assert jobs.condition("Failed") is None
    jobs.at += 500
    jobs.fail()

    assert jobs.condition("Failed")["reason"] == "ReachedMaxRestarts"


def test_suspended_jobset_gets_its_jobs_during_a_pause():
    """They are suspended as well, so nothing starts."""
    jobs = Recreations()
    for _ in range(5):
        jobs.recreate()
    jobs.json["status"]["restartPacing"]["notBefore"] = "2026-01-01T00:05:00Z"
    assert not jobs.plan().actions
    jobs.json["spec"]["suspend"] = True

    assert jobs.plan().actions


# ---- admission -----------------------------------------------------------------------------------


def test_window_limits_max_restarts():
    """The time of each restart within it is stored in the status."""
    policy = {"maxRestarts": 101}
    jobset = jobset_json(failurePolicy=policy, annotations={WINDOW: "24h"})
    (problem,) = restart_settings(jobset)

    assert problem.field == "spec.failurePolicy.maxRestarts"
    assert "must be at most 100" in problem.message
    assert evolve(decoded(JobSet, jobset)).metadata.annotations == {WINDOW: "24h"}
