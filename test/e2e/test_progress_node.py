"""Supervisors on a real node: standby processes, failures, hangs, requested restarts, eviction."""

import os
import re
import signal

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.json_api import send
from support.cluster.processes import pod_host_name, process_in, process_of, processes
from support.restarts.scenario import pod_log_folders, run_gang, supervised_jobset

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """trap 'exit 143' TERM
if [ "$JOBSET_STANDBY_FD" ]; then
  eval "echo ready >&$JOBSET_STANDBY_FD; read -r _ line <&$JOBSET_STANDBY_FD" || exit 0
  echo "worker $$$$ $line stood by"
else
  echo "worker $$$$ epoch=$JOBSET_EPOCH"
fi
n=0
while :; do n=$((n+1)); echo $n >"$JOBSET_PROGRESS_FILE"; sleep 0.2; done"""
HANG_S = 5
PODS = 2
SETTINGS = {
    "HANG_SECONDS": str(HANG_S),
    "HANG_FIRST_SECONDS": str(HANG_S),
    "WORKER_STANDBY": "on",
    "WORKER_STANDBY_DELAY_SECONDS": "1",
}


class Group:
    """The JobSet under test, and the records of its restarts."""

    def __init__(self, client, timeline):
        self.client = client
        self.timeline = timeline

    def lines(self, pod):
        """Return the output of the pod's worker and agent, without the kubelet's prefix."""
        story = self.timeline.pods[pod]
        return [
            line.split(" ", 3)[-1]
            for folder in self.timeline.pod_logs
            for path in folder.glob(f"default_{story.name}_{story.uid}/worker/*.log")
            for line in path.read_text().splitlines()
        ]

    async def standbys_ready(self):
        """Wait until each pod has a standby process that has not run."""

        def ready(pod):
            lines = self.lines(pod)
            lines_ready = sum('"standby ready"' in line for line in lines)
            return lines_ready > sum(" stood by" in line for line in lines)

        await patience.eventually(lambda: all(map(ready, self.timeline.pods)), 60)

    def ran(self, pod, epoch):
        """Return the match of the first line of an epoch's worker; ``None`` before it starts."""
        found = [
            re.fullmatch(rf"worker (\d+) epoch={epoch}( stood by)?", t) for t in self.lines(pod)
        ]
        return next((match for match in found if match), None)

    async def end(self, pod, epoch, number=signal.SIGKILL):
        """Send a signal to the pod's worker, not to its standby process."""
        await patience.eventually(lambda: self.ran(pod, epoch) is not None)
        inner = int(self.ran(pod, epoch)[1])
        host = pod_host_name(await self.client.get(Pod, "default", pod))
        os.kill(process_in(host, inner), number)

    async def restarted(self, epoch):
        """Wait for an epoch; return the restart's cause, whether it counted, and the totals."""
        await self.timeline.wait(lambda: epoch in self.timeline.synced, 120, f"epoch {epoch}")
        status = (await self.client.get(JobSet, "default", "progress")).status
        record = status.restart_history[-1]
        assert (record.number, record.outcome) == (epoch, "Completed")
        return record.cause, record.counted, status.in_place_restart


async def test_restarts_have_the_right_cause_and_only_failures_count(node_cluster, node_client):
    """Failure, hang, request and eviction; standby processes take over in their pods."""
    jobset = supervised_jobset("progress", PODS, command=("sh", "-c", SCRIPT), environ=SETTINGS)
    logs = pod_log_folders(node_cluster)
    async with run_gang(node_client, jobset, PODS, logs) as timeline:
        group = Group(node_client, timeline)
        first, second = sorted(timeline.pods)

        await group.standbys_ready()
        await group.end(first, 1)
        cause, counted, counts = await group.restarted(2)
        assert (cause.reason, cause.pod) == (keys.WORKER_FAILED_REASON, first)
        assert (cause.exit_code, counted, counts.restarts) == (137, True, 1)
        assert counts.highest_step is not None
        await patience.eventually(lambda: all(group.ran(pod, 2) for pod in (first, second)))
        assert all(group.ran(pod, 2)[2] for pod in (first, second))

        await group.end(second, 2, signal.SIGSTOP)
        cause, counted, counts = await group.restarted(3)
        assert (cause.reason, counted, counts.restarts) == (keys.WORKER_HUNG_REASON, True, 2)
        assert cause.pod == second
        assert re.match(rf"no progress for {HANG_S} s( at step \d+)?$", cause.message)

        request = {"metadata": {"annotations": {keys.RESTART_IN_PLACE_ANNOTATION: "now"}}}
        await node_client.merge_patch(JobSet, "default", "progress", request)
        cause, counted, counts = await group.restarted(4)
        assert (cause.reason, counted, counts.restarts) == ("RestartRequested", False, 2)
        assert counts.served_request == "now"

        await evict(node_client, first)
        cause, counted, counts = await group.restarted(5)
        assert (cause.reason, cause.pod) == (keys.POD_LEAVING_REASON, first)
        assert (counted, counts.restarts) == (False, 2)
        assert first not in timeline.pods
        await patience.eventually(lambda: group.ran(second, 5))


async def test_container_ends_with_its_agent_when_the_agent_reads_the_output(
    node_cluster, node_client
):
    """No process of the container outlives a killed agent, and the group has a new pod."""
    settings = {"PROGRESS_PATTERN": "step ([0-9]+)"}  # the worker writes into pipes of the agent
    jobset = supervised_jobset("progress", PODS, command=("sh", "-c", SCRIPT), environ=settings)
    async with run_gang(node_client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        group, first_pods = Group(node_client, timeline), set(timeline.pods)
        victim = await node_client.get(Pod, "default", min(timeline.pods))
        await patience.eventually(lambda: group.ran(victim.metadata.name, 1) is not None)

        os.kill(process_of(victim, "supervise"), signal.SIGKILL)

        mark = f"/pods/{victim.metadata.uid}/volumes"  # the sandbox ends later, with the pod
        await patience.eventually(lambda: not any(mark in each.mounts for each in processes()))
        cause, _, _ = await group.restarted(2)
        assert cause.pod == victim.metadata.name
        assert len(set(timeline.pods) - first_pods) == 1


async def evict(client, pod):
    """Evict a pod as ``kubectl drain`` does."""
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "default"},
    }
    await send(client, "POST", path, body)
