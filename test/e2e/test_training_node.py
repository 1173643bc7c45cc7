"""A real framework on a real node: data-parallel JAX in supervised pods with standby processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support import patience
from support.agents.training_kit import RANKS_HAVE, Training, manifest
from support.cluster.processes import process_in
from support.restarts.scenario import pod_log_folders, run_gang

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

PODS = 2
CHECKPOINT = 20
"""Step after which the first checkpoint is written."""


async def test_training_continues_in_its_standby_processes(
    node_cluster, node_client, jax_on_node, tmp_path
):
    """They have imported what the program imports, without a list; no pod is replaced."""
    jobset = manifest("training", jax_on_node, "auto", PODS, tmp_path)
    training = Training(tmp_path, PODS)
    async with run_gang(node_client, jobset, PODS) as timeline:
        before = await training.stepping(0, 60)
        pods = {story.uid for story in timeline.pods.values()}
        standbys = await training.standbys()
        loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in standbys.values()]
        await patience.eventually(lambda: training.step() > CHECKPOINT, 60)
        victim, moment = before[1], time.time()
        os.kill(process_in(victim["host"], victim["pid"], RANKS_HAVE), signal.SIGKILL)
        after = await training.stepping(moment, 60)
        workers = {
            run["host"]: process_in(run["host"], run["pid"], RANKS_HAVE) for run in after.values()
        }
        status = (await node_client.get(JobSet, "default", "training")).status
        warnings = [
            line
            for folder in pod_log_folders(node_cluster)
            for path in folder.glob("default_training-w-*/worker/*.log")
            for line in path.read_text().splitlines()
            if "cannot preload" in line
        ]

    assert workers == standbys
    assert all("libjax_common.so" in maps for maps in loaded)
    assert warnings == []

    assert {story.uid for story in timeline.pods.values()} <= pods
    assert all(run["step"] > CHECKPOINT for run in after.values())
    (record,) = status.restart_history
    assert (record.cause.reason, record.cause.exit_code) == (keys.WORKER_FAILED_REASON, 137)
    assert status.in_place_restart.highest_step >= CHECKPOINT
