"""Requests that each operation on a JobSet causes; a JobSet at rest causes none."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import FailurePolicy, JobSet, JobSetSpec, JobSetStatus
from jobsetpy.api.meta import Condition, ObjectMeta
from jobsetpy.reconcilers.jobs.reconciler import jobset_matters
from jobsetpy.runtime import Event
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime

COUNT = 10
JOBS = [f"test-js-w-{index}" for index in range(COUNT)]
CREATES = {"create jobs": COUNT}
DELETES = {"delete jobs": COUNT}
STATUS = "patch jobsets/status"


@pytest.fixture
def bill(rig):
    """Return a function that waits and counts requests since its last call, without events."""

    async def count(seconds=40.0):
        await rig.settle(seconds)
        counts = Counter(
            f"{request.verb} {request.resource}"
            for request in rig.world.requests
            if request.verb != "watch"  # watches are renewed from time to time
        )
        rig.world.requests.clear()
        return {request: n for request, n in counts.items() if "events" not in request}

    return count


@asynccontextmanager
async def resting(rig, bill, **spec):
    """Run a manager with one JobSet of ten Jobs, all ready, without unbilled requests."""
    async with rig.running(replicated_job("w", COUNT), **spec):
        ready(rig)
        await bill()
        yield


def ready(rig):
    """Set all Jobs to ready."""
    for name in JOBS:
        rig.world.set_status("jobs", name, active=1, ready=1)


@pytest.mark.parametrize(
    "jobs",
    [[replicated_job("w", COUNT)], [replicated_job(f"r{index}") for index in range(COUNT)]],
    ids=["one ReplicatedJob", "several"],
)
async def test_creation_writes_each_object_and_one_status(rig, bill, jobs):
    """Only the number of Jobs counts, not the number of ReplicatedJobs."""
    async with rig.manager(epochs=False):
        await bill()
        rig.create(*jobs)
        assert await bill() == {**CREATES, "create services": 1, STATUS: 1}
        assert {k: v for k, v in rig.status().items() if isinstance(v, int)} == {
            "restarts": 0,
            "executionAttempts": 0,
        }


async def test_jobs_that_become_ready_together_cause_two_status_writes(rig, bill):
    """The first change is written immediately, all others together."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", COUNT))
        await bill()
        ready(rig)
        assert await bill() == {STATUS: 2}


async def test_jobset_at_rest_causes_no_request(rig, bill):
    """For an hour without a change, and for changes that have no meaning."""
    async with resting(rig, bill):
        assert await bill(3600) == {}
        rig.touch()
        rig.world.patch(JobSet, "test-js", {"status": {"syncedEpoch": 1}}, subresource="status")
        rig.world.set_status("jobs", JOBS[0], active=1, ready=1, terminating=0)
        assert await bill() == {}


async def test_restart_deletes_and_creates_each_job_once(rig, bill):
    """The status is written with the decision, and with counters at the end."""
    async with resting(rig, bill, failurePolicy={"maxRestarts": 5}):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        assert await bill() == {**CREATES, **DELETES, STATUS: 2}


async def test_restart_of_one_job_deletes_and_creates_that_job(rig, bill):
    """Other Jobs cause no request."""
    policy = {"maxRestarts": 5, "rules": [{"name": "r", "action": "RestartJob"}]}
    async with resting(rig, bill, failurePolicy=policy):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        assert await bill() == {"create jobs": 1, "delete jobs": 1, STATUS: 2}


async def test_suspension_and_resumption_patch_each_job_once(rig, bill):
    """Each Job is read before it is resumed, to remove fields of its earlier queue."""
    async with resting(rig, bill):
        for suspend in (True, False):
            rig.change(suspend=suspend)
            read = {} if suspend else {"get jobs": COUNT}
            assert await bill() == {"patch jobs": COUNT, STATUS: 2, **read}


async def test_completion_writes_two_statuses(rig, bill):
    """The first complete Job is stored immediately, then the end."""
    async with resting(rig, bill):
        for name in JOBS:
            rig.finish(name)
        assert await bill() == {STATUS: 2}


async def test_failure_deletes_running_jobs(rig, bill):
    """The status is written with the end, and with the last counters."""
    async with resting(rig, bill):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        assert await bill() == {"delete jobs": COUNT - 1, STATUS: 2}


async def test_deletion_causes_no_request(rig, bill):
    """The garbage collector deletes the children."""
    async with resting(rig, bill):
        rig.world.delete(JobSet, "test-js")
        assert await bill() == {}


# ---- events that cause no pass

META = ObjectMeta(name="js", uid="u", generation=3, resource_version="7")
BASE = JobSet(metadata=META, status=JobSetStatus(restarts=1))


@pytest.mark.parametrize(
    ("changes", "matters"),
    [
        ({}, False),
        ({"metadata": {"resource_version": "8"}}, False),
        ({"status": {"synced_epoch": 4}}, False),
        ({"status": {"deprecated_epoch": 4}}, False),
        ({"metadata": {"generation": 4}}, True),
        ({"metadata": {"uid": "v"}}, True),
        ({"metadata": {"labels": {"a": "b"}}}, True),
        ({"metadata": {"annotations": {"a": "b"}}}, True),
        ({"status": {"restarts": 2}}, True),
        ({"status": {"restarts_count_towards_max": 2}}, True),
        ({"status": {"terminal_state": "Failed"}}, True),
        ({"status": {"conditions": (Condition(type="Failed"),)}}, True),
    ],
)
def test_only_changes_that_the_plan_reads_cause_a_pass(changes, matters):
    """Spec, metadata and some fields of the status; other writers own the rest."""
    new = BASE
    for part, values in changes.items():
        new = attrs.evolve(new, **{part: attrs.evolve(getattr(new, part), **values)})
    assert jobset_matters(Event(BASE, new)) is matters


def test_begin_and_end_of_a_restart_in_place_cause_a_pass():
    """Counters wait in between; a further pair of synced epochs causes none."""
    spec = JobSetSpec(failure_policy=FailurePolicy(restart_strategy=keys.IN_PLACE_RESTART))
    states = [
        attrs.evolve(
            BASE, spec=spec, status=JobSetStatus(synced_epoch=synced, deprecated_epoch=deprecated)
        )
        for synced, deprecated in [(0, 0), (1, 0), (1, 1), (2, 1), (3, 2)]
    ]

    matters = [jobset_matters(Event(old, new)) for old, new in pairwise(states)]
    assert matters == [False, True, True, False]


def test_creation_and_deletion_of_a_jobset_cause_a_pass():
    """For any object."""
    assert jobset_matters(Event(None, BASE))
    assert jobset_matters(Event(BASE, None))
