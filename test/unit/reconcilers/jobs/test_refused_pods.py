"""Conditions about refused pods, on a cluster in memory and in virtual time."""

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
    """A JobSet with one Job of two pods; a test plays the Job controller."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        jobset = self.world.create(JobSet, make_jobset("js").replicated_job("w").build())
        body = make_job("js-w-0").of(jobset, "w").build()
        body["spec"] |= {"parallelism": 2, "completions": 2}
        self.job = self.world.create("jobs", body)
        self.set_pods(0)

    def set_pods(self, pods):
        """Set the number of the Job's pods in its status."""
        self.world.set_status("jobs", "js-w-0", active=pods, startTime=now())

    def refuse(self, pod="js-w-0-0-abcde", at=None):
        """Create the event of the Job controller about a refused pod."""
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
        """Return status and message of the condition, ``None`` if it is absent."""
        for each in self.world.get(JobSet, "js").get("status", {}).get("conditions", ()):
            if each["type"] == keys.PODS_REFUSED_CONDITION:
                return each["status"], each["message"]
        return None

    @asynccontextmanager
    async def manager(self):
        """Run a manager until the block ends; it yields its client."""
        client = RecordingClient(self.world, qps=0)
        manager = Manager(client, clock=VirtualClock())
        refused_pods_reconciler.setup(manager)
        async with started(manager):
            yield client


def now():
    """Return the time of the cluster."""
    return VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")


MESSAGE = f"pods of job js-w-0 are refused: Error creating: a pod is {QUOTA}"


async def test_condition_names_the_rule_and_is_cleared():
    """It follows after a delay; the pod's random name is left out, so that it does not change."""
    cluster = Cluster()
    async with cluster.manager():
        cluster.refuse()
        await asyncio.sleep(8)
        assert cluster.condition() is None
        await asyncio.sleep(4)
        assert cluster.condition() == ("True", MESSAGE)
        version = cluster.world.get(JobSet, "js")["metadata"]["resourceVersion"]
        cluster.refuse("js-w-0-0-other")
        await asyncio.sleep(60)
        assert cluster.world.get(JobSet, "js")["metadata"]["resourceVersion"] == version
        cluster.set_pods(2)
        await asyncio.sleep(1)
        assert cluster.condition() == ("False", "all pods were created")


async def test_pods_that_are_missing_for_a_moment_are_not_reported():
    """Replacements take seconds; no events are read for them."""
    cluster = Cluster()
    cluster.set_pods(2)
    async with cluster.manager() as client:
        for _ in range(5):
            cluster.set_pods(1)
            await asyncio.sleep(5)
            cluster.set_pods(2)
            await asyncio.sleep(5)
        assert cluster.condition() is None
        assert client.world.requests.count("list", "events") == 0


async def test_old_event_is_ignored():
    """The Job controller repeats creations, so that a rule in force causes new events."""
    cluster = Cluster()
    cluster.refuse(at="2020-01-01T00:00:00Z")
    async with cluster.manager():
        await asyncio.sleep(60)
        assert cluster.condition() is None


async def test_new_manager_clears_a_condition_that_is_over():
    """The pods were created while no manager ran."""
    cluster = Cluster()
    cluster.refuse()
    async with cluster.manager():
        await asyncio.sleep(12)
    assert cluster.condition() == ("True", MESSAGE)
    cluster.set_pods(2)
    async with cluster.manager():
        await asyncio.sleep(1)
    assert cluster.condition() == ("False", "all pods were created")
