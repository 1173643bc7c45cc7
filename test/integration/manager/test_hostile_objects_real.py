"""An expensive JobSet that has passed admission, next to an ordinary one of another namespace."""

import asyncio
import uuid

import pytest

from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.jobset import JobSet
from support import patience
from support.admission.hostile import large_patterns
from support.cluster.deployed import LEASE
from support.cluster.install import create_namespace
from support.cluster.manager_process import ManagerProcess, configured
from support.jobsets import jobset_json, replicated_job

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(120)]


def manifest(made, namespace, name):
    """A JobSet as a user would write it."""
    metadata = {"name": name, "namespace": namespace}
    return {**made, "metadata": metadata}


async def test_job_is_created_in_time_when_a_jobset_of_another_namespace_is_expensive(
    cluster, client, namespace, tmp_path
):
    """Sixty patterns of 13 characters, stored without webhooks, delay no other JobSet."""
    other = f"t-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, other)
    election = {"resourceNamespace": namespace}
    flags = configured(tmp_path / "configuration.yaml", leaderElection=election)
    manager = ManagerProcess(cluster.kubeconfig, tmp_path / "manager.log", *flags)
    await client.create(JobSet, namespace, manifest(large_patterns(60), namespace, "hostile"))

    async def leases():
        page = await client.list_page(Lease, namespace)
        return [each for each in page.items if each.metadata.name == LEASE]

    await manager.start()
    try:
        # The manager is ready before it leads.
        (lease,) = await patience.eventually(leases, 20, poll_s=0.05)
        ordinary = jobset_json(replicated_job("w"))
        await client.create(JobSet, other, manifest(ordinary, other, "ordinary"))

        async def jobs(where):
            return (await client.list_page(Job, where)).items

        await patience.eventually(lambda: jobs(other), 5, poll_s=0.05)
        await patience.eventually(lambda: jobs(namespace), 5, poll_s=0.05)
        await asyncio.sleep(12)

        after = await client.get(Lease, namespace, LEASE)
        assert after.spec.holder_identity == lease.spec.holder_identity
        assert after.spec.lease_transitions == lease.spec.lease_transitions
        assert manager.process.returncode is None
    finally:
        await manager.kill()
