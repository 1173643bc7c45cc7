"""Pods that save their work when they are deleted, and pods that fail whole, on a real node."""

import os
import signal
import time

import pytest

from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from support import patience
from support.cluster.processes import pod_host_name, process_in
from support.restarts.scenario import gang_jobset, pod_log_folders, run_gang, supervised_jobset

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
        seconds = []
        for epoch in (2, 3, 4):
            name = min(timeline.pods)
            # In supervisor mode the containers of the other pods continue.
            begun = time.time() if mode == "sidecar" else 0.0
            at = time.monotonic()
            await node_client.delete(Pod, "default", name)
            await timeline.wait(
                lambda epoch=epoch, begun=begun: timeline.all_running(PODS, epoch, begun),
                60,
                f"all workers at epoch {epoch}",
            )
            seconds.append(round(time.monotonic() - at, 2))
            assert name not in timeline.pods
        (job,) = (await node_client.list_page(Job, "default")).items

        print(f"deletion until all run again, {mode}: {seconds}")
        assert (job.status.succeeded, job.status.completed_indexes) == (0, "")
        assert job.status.failed == 0
        assert max(seconds) < patience.scaled(9), seconds


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
        seconds = []
        for epoch in (2, 3, 4, 5):
            pods = (await node_client.list_page(Pod, "default")).items
            victim = next(pod for pod in pods if pod.status.phase == "Running")
            at = time.monotonic()
            os.kill(process_in(pod_host_name(victim), 1), signal.SIGKILL)
            await timeline.wait(
                lambda epoch=epoch: run_at(timeline, epoch) == PODS,
                120,
                f"all workers at epoch {epoch}",
            )
            seconds.append(round(time.monotonic() - at, 2))

        async def counted():
            (job,) = (await node_client.list_page(Job, "default")).items
            return job.status.failed == len(seconds)

        print(f"end of a pod until all run again: {seconds}")
        assert max(seconds) < patience.scaled(9), seconds
        assert await patience.eventually(counted, 20)
