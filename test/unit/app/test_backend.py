"""The backend of coscheduling that a manager uses."""

from __future__ import annotations

import attrs
import pytest

from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.app.backend import watch_backend
from jobsetpy.app.config import configuration as c
from jobsetpy.app.config.settings import MANAGER
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.testing import RecordingClient, VirtualClock, World
from support.managers import started

BOTH = [SchedulingPodGroup, SchedulingWorkload]


@pytest.mark.parametrize(
    ("text", "flags", "wanted"),
    [
        ("", [], SchedulerFields()),
        ("coscheduling: {backend: podgroup}", [], SchedulerFields(backend="podgroup")),
        ('coscheduling: {schedulerName: ""}', [], SchedulerFields()),
        (
            "coscheduling: {backend: podgroup, schedulerName: gangs, memberResource: true}",
            ["--coscheduling-backend=coscheduler", "--coscheduling-member-resource=false"],
            SchedulerFields(backend="coscheduler", scheduler_name="gangs"),
        ),
        ("", ["--coscheduling-scheduler-name=gangs"], SchedulerFields(scheduler_name="gangs")),
        ("", ["--coscheduling-member-resource"], SchedulerFields(member_resource=True)),
    ],
)
def test_flags_override_the_file(read, text, flags, wanted):
    """The scheduler's fields have the values of flags, then of the file."""
    assert read(MANAGER, *flags, text=text).make(SchedulerFields) == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("coscheduling: {backend: volcano}", "coscheduling.backend: Invalid value: 'volcano'"),
        ("coscheduling: {schedulerName: No_Name}", "coscheduling.schedulerName: Invalid value"),
        (
            "coscheduling: {memberResource: 1}",
            "coscheduling.memberResource: expected true or false",
        ),
        ("coscheduling: {other: 1}", 'unknown field "coscheduling.other"'),
    ],
)
def test_invalid_values_of_the_file_are_refused(read, text, problem):
    """Each problem names its field."""
    with pytest.raises(ConfigurationError) as caught:
        read(MANAGER, text=text)
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("coscheduling: {backend: coscheduler, schedulerName: x, memberResource: true}", []),
        ("coscheduling: {schedulerName: x}", []),
        (
            "coscheduling: {backend: labels, schedulerName: x}",
            ["coscheduling.schedulerName"],
        ),
        (
            "coscheduling: {backend: podgroup, schedulerName: x, memberResource: true}",
            ["coscheduling.schedulerName", "coscheduling.memberResource"],
        ),
        (
            "coscheduling: {backend: podgroup}\nfeatureGates: {Coscheduling: false}",
            ["coscheduling"],
        ),
    ],
)
def test_fields_without_effect_are_named(read, text, idle):
    """Scheduler and resource belong to the coscheduler; without the gate there is no backend."""
    found = c.without_effect(read(MANAGER, "--webhooks", text=text))
    assert [path for path in found if path.startswith("coscheduling")] == idle


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("kinds", "wanted", "chosen", "missing"),
    [
        ([], "labels", "labels", ""),
        ([], "coscheduler", "coscheduler", ""),
        ([], "auto", "labels", "no coscheduler is installed"),
        (BOTH, "auto", "podgroup", ""),
        (BOTH, "labels", "labels", ""),
        (BOTH, "podgroup", "podgroup", ""),
        ([SchedulingPodGroup], "podgroup", "labels", "does not serve them"),
        ([], "podgroup", "labels", "does not serve them"),
    ],
)
async def test_the_backend_depends_on_the_cluster(kinds, wanted, chosen, missing):
    """Where the API is not served, pods are labelled, and the reason is reported."""
    world = World(clock=VirtualClock())
    for kind in kinds:
        world.register(kind)
    fields = SchedulerFields(backend=wanted, scheduler_name="gangs", member_resource=True)
    manager = Manager(RecordingClient(world, qps=0), clock=VirtualClock())
    backend = await watch_backend(manager, fields, Features())
    async with started(manager):
        assert backend.marks == attrs.evolve(fields, backend=chosen)
        assert missing in backend.not_served
        assert bool(missing) == bool(backend.not_served)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("fail", "unseen"),
    [
        (lambda faults: faults.status(403), True),
        (lambda faults: faults.status(503), False),
        (lambda faults: faults.lose_answer(), False),
        (lambda faults: faults.latency(3600), False),
    ],
    ids=["forbidden", "unavailable", "lost", "silent"],
)
async def test_schedulers_are_watched_unless_this_is_forbidden(fail, unseen):
    """An API server that is temporarily unavailable does not prevent it."""
    world = World(clock=VirtualClock())
    fail(world.faults)
    manager = Manager(RecordingClient(world, qps=0), clock=VirtualClock())
    backend = await watch_backend(manager, SchedulerFields(backend="auto"), Features())
    assert (backend.leases is None) == unseen
    assert ("podgroups cannot be seen" in backend.not_served) == unseen
    assert ("leases cannot be seen" in backend.not_served) == unseen
