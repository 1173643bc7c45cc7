"""Trainings with a real framework in real pods: their manifests, and what their ranks tell.

The programs are ``bench/training_*.py``. What becomes of each run is told in a folder of this
machine that all pods share.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from hack.images.training import FRAMEWORKS
from jobsetpy.api import keys
from support import patience
from support.cluster.install import ROOT

NAMESPACE = "default"
PROGRAMS = ROOT / "bench"
MODES = ("recreate", "torchrun", "sidecar", "supervisor", "standby")
SUPERVISED = ("supervisor", "standby")
PRELOADED = {
    "torch": "torch,torch.distributed,torch.nn.parallel,training_prepared",
    "jax": "jax,jax.numpy,numpy,training_prepared",
}
HANG_S = 5
PORT = "29500"
RANKS_HAVE = "SHARED=/shared"
"""A variable of all ranks, and of nothing else in their pods."""
START_LIMIT_S = 180.0


def manifest(
    name: str, framework: str, mode: str, pods: int, shared: Path, spares: int = 0
) -> dict[str, Any]:
    """The training as a JobSet; spares are pods in addition to ``pods``."""
    host = f"{name}-w-0-0.{name}"
    program = f"/training/training_{framework}.py"
    command = ["python3", program]
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    name_of, _, value = RANKS_HAVE.partition("=")
    env: list[dict[str, Any]] = [{"name": name_of, "value": value}]
    notes = {keys.RESTART_BACKOFF_ANNOTATION: "0"}
    if mode in SUPERVISED:
        notes |= {
            keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
            keys.IN_PLACE_HANG_ANNOTATION: str(HANG_S),
            keys.IN_PLACE_HANG_FIRST_ANNOTATION: "120",
        }
    else:
        env += [
            {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "WORLD_SIZE", "value": str(pods)},
            {"name": "MASTER_ADDR", "value": host},
            {"name": "MASTER_PORT", "value": PORT},
        ]
    if mode == "standby":
        notes[keys.IN_PLACE_PRELOAD_ANNOTATION] = PRELOADED[framework]
        notes[keys.IN_PLACE_STANDBY_DELAY_ANNOTATION] = "1"
    if spares:
        notes[keys.IN_PLACE_SPARES_ANNOTATION] = str(spares)
    if mode in {"sidecar", *SUPERVISED}:
        notes[keys.IN_PLACE_AGENT_ANNOTATION] = "sidecar" if mode == "sidecar" else "supervisor"
    if mode == "torchrun":
        command = ["sh", "-c", torchrun(pods, host, program)]
    container = {
        "name": "worker",
        "image": FRAMEWORKS[framework].reference,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": env,
        "volumeMounts": [
            {"name": "training", "mountPath": "/training", "readOnly": True},
            {"name": "shared", "mountPath": "/shared"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [
            {"name": "training", "hostPath": {"path": str(PROGRAMS), "type": "Directory"}},
            {"name": "shared", "hostPath": {"path": str(shared), "type": "Directory"}},
        ],
    }
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "parallelism": pods + spares,
        "completions": pods + spares,
        "template": {"spec": pod},
    }
    policy: dict[str, Any] = {"maxRestarts": 1000}
    if mode in {"recreate", "torchrun"}:
        # Elastic agents are to be replaced pod by pod; otherwise the first one fails its Job.
        job["backoffLimit"] = 0 if mode == "recreate" else 1000
    else:
        policy["restartStrategy"] = keys.IN_PLACE_RESTART
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": notes},
        "spec": {
            "failurePolicy": policy,
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}],
        },
    }


def torchrun(pods: int, host: str, program: str) -> str:
    """The shell's line for torchrun; Debian's fails at its start without some of these flags."""
    words = [
        *("exec python3 -m torch.distributed.run", f"--nnodes={pods}", "--nproc_per_node=1"),
        *("--rdzv_backend=c10d", f"--rdzv_endpoint={host}:29400", "--rdzv_id=training"),
        *("--rdzv_conf=is_host=$IS_HOST", "--max_restarts=1000", "--monitor_interval=0.2"),
        *("--redirects=0:1", "--tee=0:2", "--log_dir=/tmp/log", program),
    ]
    return f'IS_HOST=false; [ "$RANK" = 0 ] && IS_HOST=true; {" ".join(words)}'


@attrs.define
class Training:
    """One training: what its ranks have told of in its folder."""

    folder: Path
    pods: int

    def runs(self, since: float = 0.0) -> dict[int, dict[str, Any]]:
        """Of each rank, the last run that has come to its first step after a moment."""
        found = {}
        for rank in range(self.pods):
            lines = [each for each in _lines(self.folder / f"runs-{rank}") if each["at"] > since]
            if lines:
                found[rank] = lines[-1]
        return found

    def step(self) -> int:
        """The last step that rank 0 has done."""
        return int((self.folder / "step-0").read_text().strip() or 0)

    async def stepping(self, since: float, limit_s: float) -> dict[int, dict[str, Any]]:
        """Each rank's run, once all have stepped after a moment."""
        async with patience.timeout(limit_s):
            while len(found := self.runs(since)) < self.pods:  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.05)
        return found

    async def standbys(self) -> list[dict[str, Any]]:
        """Those that are ready, once each rank that runs has one."""
        async with patience.timeout(START_LIMIT_S):
            while True:
                found = []
                for run in self.runs().values():
                    lines = _lines(self.folder / f"standbys-{run['host']}")
                    if lines and lines[-1]["pid"] != run["pid"]:
                        found.append(lines[-1] | {"host": run["host"]})
                if len(found) == self.pods:
                    return found
                await asyncio.sleep(0.1)


def _lines(path: Path) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return []
