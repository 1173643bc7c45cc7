"""Plan of a reconcile of a startup group, in virtual time."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.plan import (
    GroupMemory,
    ObservedGroup,
    needs_reconcile,
    plan_startup_group,
)
from support.jobsets import (
    EPOCH_START,
    ModelCluster,
    decoded,
    jobset_json,
    merge,
    replicated_job,
)
from support.model_kit import delay, reported

KEY = ObjectKey("default", "test-js")
NAME = "test-js-group-scheduling"
OWN = {"kind": "JobSet", "name": "test-js", "uid": "js-uid", "controller": True}
WAITING, DONE = keys.GROUP_IN_PROGRESS_CONDITION, keys.GROUP_COMPLETED_CONDITION


class StartupGroup:
    """A JobSet of two Jobs of two pods, its ledger, and the memory between reconciles."""

    def __init__(self, *, pods=2, notes=None, **config):
        policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"} if notes else None
        body = jobset_json(
            replicated_job("w", 2, parallelism=pods),
            annotations=notes,
            groupSchedulingConfig=config,
            failurePolicy=policy,
        )
        body["metadata"]["generation"] = 1
        self.cluster = ModelCluster(body)
        self.cluster.reconcile()
        self.ledger = StartLedger()
        for name in self.cluster.jobs:
            self.ledger.job_changed(None, self.cluster.job(name))
        self.memory = GroupMemory()
        self.pods = []
        self.config_map = self.make_config_map()

    @staticmethod
    def make_config_map(version="1", owner=OWN, **data):
        """Return the ConfigMap with the group's name."""
        meta = {"name": NAME, "namespace": "default", "uid": "map", "resourceVersion": version}
        meta["ownerReferences"] = [] if owner is None else [owner]
        return decoded(ConfigMap, {"metadata": meta, "data": data})

    def start(self, *names, attempt="1"):
        """Run the barrier of pods: ``0-1`` is the second pod of the first Job."""
        for name in names:
            job = self.cluster.jobs[f"test-js-w-{name[0]}"]
            meta = {
                "name": f"{job['metadata']['name']}-{name[2]}",
                "namespace": "default",
                "labels": {keys.JOBSET_NAME: "test-js"},
                "annotations": {keys.GROUP_ATTEMPT: attempt},
                "ownerReferences": [{"uid": job["metadata"]["uid"], "controller": True}],
            }
            state = [{"name": keys.GROUP_INIT_CONTAINER, "state": {"running": {}}}]
            pod = decoded(ChildPod, {"metadata": meta, "status": {"initContainerStatuses": state}})
            self.pods.append(pod)
            self.ledger.pod_changed(None, pod)

    def plan(self, at, **changed):
        """Return the plan at ``at`` seconds; nothing of it is executed."""
        observed = ObservedGroup(
            key=KEY,
            jobset=self.cluster.jobset,
            config_map=self.config_map,
            ledger=self.ledger,
            jobs=lambda: [self.cluster.job(name) for name in self.cluster.jobs],
        )
        now = Now(EPOCH_START + timedelta(seconds=at), 100.0 + at)
        return plan_startup_group(attrs.evolve(observed, **changed), self.memory, now)

    def reconcile(self, at, **changed):
        """Plan at ``at`` seconds and execute; return the plan."""
        plan = self.plan(at, **changed)
        if plan.status is not None and plan.status.patch:
            self.cluster.object = merge(self.cluster.object, {"status": plan.status.patch})
        self.memory = plan.memory or GroupMemory()
        return plan

    def needed(self):
        """Return True if the pods' counters request a reconcile."""
        jobset = self.cluster.jobset
        memory = self.memory if self.memory.uid else None
        return needs_reconcile(AttemptKey.of(jobset), jobset, self.ledger, memory)


def test_group_without_events_is_reconciled_when_there_is_something_to_report():
    """After a second, then periodically, and for reports of missing pods, whose pauses double."""
    group = StartupGroup()
    group.start("0-0")
    at, seen = 0.0, []
    while at < 300:
        plan = group.reconcile(at)
        assert plan.waits
        assert plan.signal is None
        seen += [(at, *reported(plan))]
        at += delay(plan)
    starting, missing = keys.GROUP_STARTING_REASON, keys.GROUP_MISSING_REASON
    assert seen == [
        (0,), (1, starting), (31,), (60, missing), (90,), (120, missing),
        (150,), (180,), (210,), (240, missing), (270,),
    ]  # fmt: skip


