"""Manifests with torchrun that ``kubectl jobset convert`` has converted, on a real node."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
import yaml

from hack.images.training import FRAMEWORKS, framework_image
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from support.agents.training_kit import NAMESPACE, PROGRAMS, RANKS_HAVE, Training
from support.cluster.processes import process_in
from support.commands import run
from support.restarts.scenario import run_gang

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(400)]

PODS, PROCESSES = 2, 2
TORCHES = ["torch1", *(["torch"] if os.environ.get("JOBSETPY_TORCH2") else [])]
"""PyTorch 1.13, and with ``JOBSETPY_TORCH2=1`` that of PyPI, whose image has 3.9 GB."""

MANIFEST = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: launched
  annotations:
    jobset.sigs.k8s.io/restart-backoff: "0"
spec:
  failurePolicy:
    maxRestarts: 3
  replicatedJobs:
  - name: w
    template:
      spec:
        completionMode: Indexed
        parallelism: {pods}
        completions: {pods}
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 5
            containers:
            - name: worker
              image: {image}
              imagePullPolicy: IfNotPresent
              workingDir: /training
              command: [python3, -m, torch.distributed.run]
              args:
              - --nnodes={pods}
              - --nproc-per-node={processes}
              - --rdzv-backend=c10d
              - --rdzv-endpoint=launched-w-0-0.launched:29400
              - --rdzv-id=launched
              - training_torch.py
              env:
              - {{name: SHARED, value: /shared}}
              volumeMounts:
              - {{name: training, mountPath: /training, readOnly: true}}
              - {{name: shared, mountPath: /shared}}
            volumes:
            - name: training
              hostPath: {{path: {programs}, type: Directory}}
            - name: shared
              hostPath: {{path: {folder}, type: Directory}}
"""


def converted(folder, image):
    """Return the converted manifest."""
    file = folder / "torchrun.yaml"
    values = {"pods": PODS, "processes": PROCESSES, "programs": PROGRAMS, "folder": folder}
    file.write_text(MANIFEST.format(image=image, **values))
    command = (sys.executable, "-m", "jobsetpy.kubectl.main", "convert", file)
    return yaml.safe_load(run(*command, check=True).stdout)


@pytest.mark.parametrize("framework", TORCHES)
async def test_converted_training_continues_when_a_rank_is_killed(
    node_cluster, node_client, tmp_path, framework
):
    """Supervisors number the ranks without a launcher, and all ranks train again in their pods."""
    node_cluster.load_images([framework_image(framework)])
    jobset = converted(tmp_path, FRAMEWORKS[framework].reference)
    training = Training(tmp_path, PODS * PROCESSES)
    async with run_gang(node_client, jobset, PODS) as timeline:
        before = await training.stepping(0, 120)
        pods = {story.uid for story in timeline.pods.values()}
        seconds = []
        for _ in range(3):
            victim, moment = training.runs()[PODS * PROCESSES - 1], time.time()
            os.kill(process_in(victim["host"], victim["pid"], RANKS_HAVE), signal.SIGKILL)
            after = await training.stepping(moment, 120)
            seconds.append(round(max(run["at"] for run in after.values()) - moment, 2))
        history = (await node_client.get(JobSet, NAMESPACE, "launched")).status.restart_history

    print(f"{framework}, from the kill of a rank until all step: {seconds}")
    assert len({run["host"] for run in before.values()}) == PODS
    assert {story.uid for story in timeline.pods.values()} <= pods
    assert [each.cause.reason for each in history] == [keys.WORKER_FAILED_REASON] * 3
