"""Pods that are refused, on a cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.jobs import refused_pods_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_job, make_jobset
from support.managers import started

pytestmark = pytest.mark.looptime

QUOTA = "forbidden: exceeded quota: team, requested: cpu=1, used: cpu=8, limited: cpu=8"


class Cluster:
    """A JobSet with one Job of two pods; the test is the Job controller."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        jobset = self.world.create(JobSet, make_jobset("js").replicated_job("w").build())
        body = make_job("js-w-0").of(jobset, "w").build()
        body["spec"] |= {"parallelism": 2, "completions": 2}
        self.job = self.world.create("jobs", body)
        self.has(0)

    def has(self, pods):
        """The Job's status."""
        self.world.set_status("jobs", "js-w-0", active=pods, startTime=now())

    def refused(self, pod="js-w-0-0-abcde", at=None):
        """The Job controller's event."""
        about = {"kind": "Job", "name": "js-w-0", "namespace": "default"}
        body = {
            "metadata": {"name": f"{pod}.1"},
            "reason": "FailedCreate",
            "type": "Warning",
            "note": f'Error creating: pods "{pod}" is {QUOTA}',
            "regarding": {**about, "uid": self.job["metadata"]["uid"]},
            "deprecatedLastTimestamp": at or now(),
        }
        self.world.create("events", body)

    def condition(self):
        """Status and message of the condition; ``None`` if it is not there."""
        for each in self.world.get(JobSet, "js").get("status", {}).get("conditions", ()):
            if each["type"] == keys.PODS_REFUSED_CONDITION:
                return each["status"], each["message"]
        return None

    @asynccontextmanager
    async def manager(self):
        """A running manager; leaving the block stops it."""
        client = RecordingClient(self.world, qps=0)
        manager = Manager(client, clock=VirtualClock())
        refused_pods_reconciler.setup(manager)
        async with started(manager):
            yield client


def now():
    return VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")


SAID = f"pods of job js-w-0 are refused: Error creating: a pod is {QUOTA}"


async def test_the_condition_says_the_rule_and_is_cleared():
    """After the grace; the pod's random name is left out, so that it stays the same."""
    cluster = Cluster()
    async with cluster.manager():
        cluster.refused()
        await asyncio.sleep(8)
        assert cluster.condition() is None
        await asyncio.sleep(4)
        assert cluster.condition() == ("True", SAID)
        version = cluster.world.get(JobSet, "js")["metadata"]["resourceVersion"]
        cluster.refused("js-w-0-0-other")
        await asyncio.sleep(60)
        assert cluster.world.get(JobSet, "js")["metadata"]["resourceVersion"] == version
        cluster.has(2)
        await asyncio.sleep(1)
        assert cluster.condition() == ("False", "all pods were created")


async def test_a_pod_that_is_missing_for_a_moment_is_not_looked_into():
    """Replacements take seconds; no event is read for them."""
    cluster = Cluster()
    cluster.has(2)
    async with cluster.manager() as client:
        for _ in range(5):
            cluster.has(1)
            await asyncio.sleep(5)
            cluster.has(2)
            await asyncio.sleep(5)
        assert cluster.condition() is None
        assert client.world.requests.count("list", "events") == 0


async def test_an_old_event_says_nothing():
    """The Job controller tries again, so a rule that still refuses has a new one."""
    cluster = Cluster()
    cluster.refused(at="2020-01-01T00:00:00Z")
    async with cluster.manager():
        await asyncio.sleep(60)
        assert cluster.condition() is None


async def test_a_manager_that_starts_clears_what_is_over():
    """The pods came while no manager ran."""
    cluster = Cluster()
    cluster.refused()
    async with cluster.manager():
        await asyncio.sleep(12)
    assert cluster.condition() == ("True", SAID)
    cluster.has(2)
    async with cluster.manager():
        await asyncio.sleep(1)
    assert cluster.condition() == ("False", "all pods were created")
