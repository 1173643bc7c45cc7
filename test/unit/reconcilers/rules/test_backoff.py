"""Restarts over time: pauses between those in quick succession, and budgets within a window."""

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
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
from jobsetpy.reconcilers.restart_in_place.validation.restart_pace import (
    restart_pace,
    restart_pace_update,
)
from jobsetpy.reconcilers.rules.backoff import OFF, RestartBackoff
from jobsetpy.reconcilers.rules.plan import CreateJob, JobsMemory
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.testing.jobsets import decoded, jobset_json, merge, replicated_job

START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = keys.MAX_RESTARTS_WINDOW_ANNOTATION
PAUSE = keys.RESTART_BACKOFF_ANNOTATION


class Group:
    """A group of four pods that restarts in place, in virtual time."""

    def __init__(self, *, max_restarts=100, notes=None, backoff=None):
        policy = {"maxRestarts": max_restarts, "restartStrategy": "InPlaceRestart"}
        self.json = jobset_json(replicated_job("w", 1, parallelism=4), failurePolicy=policy)
        self.json["metadata"]["annotations"] = notes or {}
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
        """One reconcile with the pods at some epochs, such as ``e2=4``."""
        counts = {int(name[1:]): count for name, count in epochs.items()}
        observed = ObservedEpochs(jobset=self.jobset, pods=Histogram(counts), backoff=self.backoff)
        now = Now(self.wall + timedelta(seconds=self.at), self.at)
        plan = plan_epochs(observed, self.memory, now)
        self.memory = plan.memory
        if plan.status is not None:
            self.writes += 1
            patch = json.loads(json.dumps(plan.status.patch))
            self.json["status"] = merge(self.json.get("status"), patch)
        return plan

    def restart(self, *, lived=0.0, new_manager=False):
        """The group's next restart after its workers have run for a while; how long it waits."""
        self.at += lived
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

    def condition(self):
        (found,) = [c for c in self.status.conditions if c.type == "RestartingInPlace"]
        return found


def running(**more):
    group = Group(**more)
    group.plan(e1=4)
    assert group.status.synced_epoch == 1
    return group


@pytest.mark.parametrize("new_manager", [False, True], ids=["one manager", "a new one each time"])
def test_starts_after_restarts_in_quick_succession_wait(new_manager):
    """The first goes on at once, then the pause is doubled; two writes each, whoever leads."""
    group = running()
    waits = [round(group.restart(lived=5, new_manager=new_manager), 1) for _ in range(12)]

    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert group.writes == 1 + 2 * 12


def test_a_long_run_ends_the_series():
    """After it a restart is the first of another series."""
    group = running()
    assert [round(group.restart(lived=10), 1) for _ in range(4)] == [0, 1, 2, 4]
    assert round(group.restart(lived=299), 1) == 8
    assert round(group.restart(lived=301), 1) == 0
    assert round(group.restart(lived=10), 1) == 1


def test_the_condition_says_how_long_and_why():
    """The reader of ``kubectl describe`` sees why nothing starts."""
    group = running()
    for _ in range(4):
        group.restart(lived=15)
    group.at += 15
    group.plan(e5=3, e6=1)

    assert group.condition().message.endswith(
        "3 pods to follow; waits 8 s before the next start: 4 restarts in 67 s"
    )


def test_a_single_restart_is_reported_as_ever():
    """Nothing is said of a wait that is none."""
    group = running()
    group.restart(lived=1)

    assert "waits" not in group.condition().message


@pytest.mark.parametrize(
    "more",
    [{"notes": {PAUSE: "0"}}, {"notes": {PAUSE: "0s"}}, {"backoff": OFF}],
    ids=["by the JobSet", "with a unit", "for all"],
)
def test_it_can_be_switched_off(more):
    """Then nothing waits, and nothing more is stored."""
    group = running(**more)

    assert [group.restart(lived=1) for _ in range(6)] == [0] * 6
    assert "restartPacing" not in group.json["status"]


def test_a_jobset_has_pauses_of_its_own():
    """By annotations; what cannot be read is as if it were not there."""
    notes = {
        PAUSE: "10s",
        keys.RESTART_BACKOFF_MAX_ANNOTATION: "15s",
        keys.RESTART_BACKOFF_RESET_ANNOTATION: "soon",
    }
    group = running(notes=notes, backoff=OFF)

    assert [round(group.restart(lived=1)) for _ in range(4)] == [0, 10, 15, 15]


