"""A real framework on a real node: JAX, data-parallel, in supervised pods with standbys."""

import os
import signal
import time

import pytest

from hack.images.training import framework_image
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support import patience
from support.agents.training_kit import RANKS_HAVE, Training, manifest
from support.restarts.scenario import process_in, run_gang

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

PODS = 2
CHECKPOINT = 20
"""The step after which the first one is written."""


async def test_a_training_goes_on_in_its_standbys(node_cluster, node_client, tmp_path):
    """Ranks and addresses come from the annotations; a killed rank costs no import and no pod."""
    node_cluster.load_images([framework_image("jax")])
    jobset = manifest("training", "jax", "standby", PODS, tmp_path)
    training = Training(tmp_path, PODS)
    async with run_gang(node_client, jobset, PODS) as timeline:
        before = await training.stepping(0, 60)
        pods = {story.uid for story in timeline.pods.values()}
        standbys = {each["host"]: each["pid"] for each in await training.standbys()}
        await patience.eventually(lambda: training.step() > CHECKPOINT, 60)
        victim, moment = before[1], time.time()
        os.kill(process_in(victim["host"], victim["pid"], RANKS_HAVE), signal.SIGKILL)
        after = await training.stepping(moment, 60)
        status = (await node_client.get(JobSet, "default", "training")).status

    assert {run["host"]: run["pid"] for run in after.values()} == standbys
    assert {story.uid for story in timeline.pods.values()} <= pods
    assert all(run["step"] > CHECKPOINT for run in after.values())
    (record,) = status.restart_history
    assert (record.cause.reason, record.cause.exit_code) == (keys.WORKER_FAILED_REASON, 137)
    assert status.in_place_restart.highest_step >= CHECKPOINT
