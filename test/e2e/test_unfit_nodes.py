"""Unfit nodes, on two real nodes: health commands that fail."""

from __future__ import annotations

import contextlib
import time

import pytest

from hack.cluster import Cluster
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.kubectl.manifests import judge
from jobsetpy.reconcilers.rules.features import Features
from support.cluster.install import AGENT_IMAGE
from support.cluster.json_api import StoredJobSet
from support.cluster.objects import jobset, replicated_job, shell_worker, spread
from support.commands import why
from support.patience import eventually
from support.restarts.scenario import (
    WORKER_SCRIPT,
    EventText,
    build_images,
    install_agents,
    kill_worker,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

NAMESPACE = "default"
CHECK = "[ ! -e /checks/$NODE ] || { echo row remap failed; exit 3; }"


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster of two nodes."""
    with Cluster(nodes=2, images=build_images()[1:], timeout_s=180) as running:
        yield running


def manifest(name, folder, spares=0):
    """A JobSet with two seats whose pods are spread over the nodes, as admission stores it.

    A node fails the pods' health command while ``folder`` has a file with its name.
    """
    notes = {
        keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
        keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
        keys.IN_PLACE_HEALTH_ANNOTATION: CHECK,
        keys.IN_PLACE_HEALTH_SECONDS_ANNOTATION: "0.5",
        keys.IN_PLACE_HEALTH_INTERVAL_ANNOTATION: "1",
        keys.RESTART_BACKOFF_ANNOTATION: "0",
    }
    if spares:
        notes[keys.IN_PLACE_SPARES_ANNOTATION] = str(spares)
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    mounts = [{"name": "checks", "mountPath": "/checks"}]
    env = [{"name": "NODE", "valueFrom": field}]
    container = shell_worker(WORKER_SCRIPT, env=env, volumeMounts=mounts)
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
        "topologySpreadConstraints": spread({keys.JOBSET_NAME: name}),
        "volumes": [{"name": "checks", "hostPath": {"path": str(folder), "type": "Directory"}}],
    }
    policy = {"maxRestarts": 20, "restartStrategy": keys.IN_PLACE_RESTART}
    job = replicated_job(pod, 2)
    body = jobset(name, job, annotations=notes, failurePolicy=policy)
    body["metadata"]["namespace"] = NAMESPACE
    verdict = judge(body, Features(), AGENT_IMAGE)
    assert verdict.errors == []
    return verdict.jobset


class Group(StoredJobSet):
    """A JobSet with its pods, status and events."""

    async def pods(self):
        """Return the running pods by completion index, without those that are being deleted."""
        page = await self.client.list_page(
            Pod, NAMESPACE, label_selector=f"{keys.JOBSET_NAME}={self.name}"
        )
        return {
            int(pod.metadata.annotations[keys.COMPLETION_INDEX_ANNOTATION]): pod
            for pod in page.items
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        }

    async def at(self, epoch):
        """Wait until an epoch is synced; return the pods."""
        await self.reaches_epoch(epoch, 90)
        return await self.pods()

    async def events(self, reason):
        """Wait for events with a reason; return their notes."""

        async def notes():
            page = await self.client.list_page(EventText, NAMESPACE)
            mine = (event for event in page.items if event.metadata.name.startswith(self.name))
            return [event.note for event in mine if event.reason == reason]

        return await eventually(notes, 30, poll_s=0.1)


@contextlib.asynccontextmanager
async def running(client, name, folder, spares=0):
    """A JobSet whose workers run at epoch 1 and whose spares are ready; deleted in the end."""
    await install_agents(client)
    group = Group(client, NAMESPACE, name)
    async with group.living(manifest(name, folder, spares)):
        await group.at(1)
        if spares:
            await group.reaches_spares(spares)
        yield group


async def test_pod_is_replaced_on_another_node_when_its_node_is_unfit(two_nodes, client, tmp_path):
    """The health command fails at the restart of another pod's worker: exit code 85."""
    async with running(client, "unfit", tmp_path) as group:
        pods = await group.pods()
        first, second = pods[0].spec.node_name, pods[1].spec.node_name
        assert first != second
        (tmp_path / second).touch()
        moment = await kill_worker(pods[0], supervised=True)
        after = await group.at(2)
        print(f"kill of a worker to a group without the unfit node: {time.time() - moment:.2f} s")

        assert {pod.spec.node_name for pod in after.values()} == {first}
        assert after[0].metadata.uid == pods[0].metadata.uid
        (note,) = await group.events(keys.NODE_UNFIT_REASON)
        ended = pods[1].metadata.name
        assert note.startswith(
            f"pod {ended!r} has ended because node {second!r} is unfit for it "
            "(exit code 3: row remap failed)"
        )
        failed = await client.get(Pod, NAMESPACE, ended)
        (status,) = failed.status.container_statuses
        assert status.state.terminated.exit_code == keys.UNFIT_EXIT_CODE
        text = await why(two_nodes, "unfit")
        assert f"Node {second} is unfit for pod {ended}: exit code 3: row remap failed." in text


async def test_spare_is_replaced_without_a_restart_when_its_node_is_unfit(client, tmp_path):
    """The health command runs while the spare waits; the status has no ready spare meanwhile."""
    async with running(client, "waits", tmp_path, spares=1) as group:
        pods = await group.pods()
        node = pods[2].spec.node_name
        (tmp_path / node).touch()
        at = time.monotonic()
        await group.reaches_spares(0)
        unready_s = time.monotonic() - at
        await group.reaches_spares(1)
        print(
            f"node is unfit to no ready spare: {unready_s:.2f} s, to the next ready one: "
            f"{time.monotonic() - at:.2f} s"
        )
        after = await group.pods()

        assert after[2].metadata.uid != pods[2].metadata.uid
        assert after[2].spec.node_name != node
        assert [after[seat].metadata.uid for seat in (0, 1)] == [
            pods[seat].metadata.uid for seat in (0, 1)
        ]
        assert (await group.jobset()).status.synced_epoch == 1
        assert len(await group.events(keys.NODE_UNFIT_REASON)) == 1
