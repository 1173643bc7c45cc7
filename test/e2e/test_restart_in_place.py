"""The end-to-end plan of KEP-467 on a real kubelet, with the project's own images."""

import asyncio
import copy

import pytest

from jobsetpy.api.core import Node, Pod
from jobsetpy.api.jobset import JobSet
from support.cluster.install import AGENT_IMAGE
from support.patience import eventually
from support.restarts.scenario import (
    gang_jobset,
    install_agents,
    pod_log_folders,
    restart_once,
    run_gang,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_group_restarts_in_place_when_a_worker_is_killed(node_cluster, node_client):
    """All workers start again in their old pods, once for each failure."""
    jobset = gang_jobset("e2e", 2)
    async with run_gang(node_client, jobset, 2, pod_log_folders(node_cluster)) as timeline:
        first = await restart_once(timeline, 2)
        second = await restart_once(timeline, 2)
        pods = (await node_client.list_page(Pod, "default")).items

        assert (first.recreated, second.recreated) == (0, 0)
        assert max(timeline.synced) == 3
        assert max(timeline.deprecated) == 2
        assert timeline.restarts == 0
        assert {status.restart_count for p in pods for status in p.status.container_statuses} == {2}


async def test_no_worker_starts_before_all_pods_have_reported(node_cluster, node_client):
    """The barrier holds every worker until the agent of the last pod has reported.

    The second Job of the group requires a node label that no node has at first.
    """
    jobset = gang_jobset("barrier", 1)
    (first,) = jobset["spec"]["replicatedJobs"]
    late = copy.deepcopy(first)
    late["name"] = "late"
    pod = late["template"]["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"test.example/late": "yes"}
    jobset["spec"]["replicatedJobs"].append(late)
    (node,) = (await node_client.list_page(Node)).items

    async def allow_late_pod() -> None:
        labels = {"metadata": {"labels": {"test.example/late": "yes"}}}
        await node_client.merge_patch(Node, "", node.metadata.name, labels)

    async with asyncio.TaskGroup() as group:
        started_early = asyncio.Event()
        group.create_task(watch_early_start(node_client, started_early, allow_late_pod))
        async with run_gang(node_client, jobset, 2, pod_log_folders(node_cluster)) as timeline:
            assert not started_early.is_set()
            assert max(timeline.synced) == 1


@pytest.mark.parametrize("noticed_by", ["agent", "manager"])
async def test_barrier_holds_when_the_kubelet_restarts(node_cluster, node_client, noticed_by):
    """It forgets the probe of an agent that waits for a pod without a node, each time.

    The agent notices it if its probe waits; else the manager, which replaces the pod.
    """
    jobset = gang_jobset("forgetful", 2)
    jobset["spec"]["failurePolicy"]["maxRestarts"] = 0
    late = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if noticed_by == "manager":
        late["initContainers"][0]["startupProbe"]["httpGet"]["path"] = "/barrier-is-lifted"
    late["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "forgetful"}},
            "minDomains": 2,
        }
    ]

    async def agents():
        pods = (await node_client.list_page(Pod, "default")).items
        return {
            (pod.metadata.uid, one.restart_count)
            for pod in pods
            for one in pod.status.init_container_statuses
            if one.state.running is not None and pod.metadata.deletion_timestamp is None
        }

    async def workers():
        pods = (await node_client.list_page(Pod, "default")).items
        return [
            one
            for pod in pods
            for one in pod.status.container_statuses
            if one.state.running is not None
        ]

    await install_agents(node_client)
    await node_client.create(JobSet, "default", jobset)
    try:
        for _ in range(2 if noticed_by == "agent" else 1):
            first = await eventually(agents, 60)
            await asyncio.sleep(12)  # younger containers are probed again
            node_cluster.stop_component("node-1/kubelet")
            node_cluster.start_component("node-1/kubelet")

            async def ended(first=first):
                return not first & await agents() and await workers() == []

            await eventually(ended, 60)
            # A worker that the kubelet has started has ended with the agent, and stays so.
            await asyncio.sleep(5)
            assert await workers() == []
        status = (await node_client.get(JobSet, "default", "forgetful")).status
        assert (status.synced_epoch, status.terminal_state) == (0, "")
    finally:
        await node_client.delete(JobSet, "default", "forgetful", propagation="Foreground")

        async def is_gone():  # the next case creates one with this name
            jobsets = (await node_client.list_page(JobSet, "default")).items
            return all(jobset.metadata.name != "forgetful" for jobset in jobsets)

        await eventually(is_gone, 60)


async def watch_early_start(client, started_early, allow_late_pod) -> None:
    """Watch the first pod's worker; allow the late pod once the agent was seen eight times."""
    reported = 0
    while reported < 8:
        for pod in (await client.list_page(Pod, "default")).items:
            if "barrier-workers" not in pod.metadata.name:
                continue
            if "jobset.sigs.k8s.io/epoch" in pod.metadata.annotations:
                reported += 1
            for status in pod.status.container_statuses:
                if status.state.running is not None:
                    started_early.set()
        await asyncio.sleep(0.5)
    await allow_late_pod()


def test_sample_runs_the_agent_image_of_this_project():
    """The scenario replaces the sample's agent image by the one built here, and nothing else."""
    (job,) = gang_jobset("x", 3)["spec"]["replicatedJobs"]
    (agent,) = job["template"]["spec"]["template"]["spec"]["initContainers"]

    assert agent["image"] == AGENT_IMAGE
    assert agent["startupProbe"]["httpGet"]["path"] == "/barrier-is-lifted?wait=25"
