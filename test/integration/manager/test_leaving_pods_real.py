"""Pods that are deleted, with a real API server and Job controller.

The manager is a process of its own with its own rights; kubelets and agents are simulated.
"""

import asyncio
import contextlib
import functools
import signal
import uuid

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node, Pod
from support import patience
from support.cluster.json_api import send
from support.cluster.pod_status import now
from support.restarts.played_group import NODE, managed_group

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

NAME = "leaving"


@contextlib.asynccontextmanager
async def run_group(cluster, client, namespace, tmp_path, *arguments, **settings):
    """A group of four pods of one Job whose workers run at epoch 1; ``arguments`` are flags."""
    group = managed_group(cluster, client, namespace, NAME, tmp_path, *arguments)
    async with group as (one, manager):
        await one.create(**{"jobs": 1, "pods": 4, **settings})
        if "spec" in settings:  # the JobSet does not restart in place
            assert await patience.eventually(lambda: len(one.there(1)) == 4, 60)
        else:
            await one.at(1, 4)
        yield one, manager


@pytest.fixture
def group(cluster, client, namespace, tmp_path):
    """Function that runs a group within a block; see ``run_group``."""
    return functools.partial(run_group, cluster, client, namespace, tmp_path)


def counts(job):
    """Return the pods that a Job counts as succeeded and failed."""
    return job.status.succeeded, job.status.completed_indexes, job.status.failed


async def released(one, name):
    """Let the worker of a deleted pod end when the manager has removed the Job's finalizer."""

    def untracked():
        pod = one.pods.get(name)
        return pod is None or keys.JOB_TRACKING_FINALIZER not in pod.metadata.finalizers

    assert await patience.eventually(untracked, 60)
    one.may_end.set()


async def delete_before(one, name):
    """Delete a pod whose worker ends when the manager has removed the Job's finalizer."""
    one.may_end.clear()
    at = await one.delete(name)
    await released(one, name)
    return at


@pytest.mark.parametrize("code", [0, 143])
async def test_pod_that_leaves_is_counted_neither_as_succeeded_nor_as_failed(group, code):
    """The manager comes first while its worker ends, so the Job's back-off is 0 each time."""
    async with group() as (one, _):
        one.code = code
        for epoch in range(2, 5):
            await delete_before(one, one.there(epoch - 1)[0])
            await one.at(epoch, 4)

        assert counts(await one.job()) == (0, "", 0)
        assert max(one.most.values()) == 1


async def test_restarted_manager_handles_pods_that_are_already_leaving(group):
    """No state is needed: the leaving pod is in the cache of the next manager."""
    async with group() as (one, manager):
        await manager.kill()
        name = one.there(1)[0]
        one.may_end.clear()
        await one.delete(name)
        await manager.start()
        await released(one, name)
        await one.at(2, 4, timeout_s=90)

        assert counts(await one.job()) == (0, "", 0)


async def test_job_is_recreated_when_it_has_counted_a_leaving_pod(group):
    """A manager that was too slow to prevent it notices it, and no rank is lost."""
    async with group() as (one, manager):
        manager.process.send_signal(signal.SIGSTOP)
        try:
            await one.delete(one.there(1)[0])

            async def counted():
                return (await one.job()).status.completed_indexes == "0"

            assert await patience.eventually(counted, 20)
        finally:
            manager.process.send_signal(signal.SIGCONT)
        await one.complete(4, 90)

        assert counts(await one.job()) == (0, "", 0)
        assert max(one.most.values()) == 1


@pytest.mark.parametrize("manager_state", ["runs", "is stopped", "is gone"])
async def test_rank_is_kept_when_its_kubelet_ends_its_pod(group, client, namespace, manager_state):
    """It saves and exits with 0; the Job controller counts it before a manager sees it, or not."""
    async with group() as (one, manager):
        name = one.there(1)[0]
        if manager_state == "is stopped":
            manager.process.send_signal(signal.SIGSTOP)
        elif manager_state == "is gone":
            await manager.kill()
        await one.end_by_kubelet(name)

        async def counted():
            return (await one.job()).status.completed_indexes == "0"

        if manager_state != "runs":
            assert await patience.eventually(counted, 20)
        if manager_state == "is stopped":
            manager.process.send_signal(signal.SIGCONT)
        elif manager_state == "is gone":
            await manager.start()
        assert await patience.eventually(lambda: name not in one.pods, 60)

        async def kept():
            # A Job that has counted the pod, here before a busy manager, may be deleted just now.
            jobs = (await client.list_page(Job, namespace)).items
            return [counts(job) for job in jobs] == [(0, "", 0)]

        assert await patience.eventually(kept, 60)
        await one.complete(4, 90)
        assert max(one.most.values()) == 1
        assert (await one.jobset()).status.restarts_count_towards_max == 0


async def test_pod_deleted_by_force_is_kept_until_its_kubelet_ends_it(group, client, namespace):
    """Without the finalizer a second pod of the index would run next to it."""
    async with group() as (one, _):
        one.code, one.leave_s = 143, 3.0
        name = one.there(1)[0]
        await one.delete(name, grace_s=0)
        await asyncio.sleep(1.5)

        pod = await client.get(Pod, namespace, name)
        assert keys.JOB_TRACKING_FINALIZER in pod.metadata.finalizers
        await one.at(2, 4)
        assert max(one.most.values()) == 1


async def beat(client, name, status, since):
    """Write a heartbeat of a node with a status and its time of transition."""
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": "",
                 "lastTransitionTime": since, "lastHeartbeatTime": now()}  # fmt: skip
    body = {"status": {"conditions": [condition]}}
    await client.merge_patch(Node, "", name, body, subresource="status")


