"""Pods that save their work when they are deleted, and pods that fail whole, on a real node."""

import asyncio
import contextlib
import json
import os
import signal
import time

import pytest

from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.processes import pod_host_name, process_in
from support.restarts.scenario import (
    SHELL_IMAGE,
    gang_jobset,
    pod_log_folders,
    run_gang,
    supervised_jobset,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

PODS = 3
SCRIPT = "trap 'echo saved; exit 0' TERM; echo worker started; sleep 1000000 & wait $!"


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
async def test_deleted_pod_is_replaced_when_its_program_saves_and_exits_with_0(
    node_cluster, node_client, mode
):
    """The group continues with all ranks, each time, and no index completes."""
    if mode == "sidecar":
        jobset = gang_jobset("saves", PODS, command=SCRIPT)
    else:
        jobset = supervised_jobset("saves", PODS, command=("sh", "-c", SCRIPT))
    async with run_gang(node_client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        for epoch in (2, 3):
            name = min(timeline.pods)
            # In supervisor mode the containers of the other pods continue.
            begun = time.time() if mode == "sidecar" else 0.0
            await node_client.delete(Pod, "default", name)
            await timeline.wait(
                lambda epoch=epoch, begun=begun: timeline.all_running(PODS, epoch, begun),
                60,
                f"all workers at epoch {epoch}",
            )
            assert name not in timeline.pods
        (job,) = (await node_client.list_page(Job, "default")).items

        assert (job.status.succeeded, job.status.completed_indexes) == (0, "")
        assert job.status.failed == 0


@contextlib.contextmanager
def critical_pod(cluster):
    """A pod within the block for which the kubelet has to end another one, for 150m of CPU."""
    requests = [
        (container.get("resources") or {}).get("requests", {}).get("cpu", "0m")
        for pod in cluster.api.get("/api/v1/pods")["items"]
        if pod["status"]["phase"] not in {"Succeeded", "Failed"}
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    ]
    capacity = cluster.api.get("/api/v1/nodes/node-1")["status"]["allocatable"]["cpu"]
    wanted = millis(capacity) - sum(map(millis, requests)) + 150
    container = {"name": "c", "image": SHELL_IMAGE, "imagePullPolicy": "IfNotPresent",
                 "command": ["sleep", "1000000"],
                 "resources": {"requests": {"cpu": f"{wanted}m"}}}  # fmt: skip
    spec = {"nodeName": "node-1", "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 1, "containers": [container]}  # fmt: skip
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical"}, "spec": spec}
    path = "/api/v1/namespaces/kube-system/pods"
    cluster.api.request("POST", path, json.dumps(body))
    try:
        yield
    finally:
        cluster.api.request("DELETE", f"{path}/critical")


def millis(cpu):
    """Return a quantity of CPU in thousandths."""
    return int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
async def test_rank_is_replaced_without_charge_when_its_kubelet_ends_its_pod(
    node_cluster, node_client, mode
):
    """The kubelet deletes nothing. It restarts meanwhile, and must not open a sidecar's barrier."""
    if mode == "sidecar":
        jobset = gang_jobset("ended", PODS, command=SCRIPT)
    else:
        jobset = supervised_jobset("ended", PODS, command=("sh", "-c", SCRIPT))
    jobset["spec"]["failurePolicy"]["maxRestarts"] = 0
    (job,) = jobset["spec"]["replicatedJobs"]
    (worker,) = job["template"]["spec"]["template"]["spec"]["containers"]
    worker["resources"] = {"requests": {"cpu": "300m"}}
    epoch = 2
    async with run_gang(node_client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        before = set(timeline.pods)
        with critical_pod(node_cluster):

            def ended():
                left = [pod for pod in timeline.pods.values() if pod.epoch == epoch]
                return timeline.pods.keys() - before and len(left) >= PODS - 1

            await timeline.wait(ended, 60, "a replacement, and the others at the next epoch")
            if mode == "sidecar":
                await asyncio.sleep(12)  # the kubelet probes younger containers again
                node_cluster.stop_component("node-1/kubelet")
                node_cluster.start_component("node-1/kubelet")
                await asyncio.sleep(patience.scaled(8))
                # One that the kubelet has started without its group was ended by its agent.
                assert not [pod for pod in timeline.pods.values() if pod.worker_running]
        await timeline.wait(lambda: run_at(timeline, epoch) == PODS, 120, "all workers to run")
        (job,) = (await node_client.list_page(Job, "default")).items
        status = (await node_client.get(JobSet, "default", "ended")).status

        assert (job.status.succeeded, job.status.completed_indexes) == (0, "")
        print(f"{mode}: failed pods that the Job counts: {job.status.failed}")
        assert (status.restarts, status.terminal_state) == (0, "")
        assert [one.counted for one in status.restart_history] == [False]


def run_at(timeline, epoch):
    """Return the number of workers that run at a synced epoch; ended pods remain listed."""
    running = [pod for pod in timeline.pods.values() if pod.worker_running and pod.epoch == epoch]
    return len(running) if epoch in timeline.synced else 0


async def test_failed_pod_is_replaced_immediately_each_time_when_its_agent_is_killed(
    node_cluster, node_client
):
    """All processes of the pod end; the Job counts the failure, and its back-off would grow."""
    jobset = supervised_jobset("fails", PODS, command=("sh", "-c", SCRIPT))
    async with run_gang(node_client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        for epoch in (2, 3, 4):
            pods = (await node_client.list_page(Pod, "default")).items
            victim = next(pod for pod in pods if pod.status.phase == "Running")
            os.kill(process_in(pod_host_name(victim), 1), signal.SIGKILL)
            await timeline.wait(
                lambda epoch=epoch: run_at(timeline, epoch) == PODS,
                120,
                f"all workers at epoch {epoch}",
            )

        async def counted():
            (job,) = (await node_client.list_page(Job, "default")).items
            return job.status.failed == 3

        assert await patience.eventually(counted, 20)
