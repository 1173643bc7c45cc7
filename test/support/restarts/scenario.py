"""Steps of the main scenario on real pods, for the demo, the e2e tests and benchmarks.

A *gang* is a JobSet of workers that restart in place, with the agent as sidecar. Its manifest is
the sample in ``config/samples``, so that the documented one is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import yaml

from hack.cluster import Cluster
from hack.cluster._requirements import BUILD_PACKAGES, require_programs
from hack.cluster._state import file_lock
from hack.images.project import TEST_RUN, build
from jobsetpy.api import keys
from jobsetpy.api._wire import wire
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from support import patience
from support.cluster.deployed import Replicas
from support.cluster.install import (
    AGENT_IMAGE,
    CONFIG,
    ROOT,
    apply_manifest,
    connected,
    install_manager,
)
from support.cluster.processes import process_of
from support.restarts.timeline import Phase, Timeline

NAMESPACE = "default"
SAMPLE = CONFIG / "samples" / "in_place_restart.yaml"
SUPERVISED_SAMPLE = CONFIG / "samples" / "in_place_restart_supervised.yaml"
SHELL_IMAGE = "localhost/shell:1"
WORKER_TIMEOUT_S = 30.0
WORKER_SCRIPT = "trap 'exit 143' TERM; echo worker started; sleep 1000000 & wait $!"
"""Worker that ends immediately on SIGTERM. A shell handles signals only between commands, and a
program that it is just starting loses them; so it starts one program in the background and waits.
Otherwise a worker would sometimes take a second longer to stop."""


@resource("events.k8s.io", "v1", "Event", "events")
@wire
class EventText:
    """Event, with its reason and text only."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""


@attrs.frozen
class Restart:
    """One restart of a gang.

    ``seconds`` is the time from the failure to the last worker's start, ``recreated`` the number of
    pods that were replaced.
    """

    pod: str
    seconds: float
    phases: list[Phase]
    recreated: int


def build_images() -> list[Path]:
    """Build the project's own images as archives, which takes seconds of CPU.

    Processes of one run of all tests, which is named in the environment, build them once.
    """
    require_programs(BUILD_PACKAGES)
    folder = ROOT / "build" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    run, known = os.environ.get(TEST_RUN), folder / "built.json"
    with file_lock(folder / "lock"):
        if run and known.exists():
            built_by, paths = json.loads(known.read_text())
            if built_by == run:
                return [Path(each) for each in paths]
        found = [build(name, folder).path for name in ("manager", "agent")]
        known.write_text(json.dumps([run, [str(path) for path in found]]))
    return found


def pod_log_folders(cluster: Cluster) -> list[Path]:
    """Return the folders of the pods' logs on the nodes of ``cluster``."""
    return sorted(cluster.folder.glob("node-*/log/pods"))


async def kill_worker(
    pod: Pod, script: str = WORKER_SCRIPT, *, supervised: bool = False, number: int = signal.SIGKILL
) -> float:
    """End a pod's worker with SIGKILL, as the kernel does when memory runs out.

    ``number`` is another signal. The process is found on this machine by its command and by its
    pod's UID; a supervised one is not its container's first process (that one has the script as
    argument).

    Returns:
        Unix time of the signal.
    """
    # Its log or its agent may report the process before it has become the program.
    process = await patience.eventually(
        lambda: worker_of(pod, script, supervised=supervised), WORKER_TIMEOUT_S, poll_s=0.05
    )
    moment = time.time()
    os.kill(process, number)
    return moment


def worker_of(pod: Pod, script: str, *, supervised: bool) -> int | None:
    """Return the process id of a pod's worker; ``None`` if it does not run."""
    try:
        return process_of(pod, script, first=not supervised)
    except LookupError:
        return None


def gang_jobset(name: str, pods: int, *, command: str | None = None) -> dict[str, Any]:
    """Return the sample of restart in place with ``pods`` workers and the local agent image.

    Args:
        name: name of the JobSet.
        pods: number of workers.
        command: shell text that the workers run; a line and an endless sleep if absent.
    """
    jobset, pod = _sample(SAMPLE, name, pods)
    for container in pod["initContainers"]:
        container["image"] = AGENT_IMAGE
        container["imagePullPolicy"] = "IfNotPresent"
    for container in pod["containers"]:
        container["image"] = SHELL_IMAGE
        container["imagePullPolicy"] = "IfNotPresent"
        container["command"] = ["sh", "-c", command or WORKER_SCRIPT]
        container.pop("args", None)
    return jobset


