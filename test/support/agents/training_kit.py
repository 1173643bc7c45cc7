"""Trainings with a real framework in real pods: their manifests, and the reports of their ranks.

The programs are ``bench/training_*.py``. Ranks report each run in a folder of this machine that all
pods share.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from hack.images.training import FRAMEWORKS, LAUNCHER, PACKAGES, PLAIN
from jobsetpy.api import keys
from jobsetpy.api.core import LabelledNode
from jobsetpy.client import Client
from support import patience
from support.cluster.install import ROOT
from support.cluster.manager_process import cpu_seconds
from support.cluster.objects import jobset, replicated_job
from support.cluster.objects import spread as spread_of
from support.cluster.processes import processes

NAMESPACE = "default"
PROGRAMS = ROOT / "bench"
SPARES = {"spare-1": 1, "spare-2": 2, "ring-1": 1, "ring-2": 2}
"""Modes with standby processes (``list``), and their number of spare pods."""

RINGS = ("ring-1", "ring-2", "fewer-ring")
"""Modes in which agents send each other heartbeats."""

SHRINKING = ("fewer", "fewer-ring")
"""Modes with standby processes and without a spare, whose ranks continue without a missing pod."""

FEWER = (*SHRINKING, "torchrun-fewer")
"""Modes that need all ranks but one."""

GROW_AFTER_S = 10
"""Time for which those of `SHRINKING` keep the smaller size: the others prepare meanwhile."""

CALM_S = 45.0
"""Time after which another growth is not delayed because of the last one."""

STANDBYS = ("list", "auto", "kept", *SPARES, *SHRINKING)
MODES = (
    *("recreate", "torchrun", "torchrun-more", "torchrun-fewer", "ft_launcher"),
    *("sidecar", "supervisor"),
    *STANDBYS,
)
"""Modes of restarting; those with standby processes have supervisors."""

SUPERVISED = ("supervisor", *STANDBYS)
ELASTIC = {
    "torchrun": "torch.distributed.run",
    "torchrun-more": "torch.distributed.run",
    "torchrun-fewer": "torch.distributed.run",
    "ft_launcher": "nvidia_resiliency_ext.fault_tolerance.launcher",
}
FRAMEWORKS_OF = {
    "torchrun": ("torch", "torch1"),
    "torchrun-more": ("torch", "torch1"),
    "torchrun-fewer": ("torch", "torch1"),
    "ft_launcher": ("torch",),
    "kept": ("jax",),
}
"""Frameworks of modes that only some have."""

LISTED = {
    "torch": "torch,torch.distributed,torch.nn.parallel",
    "torch1": "torch,torch.distributed,torch.nn.parallel",
    "jax": "jax,jax.numpy,numpy",
    PLAIN: "json,socket",
}
MORE = {"torchrun-more": 1}
"""Modes with pods in addition to those that the training needs; all of torchrun's work."""
HANG_S = 5
PORT = "29500"
RANKS_HAVE = "SHARED=/shared"
"""A variable that only the ranks in their pods have."""
START_LIMIT_S = 180.0
IDLE_S = 6.0
"""Time without use of CPU after which a standby process is fully prepared."""


