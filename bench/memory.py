"""Memory of a manager for each cached pod of its JobSets.

Full pod objects (about 5 kB of JSON, as an API server sends them) are decoded as in the informer
and added to a store like the pod informer's, whose index is the JobSet: epochs are counted in a
ledger that grows with Jobs, not pods. tracemalloc counts all memory that Python allocates.
"""

from __future__ import annotations

import gc
import tracemalloc
import uuid

import msgspec

from bench.common import table
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import OWNER_UID, StoreWriter
from jobsetpy.reconcilers.execution.caches import PODS_OF_JOBSET


def _container(name: str) -> dict[str, object]:
    """A container's status after three restarts in place."""
    ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}
    return {
        "name": name,
        "image": "example.invalid/image:1",
        "imageID": "sha256:" + "1" * 64,
        "containerID": "containerd://" + "2" * 64,
        "ready": True,
        "started": True,
        "restartCount": 3,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "lastState": {"terminated": {**ended, "finishedAt": None}},
    }


def pod_json(job: int, index: int) -> bytes:
    """A pod of a JobSet as the API server sends it."""
    generated = {
        keys.JOBSET_NAME: "training",
        keys.JOBSET_UID: "3f1c2f8e-2d2d-4d3a-9a3c-8f5b0e1d2c3b",
        keys.REPLICATED_JOB_NAME: "workers",
        keys.REPLICATED_JOB_REPLICAS: "50",
        keys.GLOBAL_REPLICAS: "50",
        keys.JOB_INDEX: str(job),
        keys.JOB_GLOBAL_INDEX: str(job),
        keys.JOB_KEY: f"{job:040x}",
        keys.RESTART_ATTEMPT: "0",
        keys.GROUP_NAME: "default",
        keys.GROUP_REPLICAS: "50",
        keys.JOB_GROUP_INDEX: str(job),
    }
    environment = [{"name": f"VARIABLE_{i}", "value": f"value-{i}" * 4} for i in range(20)]
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"training-workers-{job}-{index}-abcde",
                "namespace": "default",
                "uid": str(uuid.UUID(int=job * 1000 + index + 2**100)),
                "resourceVersion": str(10_000_000 + job * 1000 + index),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": generated | {"batch.kubernetes.io/job-name": f"training-workers-{job}"},
                "annotations": generated
                | {keys.EPOCH_ANNOTATION: "7", keys.COMPLETION_INDEX_ANNOTATION: str(index)},
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": f"training-workers-{job}",
                        "uid": str(uuid.UUID(int=job + 2**101)),
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
                "managedFields": [{"manager": "kube-controller-manager", "x": "y" * 1500}],
            },
            "spec": {
                "nodeName": f"node-{job * 100 + index}",
                "containers": [{"name": "worker", "image": "x", "env": environment}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": t, "status": "True"} for t in ("Ready", "Initialized")],
                "initContainerStatuses": [_container("agent")],
                "containerStatuses": [_container("worker"), _container("logs")],
            },
        }
    )


def measure(cls: type, indexes: list, count: int = 5000) -> float:
    """Return the bytes allocated per object in a store of ``count`` objects."""
    decoder = msgspec.json.Decoder(cls)
    payloads = [pod_json(i // 100, i % 100) for i in range(count)]
    writer = StoreWriter(cls, indexes=indexes)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for payload in payloads:
        writer.apply(decoder.decode(payload))
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / count


def main() -> None:
    child = measure(ChildPod, [PODS_OF_JOBSET])
    full = measure(Pod, [OWNER_UID])
    size = len(pod_json(1, 1))
    table(
        "Memory of one cached pod (5,000 pods)",
        [
            ("JSON from the API server", f"{size} B", ""),
            ("ChildPod, as the manager caches it", f"{child:.0f} B", "<= 2,000 B"),
            ("general Pod slice with the owner index", f"{full:.0f} B", ""),
        ],
    )


if __name__ == "__main__":
    main()
