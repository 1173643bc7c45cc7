"""Memory of a cached pod: the limit is 2 kB, with two indexes."""

from __future__ import annotations

import gc
import tracemalloc

import msgspec

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import OWNER_UID, Index, StoreWriter

PODS = 5000
JOBSETS: Index[ChildPod] = Index("jobsets", lambda pod: pod.metadata.annotations.jobset_uid)


def pod_json(number):
    job, index = divmod(number, 100)
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"training-w-{job}-{index}-x7k2p",
                "namespace": "research",
                "uid": f"{number:08x}-0000-4000-8000-000000000000",
                "resourceVersion": str(100_000 + number),
                "labels": {
                    keys.JOBSET_NAME: "training",
                    keys.REPLICATED_JOB_NAME: "w",
                    keys.JOB_INDEX: str(job),
                    keys.JOB_KEY: f"{job:040x}",
                    keys.RESTART_ATTEMPT: "0",
                },
                "annotations": {
                    keys.EPOCH_ANNOTATION: "3",
                    keys.COMPLETION_INDEX_ANNOTATION: str(index),
                    keys.JOBSET_UID: "11111111-0000-4000-8000-000000000000",
                },
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": f"training-w-{job}",
                        "uid": f"{job:08x}-1111-4000-8000-000000000000",
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
                "managedFields": [{"manager": "kube-controller-manager", "text": "x" * 1000}],
            },
            "spec": {"nodeName": f"node-{job}", "containers": [{"name": "w", "image": "x"}]},
            "status": {"phase": "Running"},
        }
    )


def test_a_cached_pod_takes_less_than_two_kilobytes():
    """Object, key and index entries together stay below the limit; the store adds little."""
    decode = msgspec.json.Decoder(ChildPod).decode
    payloads = [pod_json(number) for number in range(PODS)]
    writer = StoreWriter(ChildPod, indexes=[OWNER_UID, JOBSETS])
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        pods = [decode(payload) for payload in payloads]
        decoded, _ = tracemalloc.get_traced_memory()
        writer.replace(pods, "1")
        del pods
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(writer.store) == PODS
    assert (after - before) / PODS < 2000
    assert (after - decoded) / PODS < 200