def test_progress_is_written_for_pods_that_time_out():
    """A few times; their last message has the last progress."""
    group = StartupGroup(timeoutAfterSeconds=40)
    group.start("0-0", "1-1")
    at, written = 0.0, []
    while at < 100:
        plan = group.reconcile(at)
        if plan.signal is not None:
            assert not plan.signal.released
            written.append((at, plan.signal.data["waiting"]))
        at += delay(plan)
    times = [1, 8, 18, 28, 38, 60, 80]
    stamp = [(EPOCH_START + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ") for at in times]
    expected = [(at, f"js-uid 1 2 4 {text}\n") for at, text in zip(times, stamp, strict=True)]
    assert written == expected


def test_last_start_releases_the_group_and_is_reported_immediately():
    """The signal is remembered once it is written, even if the status is not stored."""
    group = StartupGroup()
    group.start("0-0", "0-1", "1-0")
    group.reconcile(0)
    assert not group.needed()
    group.start("1-1")
    assert group.needed()

    plan = group.plan(7)
    assert plan.signal.data == {"started": "js-uid 1\n"}
    assert plan.signal.released == 1
    assert plan.signal.memory.began == 100.0
    assert reported(plan) == [keys.GROUP_STARTED_REASON]
    assert delay(plan) is None
    assert plan.result.summary == "released attempt 1"

    # The signal was written but the condition was not, and the cache has the old ConfigMap.
    group.memory = plan.signal.memory
    again = group.reconcile(8)
    assert again.signal is None
    assert reported(again) == [keys.GROUP_STARTED_REASON]
    assert not group.needed()


SPARE = {keys.IN_PLACE_SPARES_ANNOTATION: "1"}
EARLY = {**SPARE, keys.START_WITHOUT_SPARES_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("notes", "started", "released"),
    [
        (SPARE, "00 01 10 11", False),
        (SPARE, "00 01 02 10 11", False),
        (SPARE, "00 01 02 10 11 12", True),
        (EARLY, "00 01 02 10", False),
        (EARLY, "00 01 10 11", True),
        (EARLY, "00 02 11 12", True),
        (EARLY, "00 01 02 10 11 12", True),
    ],
)
def test_group_waits_for_spares_unless_its_jobset_starts_without_them(notes, started, released):
    """Any pod of a Job can fill its seats, but no pod of another Job can."""
    group = StartupGroup(pods=3, notes=notes)
    group.start(*("-".join(each) for each in started.split()))

    assert (group.reconcile(0).signal is not None) is released
    sizes = {job["metadata"]["annotations"][keys.GROUP_SIZE] for job in group.cluster.jobs.values()}
    assert sizes == {"4" if notes is EARLY else "6"}


SPARE_JOB = {keys.IN_PLACE_SPARE_JOBS_ANNOTATION: "1"}


@pytest.mark.parametrize(
    ("early", "started", "released"),
    [
        ("false", "00 01 10", False),
        ("false", "00 01 10 11", True),
        ("true", "00 10", False),
        ("true", "10 11", True),
    ],
)
def test_group_waits_for_spare_jobs_unless_its_jobset_starts_without_them(early, started, released):
    """With two Jobs, one of them a spare, pods of both are not a complete Job."""
    group = StartupGroup(notes={**SPARE_JOB, keys.START_WITHOUT_SPARES_ANNOTATION: early})
    group.start(*("-".join(each) for each in started.split()))

    assert (group.reconcile(0).signal is not None) is released


def test_missing_spares_are_not_reported_when_the_group_starts_without_them():
    """Only pods of a Job that cannot fill its seats are reported."""
    group = StartupGroup(pods=3, notes=EARLY)
    group.start("0-0", "0-1", "1-0")
    group.reconcile(0)
    plan = group.reconcile(60, pods=lambda: group.pods)

    message = plan.status.events[-1].message
    assert "3 of 4 pods have started" in message
    assert "w-1-1" in message
    assert "w-0" not in message


@pytest.mark.parametrize(
    ("value", "released"), [("js-uid 1\n", True), ("js-uid 0\n", False), ("other 1\n", False)]
)
def test_value_of_the_config_map_releases_only_its_own_attempt(value, released):
    """Values of other attempts or JobSets are ignored."""
    group = StartupGroup()
    group.config_map = group.make_config_map(started=value)
    assert group.reconcile(0).waits is not released


def test_lost_release_is_written_again():
    """The memory counts only until the cache has another version than the one it replaced."""
    group = StartupGroup()
    group.start("0-0", "0-1", "1-0", "1-1")
    assert group.reconcile(0).signal is not None
    assert group.reconcile(1).signal is None
    group.config_map = group.make_config_map(version="3")
    assert group.reconcile(2).signal is not None
    assert group.reconcile(3, config_map=None).signal is None
    group.config_map = group.make_config_map(version="5")
    assert group.reconcile(4).signal is not None


@pytest.mark.parametrize(
    ("owner", "events"),
    [
        (None, 1),
        ({**OWN, "kind": "Deployment", "uid": "x"}, 1),
        # The garbage collector deletes what a JobSet of the same name left behind.
        ({**OWN, "uid": "the one before"}, 0),
    ],
)
def test_config_map_of_another_owner_is_left_alone(owner, events):
    """It is reported once."""
    group = StartupGroup(timeoutAfterSeconds=10)
    group.start("0-0", "0-1", "1-0", "1-1")
    group.config_map = group.make_config_map(owner=owner)
    plans = [group.reconcile(at) for at in range(5)]
    assert all(plan.signal is None and plan.waits for plan in plans)
    notices = [notice.reason for plan in plans for notice in plan.notices]
    assert notices == [keys.GROUP_FOREIGN_REASON] * events
    group.config_map = group.make_config_map(version="2")
    assert group.reconcile(6).signal is not None


@pytest.mark.parametrize(
    ("spec", "conditions", "reason"),
    [
        ({"suspend": True}, [], keys.GROUP_SUSPENDED_REASON),
        ({}, [{"type": "Failed", "status": "True"}], keys.GROUP_FINISHED_REASON),
    ],
)
def test_wait_ends_without_a_release_when_the_jobset_ends_or_is_suspended(spec, conditions, reason):
    """Nothing is remembered; only a group that was waiting has a condition to change."""
    group = StartupGroup()
    fresh = StartupGroup()
    group.reconcile(0)
    assert reported(group.reconcile(1)) == [keys.GROUP_STARTING_REASON]
    for each, expected in ((group, [reason]), (fresh, [])):
        each.cluster.object["spec"] |= spec
        each.cluster.object["status"].setdefault("conditions", []).extend(conditions)
        plan = each.reconcile(2)
        assert reported(plan) == expected
        assert (plan.memory, plan.signal) == (None, None)
        assert not plan.waits


def test_group_is_incomplete_from_its_suspension_until_it_has_started_again():
    """Also while the JobSet is resumed, and its Jobs are not yet."""
    group = StartupGroup()
    group.start("0-0", "0-1", "1-0", "1-1")
    assert reported(group.reconcile(0)) == [keys.GROUP_STARTED_REASON]
    group.config_map = group.make_config_map("2", started="js-uid 1\n")
    group.cluster.object["spec"]["suspend"] = True
    for job in group.cluster.jobs.values():
        job["spec"]["suspend"] = True
    assert reported(group.reconcile(1)) == [keys.GROUP_SUSPENDED_REASON]
    assert not cond.is_true(group.cluster.jobset.status.conditions, DONE)
    group.cluster.object["spec"]["suspend"] = False
    assert [reported(group.reconcile(at)) for at in (2, 3)] == [[], []]
    for job in group.cluster.jobs.values():
        job["spec"]["suspend"] = False
    assert reported(group.reconcile(4)) == [keys.GROUP_STARTED_REASON]


@pytest.mark.parametrize(
    ("field", "value"),
    [("deletionTimestamp", "2026-01-01T00:00:00Z"), ("managedBy", "someone.else/x"), ("", None)],
)
def test_jobset_that_has_no_group_to_release_is_skipped(field, value):
    """It is deleted, terminating, of another controller, or has no Jobs."""
    group = StartupGroup()
    if field == "managedBy":
        group.cluster.object["spec"][field] = value
    elif field:
        group.cluster.object["metadata"][field] = value
    else:
        group.ledger = StartLedger()
    assert group.plan(0) == group.plan(0, jobset=None)
    assert group.plan(0).memory is None


def test_another_attempt_starts_again():
    """Its time starts then; earlier attempts stay released."""
    group = StartupGroup()
    group.start("0-0", "0-1", "1-0", "1-1")
    group.reconcile(0)
    group.cluster.object["metadata"]["generation"] = 2
    for name in group.cluster.jobs:
        old = group.cluster.job(name)
        group.cluster.jobs[name]["metadata"]["annotations"][keys.GROUP_ATTEMPT] = "2"
        group.ledger.job_changed(old, group.cluster.job(name))
    group.reconcile(500)
    assert (group.memory.attempt, group.memory.began, group.memory.released) == (2, 600.0, 1)
    group.start("0-0", "0-1", "1-0", "1-1", attempt="2")
    assert group.needed()
    assert group.reconcile(501).signal.released == 2


def test_pods_are_released_when_the_group_is_removed():
    """There is no group to wait for and nothing to report."""
    group = StartupGroup()
    group.reconcile(0)
    del group.cluster.object["spec"]["groupSchedulingConfig"]
    group.cluster.object["metadata"]["generation"] = 2
    assert group.needed()  # the size is to be computed again
    plan = group.reconcile(0.5)
    assert plan.signal.released == 2
    assert plan.status is None
