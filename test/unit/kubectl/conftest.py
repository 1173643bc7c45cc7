"""A cluster in memory, and the plugin's commands for it."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.kubeconfig import Target
from jobsetpy.testing import MemoryTransport, World, make_pod
from support.jobsets import jobset_json, replicated_job

IN_PLACE = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}


class Plugin:
    """The plugin with its cluster."""

    def __init__(self):
        self.world = World()
        self.world.register(JobSet)
        self.transport = MemoryTransport(self.world._dispatcher)

    def jobset(self, *items, status=None, **spec):
        """Create a JobSet and return it."""
        body = jobset_json(*items, **spec)
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        made = self.world.create(JobSet, body)
        if status:
            made = self.world.patch(
                JobSet, made["metadata"]["name"], {"status": status}, subresource="status"
            )
        return made

    def job(self, jobset, item="w", index=0, **status):
        """Create a Job of a JobSet and return it."""
        name = f"test-js-{item}-{index}"
        body = {
            "metadata": {
                "name": name,
                "labels": {keys.JOBSET_NAME: "test-js", keys.REPLICATED_JOB_NAME: item},
                "ownerReferences": [owner("JobSet", jobset)],
            },
            "spec": {"parallelism": 2},
        }
        self.world.create("jobs", body)
        return self.world.patch("jobs", name, {"status": status}, subresource="status")

    def pod(self, job, index, epoch=None, node="node-1"):
        """Create a pod of a Job."""
        pod = make_pod(f"{job['metadata']['name']}-{index}").of(job, index).phase("Running").build()
        pod["metadata"].setdefault("labels", {})[keys.JOBSET_NAME] = "test-js"
        if epoch is not None:
            pod["metadata"].setdefault("annotations", {})[keys.EPOCH_ANNOTATION] = str(epoch)
        pod["spec"]["nodeName"] = node
        self.world.create("pods", pod)
        status = {"phase": "Running"}
        self.world.patch("pods", pod["metadata"]["name"], {"status": status}, subresource="status")

    async def run(self, *arguments):
        """Run a command in the cluster; return its exit code."""
        chosen = next(word for word in arguments if word in plugin.COMMANDS)
        options = plugin.parser(chosen).parse_args(arguments)
        options.output = getattr(options, "output", "")
        cluster = Cluster(Target(self.transport, "https://test:6443", "default"))
        return await plugin.module(chosen).run(cluster, options)


def owner(kind, obj):
    """Return a controller reference."""
    meta = obj["metadata"]
    return {"kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


@pytest.fixture
def kubectl():
    """The plugin with an empty cluster."""
    return Plugin()


@pytest.fixture
def training(kubectl):
    """Two workers that restart in place: one has reached epoch 2, the other has not."""
    history = [
        {
            "kind": "InPlace",
            "number": 2,
            "counted": True,
            "beganAt": "2026-01-01T00:00:00.000Z",
            "detectionMillis": 40,
            "deprecationMillis": 1500,
            "gatheringMillis": 2500,
            "liftMillis": 12,
            "cause": {
                "reason": "ContainerFailed",
                "pod": "test-js-w-0-1",
                "node": "node-<1>",
                "container": "worker",
                "exitCode": 137,
            },
            "lastPod": "test-js-w-0-0",
            "outcome": "Completed",
        }
    ]
    made = kubectl.jobset(
        replicated_job("w", 1, parallelism=2),
        failurePolicy=IN_PLACE,
        status={
            "syncedEpoch": 2,
            "deprecatedEpoch": 2,
            "restartHistory": history,
            "conditions": [
                {
                    "type": "RestartingInPlace",
                    "status": "True",
                    "reason": "ContainerFailed",
                    "message": "pod 'p' failed [x]",
                    "lastTransitionTime": "2026-01-01T00:00:09Z",
                }
            ],
        },
    )
    job = kubectl.job(made, active=2, ready=1)
    kubectl.pod(job, 0, 3)
    kubectl.pod(job, 1, 2, node="node-2")
    return kubectl