def test_the_pause_ends_when_it_is_switched_off():
    """A user who has mended what was wrong does not have to wait."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    group.plan(e11=4)
    assert group.status.synced_epoch == 10
    group.json["metadata"]["annotations"] = {PAUSE: "0"}
    group.plan(e11=4)

    assert group.status.synced_epoch == 11


def test_a_group_that_came_all_at_once_waits_as_well():
    """That it waits is written first: the next manager goes on from there."""
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


def test_a_resumed_group_does_not_wait():
    """Who suspends and resumes wants it to run."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    condition = {"type": "Suspended", "status": "False", "reason": "r", "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:30Z"}  # fmt: skip
    group.json["status"]["conditions"].append(condition)
    group.plan(e11=4)

    assert group.status.synced_epoch == 11


def test_a_start_is_delayed_by_its_own_pause_at_most_when_its_time_is_far_ahead():
    """Managers' clocks differ; this is the second restart of the series."""
    group = running(notes={keys.RESTART_BACKOFF_MAX_ANNOTATION: "20s"})
    group.restart()
    group.plan(e2=3, e3=1)
    group.json["status"]["restartPacing"]["notBefore"] = "2026-06-01T00:00:00Z"
    group.memory = EpochState()

    assert group.plan(e3=4).result.delay == timedelta(seconds=1)


@pytest.mark.parametrize("hours", [-2, -0.1, 0.0001, 0.1, 2])
@pytest.mark.parametrize("new_manager", [False, True], ids=["same manager", "another manager"])
def test_a_pause_keeps_its_length_when_the_wall_clock_is_set(hours, new_manager):
    """Neither a clock that is set back nor one that jumps ahead changes when workers start."""
    group = running()
    for _ in range(4):
        group.restart(lived=5)
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
def test_a_series_continues_and_ends_when_the_wall_clock_is_set(hours):
    """The manager that let the workers run knows how long they did."""
    group = running()
    for _ in range(3):
        group.restart(lived=5)
    group.wall += timedelta(hours=hours)
    assert round(group.restart(lived=5)) == 4
    group.wall += timedelta(hours=hours)

    assert round(group.restart(lived=301)) == 0


def test_a_run_of_unknown_length_ends_the_series_when_another_manager_is_far_behind():
    """A start that lies in the future says nothing of the run after it."""
    group = running()
    for _ in range(5):
        group.restart(lived=5)
    group.wall -= timedelta(hours=2)
    group.memory = EpochState()

    assert round(group.restart(lived=5)) == 0


def test_the_stalled_condition_is_taken_back_while_all_wait():
    """Nobody is missing then."""
    group = running()
    for _ in range(9):
        group.restart()
    group.plan(e10=3, e11=1)
    stalled = {"type": "BarrierStalled", "status": "True", "reason": "PodsMissing", "message": "m"}
    group.json["status"]["conditions"].append(stalled)
    group.plan(e11=4)
    (found,) = [c for c in group.status.conditions if c.type == "BarrierStalled"]

    assert (found.status, found.reason) == ("False", "RestartBackoff")
    assert group.plan(e11=4).status is None


# ---- budgets within a window ---------------------------------------------------------------------


def test_max_restarts_within_a_window():
    """Restarts that are long ago do not count; one too many within the time ends the JobSet."""
    group = running(max_restarts=2, notes={WINDOW: "1h", PAUSE: "0"})
    for lived in (0, 1000, 2700, 1000, 3000):
        group.restart(lived=lived)
    group.restart(lived=700)
    group.at += 100
    group.plan(e7=3, e8=1)
    (failed,) = [c for c in group.status.conditions if c.type == "Failed"]

    assert failed.reason == "ReachedMaxRestarts"
    assert failed.message.endswith("max number of restarts within 1 h")
    assert len(group.status.restart_pacing.counted_times) <= 3


def test_restarts_of_a_window_are_forgotten_when_the_clock_was_set_back():
    """Counted until the clock comes there again, they would end a JobSet hours after them."""
    group = running(max_restarts=1, notes={WINDOW: "1h", PAUSE: "0"})
    group.restart()
    group.wall -= timedelta(hours=5)
    group.restart(lived=2 * 3600)

    assert [c.type for c in group.status.conditions if c.type == "Failed"] == []
    assert len(group.status.restart_pacing.counted_times) == 1


def test_restarts_of_a_window_count_when_another_managers_clock_is_a_little_behind():
    """A difference between two clocks gives nothing back."""
    group = running(max_restarts=1, notes={WINDOW: "1h", PAUSE: "0"})
    group.restart()
    group.wall -= timedelta(seconds=30)
    group.plan(e2=3, e3=1)

    assert [c.reason for c in group.status.conditions if c.type == "Failed"] == [
        "ReachedMaxRestarts"
    ]


def test_what_is_remembered_is_bounded():
    """However often a group restarts, and whatever it may."""
    group = running(max_restarts=2000, notes={WINDOW: "24h", PAUSE: "0"})
    for _ in range(130):
        group.restart()

    assert len(group.status.restart_pacing.counted_times) == 101


