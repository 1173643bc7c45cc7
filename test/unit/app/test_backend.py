"""Which backend of coscheduling a manager works with."""

from __future__ import annotations

import argparse

import pytest

from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.app.backend import Backend, choose_backend
from jobsetpy.app.config import configuration as c
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import MANAGER
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.testing import RecordingClient, VirtualClock, World

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


def read(tmp_path, text, *flags):
    """The configuration of a file and flags."""
    parser = argparse.ArgumentParser()
    f.add(parser, MANAGER)
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + text)
    return f.read(parser.parse_args(["--config", str(file), *flags]), MANAGER)


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
def test_file_and_flags(tmp_path, text, flags, wanted):
    """A flag that is given wins over the file."""
    assert read(tmp_path, text, *flags).make(SchedulerFields) == wanted


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
def test_what_a_file_may_not_say(tmp_path, text, problem):
    """Each problem names its field."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    "flag", ["--coscheduling-backend=volcano", "--coscheduling-scheduler-name=No_Name"]
)
def test_what_a_flag_may_not_say(tmp_path, flag, capsys):
    """The same, told by the parser."""
    with pytest.raises(SystemExit):
        read(tmp_path, "", flag)
    assert "coscheduling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("coscheduling: {backend: coscheduler, schedulerName: x, memberResource: true}", []),
        ("coscheduling: {schedulerName: x}", []),
        (
            "coscheduling: {backend: labels, schedulerName: x, alwaysGate: true}",
            ["coscheduling.schedulerName", "coscheduling.alwaysGate"],
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
def test_what_has_no_effect_is_named(tmp_path, text, idle):
    """Scheduler and resource are the coscheduler's; without the gate there is no backend."""
    found = c.without_effect(read(tmp_path, text, "--webhooks"))
    assert [path for path in found if path.startswith("coscheduling")] == idle


@pytest.mark.parametrize(
    ("kinds", "wanted", "chosen"),
    [
        ([], "labels", "labels"),
        ([], "coscheduler", "coscheduler"),
        ([SchedulingPodGroup, SchedulingWorkload], "podgroup", "podgroup"),
        ([SchedulingPodGroup], "podgroup", "labels"),
        ([], "podgroup", "labels"),
    ],
)
async def test_the_backend_is_what_the_cluster_has(kinds, wanted, chosen):
    """Where the API is not served, pods are labelled, and it is said why."""
    world = World()
    for kind in kinds:
        world.register(kind)
    asked = SchedulerFields(backend=wanted, scheduler_name="gangs", member_resource=True)
    backend = await choose_backend(RecordingClient(world, qps=0), asked)
    assert backend.marks == SchedulerFields(
        backend=chosen, scheduler_name="gangs", member_resource=True
    )
    assert ("does not serve it" in backend.not_served) == (chosen != wanted)


async def test_a_refused_question_is_reported():
    """A manager without the right to ask labels pods, and says what was answered."""
    world = World()
    world.faults.status(403)
    backend = await choose_backend(
        RecordingClient(world, qps=0), SchedulerFields(backend="podgroup")
    )
    assert backend.marks.backend == "labels"
    assert "could not be found out" in backend.not_served


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("fail", "seen", "told"),
    [
        (lambda faults: faults.status(403), False, "cannot be seen"),
        (lambda faults: faults.status(503), True, ""),
        (lambda faults: faults.lose_answer(), True, ""),
        (lambda faults: faults.latency(3600), True, ""),
    ],
    ids=["forbidden", "unavailable", "lost", "silent"],
)
async def test_a_coscheduler_is_looked_for_at_a_bad_moment(fail, seen, told):
    """Without the right to look there is none; an API server that is away keeps no one from it."""
    world = World(clock=VirtualClock())
    fail(world.faults)
    manager = Manager(RecordingClient(world, qps=0), clock=VirtualClock())
    backend = await Backend(SchedulerFields(backend="auto")).watched(manager, Features())
    assert (backend.coscheduler is not None) == seen
    assert told in backend.not_served
