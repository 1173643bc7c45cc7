"""The integration test plan of KEP-467: real API server, Job controller and manager."""

import asyncio
import contextlib

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from support import patience
from support.cluster.follow import following
from support.cluster.manager_process import manager_process
from support.cluster.objects import in_place_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]


class Group:
    """A JobSet of four pods whose agents the test simulates."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.history = []
        self.news = patience.News()
        self.pods = []

    def note(self, jobset, gone):
        pair = (jobset.status.synced_epoch, jobset.status.deprecated_epoch)
        if not gone and self.history[-1:] != [pair]:
            self.history.append(pair)
            self.news.set()

    async def patch(self, pod, **annotations):
        body = {"metadata": {"annotations": annotations}}
        await self.client.merge_patch(ChildPod, self.namespace, pod, body)

    async def report(self, epoch, *pods):
        for pod in pods:
            await self.patch(pod, **{keys.EPOCH_ANNOTATION: str(epoch)})

    async def status(self, *pair):
        """Wait for a pair of epochs; return all pairs that were written until then."""
        await self.news.until(lambda: self.history[-1:] == [pair], 30)
        return self.history


@pytest.fixture
async def group(client, namespace, cluster, tmp_path):
    """A JobSet with all four pods, none of which has reported an epoch."""
    group = Group(client, namespace)
    appeared = asyncio.Event()

    def note_pod(pod, gone):
        if not gone and pod.metadata.name not in group.pods:
            group.pods.append(pod.metadata.name)
        if len(group.pods) == 4:
            appeared.set()

    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(manager_process(cluster.kubeconfig, tmp_path / "log"))
        await client.create(JobSet, namespace, in_place_jobset("js", jobs=2, pods=2))
        for cls, note in ((JobSet, group.note), (ChildPod, note_pod)):
            await stack.enter_async_context(following(client, cls, note, namespace=namespace))
        async with patience.timeout(60):
            await appeared.wait()
        yield group
        await client.delete(JobSet, namespace, "js", propagation="Background")


async def test_status_is_written_as_the_kep_plans(group):
    """Each case writes exactly what the plan contains.

    A missing write is proved by the next one: the history has no entry in between.
    """
    first, second, *others = group.pods

    # All pods just became in sync: update syncedEpoch.
    await group.report(1, *group.pods)
    assert await group.status(1, 0) == [(0, 0), (1, 0)]

    # All pods in sync: do not update the status when other parts of them change.
    for pod in group.pods:
        await group.patch(pod, touched="yes")
    await group.report(1, *group.pods)

    # All pods were in sync but one restarted into a new epoch: update deprecatedEpoch.
    await group.report(2, first)
    assert await group.status(1, 1) == [(0, 0), (1, 0), (1, 1)]

    # A second pod restarted into the new epoch but not all yet: do not update the status.
    await group.report(2, second)
    await group.report(2, *others[:-1])

    # The last one reports: in sync again.
    await group.report(2, others[-1])
    assert await group.status(2, 1) == [(0, 0), (1, 0), (1, 1), (2, 1)]
