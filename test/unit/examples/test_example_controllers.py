"""The example controllers, on a fake API server in virtual time."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import VirtualClock, World, running_manager

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def running(setup, world, clock=None):
    """A manager with a controller, within the block."""
    async with running_manager(world, setup, clock=clock):
        await asyncio.sleep(5)
        yield


async def test_ephemeral_volume_claims(example):
    """Each object has one claim, which is created again when deleted, and deleted with its owner."""
    module, world = example("ephemeral_volume_claims"), World()
    world.garbage_collect = True
    world.create("customresourcedefinitions", crd_of(module.EphemeralVolumeClaim))
    async with running(module.setup, world):
        body = {"metadata": {"name": "a"}, "spec": {"size": "1Gi"}}
        world.create("ephemeralvolumeclaims", body)
        await asyncio.sleep(5)
        (claim,) = world.list("persistentvolumeclaims")
        status = world.get("ephemeralvolumeclaims", "a")["status"]
        writes = len(world.requests.writes)
        world.patch("persistentvolumeclaims", "a", {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(5)
        assert len(world.requests.writes) == writes, "nothing to do"
        world.delete("persistentvolumeclaims", "a")
        await asyncio.sleep(5)
        (again,) = world.list("persistentvolumeclaims")
        world.delete("ephemeralvolumeclaims", "a")
        await asyncio.sleep(5)
        assert world.list("persistentvolumeclaims") == []

    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert (status["claim"], status["conditions"][0]["type"]) == ("a", "Ready")
    assert again["metadata"]["uid"] != claim["metadata"]["uid"]


async def test_node_summary(example):
    """Nodes are counted by zone; a change of a node, or of the ConfigMap, causes one write."""
    module, world = example("node_summary"), World()
    for number, zone in enumerate("aab"):
        labels = {"topology.kubernetes.io/zone": zone}
        world.create("nodes", {"metadata": {"name": f"n{number}", "labels": labels}})
    async with running(module.setup, world):

        def written():
            return world.get("configmaps", "node-summary")["data"]

        assert written() == {"a": "2", "b": "1"}
        writes = len(world.requests.writes)
        world.delete("nodes", "n0", namespace="")
        world.create("nodes", {"metadata": {"name": "n3"}})
        await asyncio.sleep(5)
        assert written() == {"a": "1", "b": "1", "none": "1"}
        assert len(world.requests.writes) == writes + 1
        world.delete("configmaps", "node-summary")
        await asyncio.sleep(5)
        assert written() == {"a": "1", "b": "1", "none": "1"}


def cron_job(**spec):
    container = {"name": "c", "image": "test.invalid/c:1"}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"template": {"spec": pod}}
    return {"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "job": job, **spec}}


def names(world):
    return [job["metadata"]["name"][-4:] for job in world.list("jobs")]


def finish(world, name):
    conditions = [{"type": "Complete", "status": "True"}]
    world.set_status("jobs", f"c-20260101{name}", conditions=conditions)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Allow", ["0005", "0010"]), ("Forbid", ["0005"]), ("Replace", ["0010"])],
)
async def test_concurrent_cron_jobs_depend_on_the_policy(example, policy, expected):
    """Both Jobs run, or only the earlier, or only the later one."""
    module, clock = example("cron_jobs"), VirtualClock()
    world = World(clock=clock)
    world.create("customresourcedefinitions", crd_of(module.CronJob))
    async with running(module.setup, world, clock):
        world.create("cronjobs.example.com", cron_job(concurrencyPolicy=policy))
        await asyncio.sleep(11 * 60)
        assert names(world) == expected
        status = world.get("cronjobs.example.com", "c")["status"]
        assert status["lastScheduleTime"] == f"2026-01-01T00:{expected[-1][2:]}:00Z"


async def test_missed_cron_jobs_run_once(example):
    """Only the latest missed time is made up for; the oldest finished Jobs are deleted."""
    module, clock = example("cron_jobs"), VirtualClock()
    world = World(clock=clock)
    world.create("customresourcedefinitions", crd_of(module.CronJob))
    async with running(module.setup, world, clock):
        world.create("cronjobs.example.com", cron_job(historyLimit=1))
        for name in ("0005", "0010"):
            await asyncio.sleep(5 * 60)
            finish(world, name)
        await asyncio.sleep(60)
        assert names(world) == ["0010"]
    await asyncio.sleep(32 * 60)  # no manager runs until 43 minutes past
    async with running(module.setup, world, clock):
        assert names(world) == ["0010", "0040"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", "12:34"),
        ("*/15 * * * *", "12:30"),
        ("5,10-12 9 * * *", "09:12"),
        ("0 0 * * 4", "00:00"),
        ("0 0 * * 1-3", ""),
        ("0 0 2 1 *", ""),
    ],
)
async def test_schedules(example, schedule, expected):
    """The last time of the schedule on a Thursday until 12:34."""
    day = datetime(2025, 12, 31, 23, 59, tzinfo=UTC)
    until = datetime(2026, 1, 1, 12, 34, tzinfo=UTC)
    at = example("cron_jobs").due(schedule, day, until)
    assert (f"{at:%H:%M}" if at else "") == expected


async def test_websites(example):
    """The webhooks set defaults and check objects."""
    module = example("websites")
    webhook = rt.Webhook(module.Website, default=module.default, validate=module.validate)

    def review(host, before=None):
        def site(host):
            return {"metadata": {"name": "s"}, "spec": {"host": host, "port": 80}}

        old = site(before) if before else None
        return ReviewRequest("1", "UPDATE" if old else "CREATE", "", "s", site(host), old)

    assert list((await webhook.answer_validate(review("a.b"))).warnings)
    refused = (await webhook.answer_validate(review("ab", "a.b"))).status
    assert "[spec.host: a name with a domain" in refused["message"]
    assert "cannot be changed" in refused["message"]
    assert module.default(module.Website()).spec.port == 443