def test_a_restart_in_place_that_became_a_recreation_counts_once():
    """Jobs that were recreated meanwhile are counted themselves, or not."""
    group = running(max_restarts=5, notes={WINDOW: "1h"})
    group.plan(e1=3, e2=1)
    assert len(group.status.restart_pacing.counted_times) == 1
    group.json["status"]["restarts"] = 1  # by a rule that does not count it
    group.plan(e2=4)

    assert group.status.synced_epoch == 2
    assert group.status.restart_pacing.counted_times == ()


# ---- recreation ----------------------------------------------------------------------------------


class Jobs:
    """A JobSet of one Job that fails again and again, and is recreated."""

    def __init__(self, **more):
        notes = more.pop("notes", {})
        self.json = jobset_json(replicated_job("w", 1), failurePolicy={"maxRestarts": 50, **more})
        self.json["metadata"]["annotations"] = notes
        self.at = 0.0
        self.wall = START
        self.memory = JobsMemory()

    def plan(self, *jobs):
        """One reconcile with these Jobs."""
        observed = ObservedJobSet(
            key=ObjectKey("default", "test-js"), jobset=decoded(JobSet, self.json), jobs=jobs,
            services=frozenset({"test-js"}), backoff=RestartBackoff(),
        )  # fmt: skip
        now = Now(self.wall + timedelta(seconds=self.at), self.at)
        plan = plan_jobs(observed, attrs.evolve(self.memory, children=frozenset()), now)
        self.memory = plan.memory
        if plan.status is not None:
            self.json["status"] = merge(
                self.json.get("status"), json.loads(json.dumps(plan.status.patch))
            )
        return plan

    def ends(self):
        """The Job of the present attempt fails."""
        attempt = self.json.get("status", {}).get("restarts", 0)
        labels = {
            keys.RESTART_ATTEMPT: str(attempt),
            keys.REPLICATED_JOB_NAME: "w",
            keys.JOB_INDEX: "0",
        }
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                  "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        meta = {
            "name": "test-js-w-0",
            "namespace": "default",
            "uid": f"u{attempt}",
            "labels": labels,
        }
        self.plan(decoded(Job, {"metadata": meta, "status": {"conditions": [failed]}}))

    def fails(self):
        """It fails; how long the next one waits."""
        self.ends()
        plan = self.plan()
        if any(isinstance(action, CreateJob) for action in plan.actions):
            return 0
        wait_s = plan.result.delay.total_seconds()
        self.at += wait_s
        assert any(isinstance(action, CreateJob) for action in self.plan().actions)
        return wait_s

    def failed(self):
        return [c for c in self.json["status"]["conditions"] if c["type"] == "Failed"]


def test_recreations_in_quick_succession_wait():
    """The Jobs of the attempt before go at once; the next ones are made after the pause."""
    jobs = Jobs()
    waits = []
    for _ in range(6):
        jobs.at += 5
        waits.append(round(jobs.fails(), 1))
    (condition,) = [c for c in jobs.json["status"]["conditions"] if c["type"] == "RestartingJobSet"]

    assert waits == [0, 1, 2, 4, 8, 16]
    assert "; waits 16 s before the next start: 5 restarts in " in condition["message"]
    jobs.at += 301
    assert jobs.fails() == 0


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_recreation_waits_for_its_pause_when_the_wall_clock_is_set(hours):
    """Measured on the monotonic clock from when the pause was first seen."""
    jobs = Jobs()
    for _ in range(4):
        jobs.fails()
    jobs.ends()
    waits = [jobs.plan().result.delay.total_seconds()]
    jobs.wall += timedelta(hours=hours)
    for _ in range(7):
        jobs.at += 1
        waits.append(jobs.plan().result.delay.total_seconds())
    jobs.at += 1

    assert waits == [8, 7, 6, 5, 4, 3, 2, 1]
    assert any(isinstance(action, CreateJob) for action in jobs.plan().actions)