def _sample(path: Path, name: str, pods: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JobSet of a sample, with one Job and without back-off, and the spec of its pods."""
    documents = yaml.safe_load_all(path.read_text())
    jobset = next(each for each in documents if each and each["kind"] == "JobSet")
    jobset["metadata"]["name"] = name
    jobset["metadata"].setdefault("annotations", {})[keys.RESTART_BACKOFF_ANNOTATION] = "0"
    (item,) = jobset["spec"]["replicatedJobs"]
    item["replicas"] = 1
    job = item["template"]["spec"]
    job["parallelism"] = job["completions"] = pods
    return jobset, job["template"]["spec"]


def supervised_jobset(
    name: str,
    pods: int,
    *,
    command: Sequence[str] = ("sh", "-c", WORKER_SCRIPT),
    image: str = SHELL_IMAGE,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the supervised sample with ``pods`` workers, the local agent image and a command.

    Args:
        name: name of the JobSet.
        pods: number of workers.
        command: command of the workers.
        image: image of the workers.
        environ: more variables, which replace those of the sample with the same name.
    """
    jobset, pod = _sample(SUPERVISED_SAMPLE, name, pods)
    (agent,) = pod["initContainers"]
    agent["image"] = AGENT_IMAGE
    (worker,) = pod["containers"]
    worker["image"] = image
    worker["imagePullPolicy"] = "IfNotPresent"
    worker["command"] = [worker["command"][0], *command]
    more = [{"name": key, "value": value} for key, value in (environ or {}).items()]
    worker["env"] = [each for each in worker["env"] if each["name"] not in (environ or {})] + more
    return jobset


async def manager_ready(client: Client, timeout_s: float = 90) -> None:
    """Wait until the manager's pods are ready and all older ones are gone."""
    await Replicas(client).settled(timeout_s)


@contextlib.asynccontextmanager
async def managed(kubeconfig: str | Path, **settings: Any) -> AsyncIterator[Client]:
    """Yield a client of a cluster in which the manager is installed and ready."""
    async with connected(kubeconfig, **settings) as client:
        await install_manager(client)
        await manager_ready(client)
        yield client


async def install_agents(client: Client) -> None:
    """Install the account that agents run with, and its permissions."""
    for path in sorted((CONFIG / "agent").rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            await apply_manifest(client, path)


@contextlib.asynccontextmanager
async def run_gang(
    client: Client, jobset: dict[str, Any], pods: int, pod_logs: Sequence[Path] = ()
) -> AsyncIterator[Timeline]:
    """Create a gang, wait until all workers run, observe it, and delete it at the end.

    Workers that restart in place run at epoch 1 then; others have no epoch.
    """
    name = jobset["metadata"]["name"]
    epoch = int("restartStrategy" in jobset["spec"]["failurePolicy"])
    await install_agents(client)
    timeline = Timeline(client, NAMESPACE, name, pod_logs=pod_logs)
    async with timeline.watching():
        await client.create(JobSet, NAMESPACE, jobset)
        try:
            await timeline.wait(
                lambda: timeline.all_running(pods, epoch), 120, f"{pods} workers to run"
            )
            yield timeline
        finally:
            with contextlib.suppress(NotFoundError):
                await client.delete(JobSet, NAMESPACE, name, propagation="Foreground")
            await timeline.wait(lambda: not timeline.pods, 120, "the pods to be deleted")


async def restart_supervised_once(
    timeline: Timeline,
    pods: int,
    text: str,
    *,
    script: str = WORKER_SCRIPT,
    number: int = signal.SIGKILL,
) -> Restart:
    """Kill one supervised worker and wait until all of the gang have printed ``text`` again.

    The kubelet does not observe such a restart, so that the containers' logs are needed
    (``pod_logs``).
    """

    async def running_again(failed_at: float, epoch: int) -> list[Phase]:
        await timeline.wait(lambda: epoch in timeline.synced, 120, f"epoch {epoch} to be synced")
        started: list[float] = []
        async with patience.timeout(30):
            while len(started) < pods:
                await asyncio.sleep(0.1)
                lines = [timeline.line_times(p, text, failed_at) for p in timeline.pods.values()]
                started = [times[0] for times in lines if times]
        return timeline.restart_phases(failed_at, epoch, started)

    fail = functools.partial(kill_worker, script=script, supervised=True, number=number)
    return await _restart(timeline, fail, running_again)


async def restart_once(
    timeline: Timeline, pods: int, fail: Callable[[Pod], Awaitable[float]] = kill_worker
) -> Restart:
    """Fail one worker and wait until the whole gang runs again at the next epoch.

    Args:
        timeline: the gang.
        pods: number of its pods.
        fail: ends the worker of a pod, and returns the Unix time.
    """

    async def running_again(failed_at: float, epoch: int) -> list[Phase]:
        await timeline.wait(
            lambda: timeline.all_running(pods, epoch, failed_at),
            120,
            f"all {pods} workers to run again at epoch {epoch}",
        )
        await asyncio.sleep(0.5)  # the kubelet writes the log's first line a little after the start
        return timeline.restart_phases(failed_at, epoch)

    return await _restart(timeline, fail, running_again)


async def restart_by_recreation_once(timeline: Timeline, pods: int) -> Restart:
    """Kill one worker of a gang without agents and wait until all of its new pods run."""
    restarts = timeline.restarts + 1
    before = {story.uid for story in timeline.pods.values()}

    def running_again() -> bool:
        new = all(story.uid not in before for story in timeline.pods.values())
        return timeline.restarts == restarts and new and timeline.all_running(pods, 0)

    victim = await timeline.client.get(Pod, timeline.namespace, min(timeline.pods))
    failed_at = await kill_worker(victim)
    await timeline.wait(running_again, 120, f"all {pods} workers to be recreated and to run")
    await asyncio.sleep(0.5)  # the kubelet writes the log's first line a little after the start
    phases = timeline.recreation_phases(failed_at, restarts)
    return Restart(victim.metadata.name, max(p.at for p in phases), phases, pods)


async def _restart(
    timeline: Timeline,
    fail: Callable[[Pod], Awaitable[float]],
    running_again: Callable[[float, int], Awaitable[list[Phase]]],
) -> Restart:
    """Let the first pod's worker fail; ``running_again`` waits for the group's next epoch."""
    before = {name: story.uid for name, story in timeline.pods.items()}
    victim = min(before)
    epoch = max(timeline.synced) + 1
    pod = await timeline.client.get(Pod, timeline.namespace, victim)
    phases = await running_again(await fail(pod), epoch)
    recreated = sum(before.get(name) != story.uid for name, story in timeline.pods.items())
    return Restart(victim, max(p.at for p in phases), phases, recreated)