@contextlib.asynccontextmanager
async def lost_node(client):
    """Make the node unreachable within the block.

    Another node answers: if none does, the node controller removes all taints.
    """
    since = now()
    taint = {"key": keys.NODE_UNREACHABLE_TAINT, "effect": "NoExecute", "timeAdded": since}
    peer = f"peer-{uuid.uuid4().hex[:6]}"
    await client.create(Node, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": peer}})

    async def beating():
        while True:
            await beat(client, peer, "True", since)
            await beat(client, NODE, "Unknown", since)
            await client.merge_patch(Node, "", NODE, {"spec": {"taints": [taint]}})
            await asyncio.sleep(2)

    async with aio.supervise() as tasks:
        tasks.start(beating(), name="heartbeats")
        yield
    await beat(client, NODE, "True", since)
    await client.merge_patch(Node, "", NODE, {"spec": {"taints": []}})
    await client.delete(Node, "", peer)


@pytest.mark.parametrize("grace_s", [0, None], ids=["by force", "with grace"])
async def test_pod_on_a_lost_node_is_replaced_after_the_deadline(group, client, namespace, grace_s):
    """With and without the Job's finalizer, and although no kubelet ever ends it."""
    container = {"name": "worker", "image": "test.invalid/worker:1"}
    taints = (keys.NODE_NOT_READY_TAINT, keys.NODE_UNREACHABLE_TAINT)
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "terminationGracePeriodSeconds": 2,
        # By name, for the other pods to stay. A toleration of everything has the deadline's time.
        "tolerations": [{"key": key, "operator": "Exists"} for key in taints],
    }
    job = {"template": {"spec": pod}}
    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "10s"}
    settings = {"job": job, "annotations": notes}
    async with group(**settings) as (one, _):
        one.leave_s = 1000.0
        name = one.there(1)[0]
        async with lost_node(client):
            await one.delete(name, grace_s=grace_s)
            await asyncio.sleep(1.5)
            tracked = (await client.get(Pod, namespace, name)).metadata.finalizers
            assert (keys.JOB_TRACKING_FINALIZER in tracked) is (grace_s == 0)
            await patience.eventually(lambda: name not in one.pods, 60)
        await one.at(2, 4)

        assert counts(await one.job())[:2] == (0, "")


async def test_failed_pod_is_replaced_while_the_job_controller_backs_off(group):
    """The manager creates the successor; the back-off doubles: 10, 20, 40 s for three failures."""
    async with group() as (one, _):
        for epoch in range(2, 5):
            known = set(one.ready_at)
            at = await one.fail(one.there(epoch - 1)[0])
            await one.replacement(known, at, 200)
            await one.at(epoch, 4)

        async def counted():
            return (await one.job()).status.failed == 3

        assert await patience.eventually(counted, 20)
        assert max(one.most.values()) == 1


async def test_successor_is_the_pod_that_the_job_controller_creates(group, client, namespace):
    """All fields are equal except name and time; with the failures of its index."""
    job = {"backoffLimitPerIndex": keys.INT32_MAX}
    async with group(job=job) as (one, _):

        async def fields_of(name):
            found = await send(client, "GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
            for field in ("name", "generateName", "uid", "creationTimestamp"):
                found["metadata"].pop(field, None)
            for field in ("resourceVersion", "managedFields", "generation"):
                found["metadata"].pop(field, None)
            found["spec"]["volumes"] = None  # the token's volume has a random name
            for container in found["spec"]["containers"]:
                container["volumeMounts"] = None
            notes = found["metadata"]["annotations"]
            del notes[keys.EPOCH_ANNOTATION]
            return found["metadata"], found["spec"], notes.pop(keys.INDEX_FAILURES_ANNOTATION)

        first = one.there(1)[0]
        *expected, none = await fields_of(first)
        known = set(one.ready_at)
        at = await one.fail(first)
        await one.replacement(known, at)
        await one.at(2, 4)
        (name,) = one.ready_at.keys() - known
        *made, failures = await fields_of(name)

        assert made == expected
        assert (none, failures) == ("0", "1")


async def test_two_pods_of_one_index_never_run_together(group, cluster, client, namespace):
    """If both controllers create one, the Job controller deletes one before a barrier lifts.

    The manager knows both before an agent runs in either of them, since a kubelet takes longer to
    start a pod than a watch to report it.
    """
    async with group() as (one, _):
        first = one.there(1)[0]
        path = f"/api/v1/namespaces/{namespace}/pods"
        double = await send(client, "GET", f"{path}/{first}")
        meta = double["metadata"]
        kept = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")
        double["metadata"] = {field: meta[field] for field in kept}
        del double["metadata"]["annotations"][keys.EPOCH_ANNOTATION]
        del double["status"]
        for later_s in (0.0, 5.0):  # the second agent reports with the first, or not in time
            known, alive = set(one.pods), set(one.ready_at)
            one.start_s = patience.scaled(0.5)
            cluster.signal_component("kube-controller-manager", signal.SIGSTOP)
            try:
                at = await one.fail(first)
                await patience.eventually(lambda known=known: one.pods.keys() - known, 30)
                one.start_s += patience.scaled(later_s)
                await send(client, "POST", path, double)
                await one.replacement(alive, at)
                await asyncio.sleep(patience.scaled(0.5))  # time for a forbidden lift
            finally:
                cluster.signal_component("kube-controller-manager", signal.SIGCONT)
            await one.complete(4, 60)
            first = next(
                name
                for name in one.there(one.epoch)
                if one.pods[name].metadata.annotations.completion_index
                == meta["annotations"][keys.COMPLETION_INDEX_ANNOTATION]
            )

        assert one.doubled == []
