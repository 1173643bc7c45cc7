"""Manager and agent while a real etcd goes back to a backup, under an API server that restarts."""

import asyncio
import shutil
import sys
import uuid

import pytest

from hack.cluster import Cluster
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support.agents.agent_account import ACCOUNT, agent_environ
from support.cluster.account import manager_kubeconfig
from support.cluster.bare_pods import POD_SPEC
from support.cluster.install import connected, create_namespace, install_crd
from support.cluster.json_api import send
from support.cluster.manager_process import manager_process
from support.cluster.objects import in_place_jobset
from support.patience import eventually, timeout

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

LOST_WRITES = 200
"""Writes after the backup. The new history does not reach their versions during the test."""
NOTICED_S = 40.0


@pytest.fixture(scope="module")
def cluster():
    """A control plane of this module's own: its etcd is exchanged."""
    with Cluster(scheduler=False, controller_manager=False) as running:
        yield running


def down(cluster):
    """Stop the API server and etcd."""
    for name in ("kube-apiserver", "etcd"):
        cluster.stop_component(name)


def up(cluster):
    """Start both and wait until they are ready."""
    cluster.start_component("etcd")
    cluster.start_apiserver()


def restore(cluster, backup):
    """Exchange the data of etcd for those of the backup."""
    down(cluster)
    shutil.rmtree(cluster.folder / "etcd")
    shutil.copytree(backup, cluster.folder / "etcd")
    up(cluster)


async def version(client, namespace):
    """Return the present resourceVersion."""
    return int((await client.list_page(Pod, namespace)).resource_version)


async def test_manager_and_agent_continue_when_etcd_is_restored(cluster, tmp_path):
    """A new JobSet is seen, and the epoch that was lost is reported again, long before resourceVersions pass the old ones."""
    namespace, backup = f"t-{uuid.uuid4().hex[:8]}", tmp_path / "backup"
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        await create_namespace(client, namespace)
        body = in_place_jobset("gang", jobs=1, pods=1, managedBy="example.com/test")
        await client.create(JobSet, namespace, body)
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await send(client, "POST", accounts, ACCOUNT)
        environ = await agent_environ(client, cluster.kubeconfig, tmp_path, namespace, "gang")
        await client.create(Pod, namespace, {"metadata": {"name": "p-0"}, "spec": POD_SPEC})
        own = await manager_kubeconfig(client, cluster.kubeconfig, tmp_path)
        await asyncio.to_thread(down, cluster)
        shutil.copytree(cluster.folder / "etcd", backup)
        await asyncio.to_thread(up, cluster)

        async def reported():
            return (await client.get(Pod, namespace, "p-0")).metadata.annotations.get(
                keys.EPOCH_ANNOTATION
            ) == "1"

        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobsetpy.agent", "supervise", "--", "sleep", "600"),
            env={**environ, "POD_NAME": "p-0", "JOBSET_PROGRESS_FILE": str(tmp_path / "progress")},
        )
        try:
            async with manager_process(own, tmp_path / "manager.log"):
                await eventually(reported, 60)
                path = f"/api/v1/namespaces/{namespace}/configmaps"
                for number in range(LOST_WRITES):
                    await send(client, "POST", path, {"metadata": {"name": f"x-{number}"}})
                # An event, or a bookmark each minute, brings watches to the present version.
                note = {"metadata": {"labels": {"seen": "yes"}}}
                await client.merge_patch(JobSet, namespace, "gang", note)
                before = await version(client, namespace)
                # The backup is older than the agent: its pod has no epoch. The agent may report it
                # again before anything else is read here.
                await asyncio.to_thread(restore, cluster, backup)
                created = in_place_jobset("late", jobs=1, pods=1)
                await client.create(JobSet, namespace, created)

                async def has_jobs():
                    return (await client.list_page(Job, namespace)).items

                await eventually(has_jobs, NOTICED_S)
                await eventually(reported, NOTICED_S)
                assert await version(client, namespace) < before
        finally:
            agent.terminate()
            async with timeout(20):
                await agent.wait()