@pytest.mark.parametrize(
    ("finalizers", "messages"),
    [
        (["example.com/x"], 1),
        (["foregroundDeletion", "example.com/x"], 0),
        (["foregroundDeletion"], 0),
    ],
    ids=["another's", "pods are not gone yet", "the garbage collector's"],
)
def test_a_job_is_reported_when_only_finalizers_of_others_keep_it(finalizers, messages):
    """Once, after a minute: nothing can be created in its place, for ever perhaps."""
    jobs = Jobs()
    jobs.fails()
    meta = {"name": "test-js-w-0", "namespace": "default", "uid": "u0", "finalizers": finalizers,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": {keys.RESTART_ATTEMPT: "0", keys.REPLICATED_JOB_NAME: "w",
                       keys.JOB_INDEX: "0"}}  # fmt: skip
    old = decoded(Job, {"metadata": meta})
    first = jobs.plan(old)
    jobs.at += 59
    early = jobs.plan(old)
    jobs.at += 1
    late = [jobs.plan(old), jobs.plan(old)]

    assert first.result.delay == (timedelta(seconds=60) if messages else None)
    assert (first.notices, early.notices) == ((), ())
    assert [len(plan.notices) for plan in late] == [messages, 0]
    if messages:
        assert late[0].notices[0].reason == "JobHeldByFinalizers"
        assert (
            late[0]
            .notices[0]
            .message.startswith(
                "job 'test-js-w-0' is deleted, but its finalizers keep it: example.com/x; no other"
            )
        )


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_finished_jobset_is_deleted_after_its_time_when_the_wall_clock_is_set(hours):
    """Not hours later, and not hours too soon."""
    jobs = Jobs()
    jobs.json["spec"]["ttlSecondsAfterFinished"] = 60
    end = {"type": "Completed", "status": "True", "reason": "r", "message": "m",
           "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    jobs.json["status"] = {"conditions": [end]}
    assert jobs.plan().result.delay == timedelta(seconds=60)
    jobs.wall += timedelta(hours=hours)
    jobs.at += 59
    assert jobs.plan().result.delay == timedelta(seconds=1)
    jobs.at += 1

    assert [type(action).__name__ for action in jobs.plan().actions] == ["DeleteJobSet"]


def test_a_finished_jobset_is_kept_for_its_time_at_most_when_a_manager_is_behind():
    """The successor's clock is two hours behind that of the manager that wrote the end."""
    jobs = Jobs()
    jobs.json["spec"]["ttlSecondsAfterFinished"] = 60
    end = {"type": "Completed", "status": "True", "reason": "r", "message": "m",
           "lastTransitionTime": "2026-01-01T02:00:00Z"}  # fmt: skip
    jobs.json["status"] = {"conditions": [end]}

    assert jobs.plan().result.delay == timedelta(seconds=60)


def test_recreations_within_a_window():
    """They count as restarts in place do."""
    jobs = Jobs(maxRestarts=1, notes={WINDOW: "10m", PAUSE: "0"})
    jobs.fails()
    jobs.at += 601
    jobs.fails()
    assert not jobs.failed()
    jobs.at += 500
    jobs.ends()

    assert jobs.failed()[0]["reason"] == "ReachedMaxRestarts"


def test_a_suspended_jobset_gets_its_jobs():
    """They are suspended, too: nothing starts."""
    jobs = Jobs()
    for _ in range(5):
        jobs.fails()
    jobs.json["status"]["restartPacing"]["notBefore"] = "2026-01-01T00:05:00Z"
    assert not jobs.plan().actions
    jobs.json["spec"]["suspend"] = True

    assert jobs.plan().actions


# ---- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "value", "why"),
    [
        (PAUSE, "0", ""),
        (PAUSE, "90s", ""),
        (WINDOW, "24h", ""),
        (WINDOW, "1d", "must be a duration such as 90s, 5m or 24h"),
        (WINDOW, "0s", "must be a duration such as 90s, 5m or 24h"),
        (PAUSE, "soon", "must be a duration such as 90s, 5m or 24h, or 0 for none"),
        (PAUSE, "-1s", "must be a duration such as 90s, 5m or 24h, or 0 for none"),
        (keys.RESTART_BACKOFF_MAX_ANNOTATION, "", "must be a duration such as 90s, 5m or 24h"),
        (keys.RESTART_BACKOFF_RESET_ANNOTATION, "9999h", "must be at most 8784h (366 days)"),
    ],
)
def test_annotations_are_checked(note, value, why):
    """The error names the annotation, what it has, and what would be right; at each change, too."""
    jobset = jobset_json(replicated_job("w", 1))
    jobset["metadata"]["annotations"] = {note: value}
    wanted = [f'metadata.annotations[{note}]: Invalid value: "{value}": {why}'] if why else []

    assert [str(e) for e in restart_pace(jobset)] == wanted
    assert [str(e) for e in validate_create(jobset) if note in str(e)] == wanted
    assert [
        str(e) for e in restart_pace_update(jobset_json(replicated_job("w", 1)), jobset)
    ] == wanted
    assert restart_pace_update(jobset, jobset) == []


def test_a_window_bounds_max_restarts():
    """Each restart within it is kept in the status."""
    jobset = jobset_json(replicated_job("w", 1), failurePolicy={"maxRestarts": 101})
    jobset["metadata"]["annotations"] = {WINDOW: "24h"}
    (problem,) = restart_pace(jobset)

    assert problem.field == "spec.failurePolicy.maxRestarts"
    assert "must be at most 100" in problem.message
    assert evolve(decoded(JobSet, jobset)).metadata.annotations == {WINDOW: "24h"}
