"""Managers that shard the JobSets of a namespace, in processes of their own."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.manager_process import ManagerProcess, configured, stopping
from support.cluster.objects import in_place_jobset

pytestmark = pytest.mark.cluster

SERIES = 'leader_election_master_status{{name="shared-shard-{}-of-2"}}'
COUNT = 6


async def shard_of(process):
    """Return the shard of a process; ``None`` while it is on standby."""
    series = await asyncio.to_thread(process.scrape)
    return next((index for index in range(2) if series[SERIES.format(index)] == 1), None)


async def test_standby_takes_over_when_a_manager_stops(cluster, client, namespace, tmp_path):
    """All JobSets get their Job once, before and after the takeover."""
    election = {"resourceNamespace": namespace, "resourceName": "shared"}
    configuration = {"leaderElection": election, "shards": {"count": 2}}
    flags = (
        *configured(tmp_path / "configuration.yaml", **configuration),
        f"--namespaces={namespace}",
    )
    processes = [
        ManagerProcess(cluster.kubeconfig, tmp_path / f"log-{number}", *flags, metrics=True)
        for number in range(3)
    ]

    async def create(name):
        await client.create(JobSet, namespace, in_place_jobset(name, jobs=1, pods=1))

    async def jobs(count):
        return len((await client.list_page(Job, namespace)).items) == count

    async with stopping(*processes):
        async with asyncio.TaskGroup() as starts:
            for one in processes:
                starts.create_task(one.start())
        for number in range(COUNT):
            await create(f"early-{number}")
        await patience.eventually(lambda: jobs(COUNT), 30, poll_s=0.1)
        shards = [await shard_of(one) for one in processes]
        assert sorted(shards, key=str) == [0, 1, None]

        await processes[shards.index(0)].stop()
        for number in range(COUNT):
            await create(f"late-{number}")
        await patience.eventually(lambda: jobs(2 * COUNT), 30, poll_s=0.1)
        assert await shard_of(processes[shards.index(None)]) == 0
        holders = {
            lease.metadata.name: lease.spec.holder_identity
            for lease in (await client.list_page(Lease, namespace)).items
        }
        assert holders["shared"] == "2 shards"
        assert holders["shared-shard-0-of-2"] != holders["shared-shard-1-of-2"]
