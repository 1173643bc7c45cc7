"""Metrics that a manager serves: the framework's, and those of its controllers."""

from __future__ import annotations

import re

import aiohttp
import attrs
import pytest

from jobsetpy import runtime as rt
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.coscheduler import CoschedulerSettings
from jobsetpy.coscheduler import setup as set_up_coscheduler
from jobsetpy.testing import RecordingClient, World
from support.managers import started


@attrs.frozen
class Idle:
    """A reconciler that does nothing."""

    async def reconcile(self, request: rt.Request) -> rt.Result:
        return rt.Result.done()


def custom(manager: rt.Manager) -> None:
    """Set up a custom controller."""
    jobs = manager.informer(Job)
    watches = (rt.Watch(jobs, rt.enqueue_self),)
    manager.add(rt.Controller(name="custom", reconciler=Idle(), watches=watches))


def coscheduler(manager: rt.Manager) -> None:
    """Set up the coscheduler without TLS."""
    plain = CoschedulerSettings(bind_address="127.0.0.1:0", plain_http=True)
    set_up_coscheduler(manager, plain)


async def scraped(setup) -> list[str]:
    """Return the names of the families at /metrics."""
    world = World()
    world.register(JobSet)
    settings = rt.ManagerSettings(metrics_bind_address="127.0.0.1:0")
    manager = rt.Manager(RecordingClient(world, qps=0), settings=settings)
    setup(manager)
    async with started(manager):
        url = f"http://127.0.0.1:{manager.metrics_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
    return re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("setup", "expected"),
    [(custom, set()), (add_jobset_controllers, {"jobset"}), (coscheduler, {"jobset_coscheduler"})],
    ids=["custom", "jobsets", "coscheduler"],
)
async def test_jobset_metrics_are_served_only_by_their_programs(setup, expected):
    """A custom controller serves none of them; the manager and the coscheduler serve their own."""
    names = await scraped(setup)
    of_jobsets = [name for name in names if name.startswith("jobset_")]

    assert "controller_runtime_reconcile_total" in names
    assert len(names) == len(set(names))
    assert {re.match("jobset(_coscheduler)?", name)[0] for name in of_jobsets} == expected