def manifest(
    name: str,
    framework: str,
    mode: str,
    pods: int,
    shared: Path,
    *,
    spread: bool = False,
    standby_delay: int = 1,
) -> dict[str, Any]:
    """Return the training as a JobSet; spares are pods in addition to ``pods``.

    With ``spread`` the scheduler prefers the node with the fewest pods. Standby processes are
    started ``standby_delay`` seconds after their workers.
    """
    spares, more = SPARES.get(mode, 0), MORE.get(mode, 0)
    host = f"{name}-w-0-0.{name}"
    program = f"/training/training_{framework.rstrip('1')}.py"
    command = ["python3", program]
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    name_of, _, value = RANKS_HAVE.partition("=")
    env: list[dict[str, Any]] = [{"name": name_of, "value": value}]
    annotations = {keys.RESTART_BACKOFF_ANNOTATION: "0"}
    if mode in SUPERVISED:
        annotations |= {
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
    if mode in STANDBYS:
        preload = LISTED[framework] if mode in {"list", *SPARES, *SHRINKING} else "auto"
        annotations[keys.IN_PLACE_PRELOAD_ANNOTATION] = preload
        annotations[keys.IN_PLACE_STANDBY_DELAY_ANNOTATION] = str(standby_delay)
    if spares:
        annotations[keys.IN_PLACE_SPARES_ANNOTATION] = str(spares)
    if mode in SHRINKING:
        annotations |= {
            keys.MIN_PODS_ANNOTATION: str(pods - 1),
            keys.MIN_PODS_AFTER_ANNOTATION: "0",
            keys.GROW_AFTER_ANNOTATION: str(GROW_AFTER_S),
        }
    if mode in RINGS:
        annotations[keys.IN_PLACE_HEARTBEAT_ANNOTATION] = "auto"
    if mode == "kept":
        env.append({"name": "KEEP_EXECUTABLE", "value": "1"})
    if mode in {"sidecar", *SUPERVISED}:
        agent = "sidecar" if mode == "sidecar" else "supervisor"
        annotations[keys.IN_PLACE_AGENT_ANNOTATION] = agent
    if mode in ELASTIC:
        command = ["sh", "-c", elastic(mode, framework, pods, host, program)]
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
    if spread:
        pod["topologySpreadConstraints"] = spread_of({keys.JOBSET_NAME: name})
    job: dict[str, Any] = {"completionMode": "Indexed"}
    policy: dict[str, Any] = {"maxRestarts": 1000}
    if mode == "recreate" or mode in ELASTIC:
        # Elastic agents must be replaced pod by pod; otherwise the first failure fails the Job.
        job["backoffLimit"] = 0 if mode == "recreate" else 1000
    else:
        policy["restartStrategy"] = keys.IN_PLACE_RESTART
    item = replicated_job(pod, pods + more, replicas=1, **job)
    return jobset(name, item, annotations=annotations, failurePolicy=policy)


def elastic(mode: str, framework: str, pods: int, host: str, program: str) -> str:
    """Return the shell command of an elastic launcher, as its documentation has it for c10d.

    Without their own store, torchrun's workers read addresses of processes that have ended, and do not
    start again within minutes.
    """
    least, most = pods - (mode in FEWER), pods + MORE.get(mode, 0)
    nodes = f"{least}:{most}" if least < most else f"{pods}"
    words = [
        *(f"exec python3 -m {ELASTIC[mode]}", f"--nnodes={nodes}", "--nproc_per_node=1"),
        *("--rdzv_backend=c10d", f"--rdzv_endpoint={host}:29400", "--rdzv_id=training"),
        *("--rdzv_conf=is_host=$IS_HOST", "--max_restarts=1000", "--monitor_interval=0.2"),
    ]
    environ = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    if framework == "torch1":  # fails at its start otherwise
        words += ["--redirects=0:1", "--tee=0:2", "--log_dir=/tmp/log"]
    if mode == "ft_launcher":
        environ = f"PYTHONPATH=/{PACKAGES}:/{PACKAGES}/{LAUNCHER}"
        words.append("--ignore-missing-fault-tol-cfg")
    is_host = 'IS_HOST=false; [ "$RANK" = 0 ] && IS_HOST=true'
    return f"{is_host}; export {environ}; {' '.join(words)} {program}"


async def cordon(client: Client, node: str, *, cordoned: bool) -> None:
    """Make a node unschedulable, or schedulable again."""
    await client.merge_patch(LabelledNode, "", node, {"spec": {"unschedulable": cordoned}})


@attrs.define
class Training:
    """A training, with the reports of its ranks in its folder."""

    folder: Path
    pods: int

    def runs(self, since: float = 0.0) -> dict[int, dict[str, Any]]:
        """Return the last run of each rank that has made its first step after a time."""
        found = {}
        for rank in range(self.pods):
            lines = [each for each in _lines(self.folder / f"runs-{rank}") if each["at"] > since]
            if lines:
                found[rank] = lines[-1]
        return found

    def step(self) -> int:
        """Return the last step of rank 0."""
        return int((self.folder / "step-0").read_text().strip() or 0)

    async def advances(self, steps: int, limit_s: float) -> None:
        """Wait until rank 0 has made more than this number of further steps."""
        begun = self.step()
        await patience.eventually(lambda: self.step() > begun + steps, limit_s)

    async def stepping(self, since: float, limit_s: float) -> dict[int, dict[str, Any]]:
        """Return each rank's run, once all have made a step after a time."""
        async with patience.timeout(limit_s):
            while len(found := self.runs(since)) < self.pods:  # noqa: ASYNC110 - files have no events
                await asyncio.sleep(0.05)
        return found

    async def standbys(self) -> dict[str, int]:
        """Return standby processes by the host name of their pod, once each rank has one that waits.

        A ready process still imports modules that are added to its list, so it counts once it has used no
        CPU for a while. The process ids are those of this machine.
        """
        async with patience.timeout(START_LIMIT_S):
            before: dict[str, tuple[int, float]] = {}
            while True:
                found = {host: (pid, _cpu_of(pid)) for host, pid in self.unreleased().items()}
                if len(found) == self.pods and found == before:
                    return {host: pid for host, (pid, _) in found.items()}
                before = found
                await asyncio.sleep(IDLE_S)

    def unreleased(self) -> dict[str, int]:
        """Return standby processes, ready or not, by the host name of their pod."""
        workers = {run["host"]: run["pid"] for run in self.runs().values()}
        found = {}
        for each in processes():
            if any(variable.startswith(b"JOBSET_STANDBY_FD=") for variable in each.environ):
                host = next((h for h in workers if f"HOSTNAME={h}".encode() in each.environ), "")
                if host and each.inner != workers[host]:
                    found[host] = each.pid
        return found


def _cpu_of(process: int) -> float:
    with suppress(OSError):
        return cpu_seconds(process)
    return -1.0  # it has ended


def _lines(path: Path) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return []
