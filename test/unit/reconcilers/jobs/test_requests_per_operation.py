"""Exactly which requests each operation on a JobSet costs, and that resting costs none."""

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
from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime

COUNT = 10
JOBS = [f"test-js-w-{index}" for index in range(COUNT)]
CREATES = {"create jobs": COUNT}
DELETES = {"delete jobs": COUNT}
STATUS = "patch jobsets/status"


class Bill:
    """Counts requests by verb and resource, events apart from the others."""

    def __init__(self, rig) -> None:
        self.rig = rig

    async def __call__(self, seconds=40.0):
        """What was asked since the last bill, once everything has come to rest."""
        await self.rig.settle(seconds)
        counts = Counter(
            f"{request.verb} {request.resource}"
            for request in self.rig.world.requests
            if request.verb != "watch"  # opened anew from time to time, whatever happens
        )
        self.rig.world.requests.clear()
        return {what: count for what, count in counts.items() if "events" not in what}


@pytest.fixture
def bill(rig):
    return Bill(rig)


@asynccontextmanager
async def resting(rig, bill, **spec):
    """A manager with one JobSet of ten Jobs, all ready, and everything paid for so far."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", COUNT), **spec)
        await rig.settle()
        ready(rig)
        await bill()
        yield


def ready(rig):
    for name in JOBS:
        rig.world.set_status("jobs", name, active=1, ready=1)


async def test_create(rig, bill):
    """One write for each object, and one status."""
    async with rig.manager(epochs=False):
        await bill()
        rig.create(replicated_job("w", COUNT))
        assert await bill() == {**CREATES, "create services": 1, STATUS: 1}


async def test_several_replicated_jobs_cost_no_more(rig, bill):
    """The number of Jobs counts, however they are divided."""
    async with rig.manager(epochs=False):
        await bill()
        rig.create(*(replicated_job(f"r{index}") for index in range(COUNT)))
        assert await bill() == {**CREATES, "create services": 1, STATUS: 1}


async def test_volume_claims(rig, bill):
    """Each is created once, and never again."""
    async with rig.manager(epochs=False):
        await bill()
        wanted = {"accessModes": ["X"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"metadata": {"name": "d"}, "spec": wanted}
        rig.create(replicated_job("w", COUNT), volumeClaimPolicies=[{"templates": [claim]}])
        paid = await bill()
        assert paid["create persistentvolumeclaims"] == 1
        rig.touch()
        assert await bill() == {}


async def test_jobs_that_become_ready_together(rig, bill):
    """Two statuses: the first change at once, all the others together."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", COUNT))
        await bill()
        ready(rig)
        paid = await bill()
        assert set(paid) == {STATUS}
        assert paid[STATUS] == 2


async def test_rest(rig, bill):
    """An hour without a change, and changes that mean nothing, cost nothing."""
    async with resting(rig, bill):
        assert await bill(3600) == {}
        rig.touch()
        rig.world.patch(JobSet, "test-js", {"status": {"syncedEpoch": 1}}, subresource="status")
        rig.world.set_status("jobs", JOBS[0], active=1, ready=1, terminating=0)
        assert await bill() == {}


async def test_restart(rig, bill):
    """The decision, a deletion and a creation for each Job, and counters before and after."""
    async with resting(rig, bill, failurePolicy={"maxRestarts": 5}):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        paid = await bill()
        assert paid.pop(STATUS) == 2
        assert paid == {**CREATES, **DELETES}


async def test_restart_of_one_job(rig, bill):
    """That Job alone is deleted and created."""
    policy = {"maxRestarts": 5, "rules": [{"name": "r", "action": "RestartJob"}]}
    async with resting(rig, bill, failurePolicy=policy):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        paid = await bill()
        assert paid.pop(STATUS) == 2
        assert paid == {"create jobs": 1, "delete jobs": 1}


async def test_suspend_and_resume(rig, bill):
    """One patch for each Job and one status, both ways.

    Before it is resumed, a Job is read: what its template was given for another queue has to go.
    """
    async with resting(rig, bill):
        for suspend in (True, False):
            rig.change(suspend=suspend)
            paid = await bill()
            assert paid.pop(STATUS) == 2
            read = {} if suspend else {"get jobs": COUNT}
            assert paid == {"patch jobs": COUNT, **read}


async def test_complete(rig, bill):
    """All Jobs complete at about the same time: the first is told at once, then the end."""
    async with resting(rig, bill):
        for name in JOBS:
            rig.finish(name)
        assert await bill() == {STATUS: 2}


async def test_fail(rig, bill):
    """The end, the deletion of the Jobs that still run, and their counters."""
    async with resting(rig, bill):
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        paid = await bill()
        assert paid.pop(STATUS) == 2
        assert paid == {"delete jobs": COUNT - 1}


async def test_delete(rig, bill):
    """The garbage collector does it all."""
    async with resting(rig, bill):
        rig.world.delete(JobSet, "test-js")
        assert await bill() == {}


async def test_events(rig):
    """One for each thing that is told, none for each Job."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", COUNT), failurePolicy={"maxRestarts": 5})
        await rig.settle()
        assert rig.world.requests.count("create", "events") == 0
        rig.finish(JOBS[0], "Failed", "BackoffLimitExceeded")
        await rig.settle()
        assert rig.world.requests.count("create", "events") == 3


# ---- what causes no pass

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
def test_changes_of_a_jobset_that_matter(changes, matters):
    """Spec, metadata and what the rules read of the status; not what others keep there."""
    new = BASE
    for part, values in changes.items():
        new = attrs.evolve(new, **{part: attrs.evolve(getattr(new, part), **values)})
    assert jobset_matters(Event(BASE, new)) is matters


def test_the_beginning_and_the_end_of_a_restart_in_place_matter():
    """Counters wait in between; that one epoch was synced after another says nothing new."""
    spec = JobSetSpec(failure_policy=FailurePolicy(restart_strategy=keys.IN_PLACE_RESTART))
    epochs = [(0, 0), (1, 0), (1, 1), (2, 1), (3, 2)]
    states = [
        attrs.evolve(
            BASE, spec=spec, status=JobSetStatus(synced_epoch=synced, deprecated_epoch=deprecated)
        )
        for synced, deprecated in epochs
    ]

    assert [jobset_matters(Event(old, new)) for old, new in pairwise(states)] == [
        False,
        True,
        True,
        False,
    ]


def test_every_appearance_and_end_matters():
    """Whatever the object."""
    assert jobset_matters(Event(None, BASE))
    assert jobset_matters(Event(BASE, None))
