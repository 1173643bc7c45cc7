"""Trainings from Python: what ``kubectl jobset create`` does, as functions.

async with aclosing(await connect()) as client:
    job = submit.training("llm", "example.com/train:1", ["python", "train.py"], nodes=4, nproc=8)
    await submit.submit(client, job, namespace="team")
    state = await submit.wait(client, "llm", namespace="team")
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobsetpy.api import keys
from jobsetpy.errors import RetryableApiError, TransportError

if TYPE_CHECKING:
    from jobsetpy.client import Client

EVERY_S = 2.0
"""Interval between reads of a JobSet that is waited for."""


def training(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    nodes: int = 1,
    nproc: int = 0,
    spares: int = 0,
    gpus: int = 0,
    queue: str = "",
) -> dict[str, Any]:
    """Return the manifest of a training that restarts in place.

    Args:
        name: name of the JobSet.
        image: image of the workers.
        command: program of the workers with its arguments.
        nodes: number of pods that train.
        nproc: number of processes of each pod, with ranks; 0 for one without.
        spares: number of pods in addition, which wait to take over.
        gpus: number of GPUs of each pod (``nvidia.com/gpu``).
        queue: queue of Kueue.
    """
    annotations = {keys.IN_PLACE_RESTART_ANNOTATION: "fast"}
    if nproc:
        annotations[keys.IN_PLACE_PROCESSES_ANNOTATION] = str(nproc)
    if spares:
        annotations[keys.IN_PLACE_SPARES_ANNOTATION] = str(spares)
    metadata: dict[str, Any] = {"name": name, "annotations": annotations}
    if queue:
        metadata["labels"] = {keys.KUEUE_QUEUE_LABEL: queue}
    container: dict[str, Any] = {"name": "worker", "image": image, "command": list(command)}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    job = {
        "parallelism": nodes,
        "completions": nodes,
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": f"{keys.GROUP}/{keys.VERSION}",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]},
    }


async def submit(client: Client, jobset: Mapping[str, Any], *, namespace: str = "default") -> None:
    """Create a JobSet.

    Raises:
        ApiError: it is refused; ``AlreadyExistsError`` if there is one of this name.
    """
    from jobsetpy.api.jobset import JobSet

    await client.create(JobSet, namespace, jobset)


async def wait(client: Client, name: str, *, namespace: str = "default") -> str:
    """Wait until a JobSet has ended; return ``Completed`` or ``Failed``.

    An API server that cannot be reached is asked again.

    Raises:
        NotFoundError: the JobSet does not exist any longer.
    """
    from jobsetpy.api.jobset import JobSet

    while True:
        try:
            status = (await client.get(JobSet, namespace, name)).status
            if status.terminal_state:
                return status.terminal_state
        except (RetryableApiError, TransportError):
            pass  # an outage ends nothing: the JobSet continues without us
        await asyncio.sleep(EVERY_S)
