"""Hangs and log rules from the output of programs as they are, on a real node."""

import asyncio
import json
import os
import re
import signal

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.processes import process_of, processes
from support.restarts.scenario import pod_log_folders, run_gang, supervised_jobset

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """trap 'exit 143' TERM
echo "worker epoch=$JOBSET_EPOCH"
n=0
while [ $n -lt 20 ]; do n=$((n+1)); echo "epoch $JOBSET_EPOCH: loss 0.3, step $n of 20"; sleep 0.2; done
[ $JOBSET_EPOCH = 2 ] && echo "loss nan, step 21" >&2
sleep 1000000 & wait $!"""
HANG_S = 4
RULE = {"name": "nan", "line": "loss ([^ ]+),", "number": "finite"}
SETTINGS = {
    "PROGRESS_PATTERN": "step ([0-9]+)",
    "HANG_SECONDS": str(HANG_S),
    "LOG_RULES": json.dumps([RULE]),
}


async def test_hang_and_rule_restart_the_group_when_a_program_only_prints(
    node_cluster, node_client
):
    """No line of the program knows of the agent; its log is what it was, through three epochs.

    Then an agent is killed: no process of its container outlives it, and the group has a new pod.
    """
    jobset = supervised_jobset("output", 2, command=("sh", "-c", SCRIPT), environ=SETTINGS)
    logs = pod_log_folders(node_cluster)
    async with run_gang(node_client, jobset, 2, logs) as timeline:

        async def restarted(epoch):
            await timeline.wait(lambda: epoch in timeline.synced, 120, f"epoch {epoch}")
            status = (await node_client.get(JobSet, "default", "output")).status
            return status.restart_history[-1].cause, status.in_place_restart.highest_step

        cause, step = await restarted(2)
        assert (cause.reason, step) == (keys.WORKER_HUNG_REASON, 20)
        assert re.match(rf"no progress for {HANG_S} s at step 20$", cause.message)

        cause, step = await restarted(3)
        assert (cause.reason, cause.message) == (keys.LOG_RULE_REASON, "nan: loss nan, step 21")

        def lines(pod):
            story = timeline.pods[pod]
            return [
                line.split(" ", 3)[-1]
                for folder in logs
                for path in folder.glob(f"default_{story.name}_{story.uid}/worker/*.log")
                for line in path.read_text().splitlines()
            ]

        for pod in timeline.pods:
            await patience.eventually(
                lambda pod=pod: "epoch 3: loss 0.3, step 1 of 20" in lines(pod)
            )
            steps = [line for line in await asyncio.to_thread(lines, pod) if "loss 0.3" in line]
            assert steps[:40] == [
                f"epoch {epoch}: loss 0.3, step {n} of 20" for epoch in (1, 2) for n in range(1, 21)
            ]

        victim = await node_client.get(Pod, "default", min(timeline.pods))
        os.kill(process_of(victim, "supervise"), signal.SIGKILL)
        mark = f"/pods/{victim.metadata.uid}/volumes"  # the sandbox ends later, with the pod
        await patience.eventually(lambda: not any(mark in each.mounts for each in processes()))
        cause, _ = await restarted(4)
        assert cause.pod == victim.metadata.name
