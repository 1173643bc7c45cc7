"""A part of a group that restarts in place is recreated, against a real API server."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.testing import make_jobset
from support.features.checklist_kit import NAME

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

DRIVER = f"{NAME}-driver-0"
WORKERS = [f"{NAME}-w-0", f"{NAME}-w-1"]


def gang(action):
    """A driver and two workers, each with one pod."""
    container = {"name": "c", "image": "test.invalid/c:1"}
    template = {
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "completionMode": "Indexed",
            "backoffLimit": keys.INT32_MAX,
            "podReplacementPolicy": "Failed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }
    }
    body = make_jobset(NAME).build()
    body["spec"]["replicatedJobs"] = [
        {"name": "driver", "replicas": 1, "template": template},
        {"name": "w", "replicas": 2, "template": template},
    ]
    body["spec"]["failurePolicy"] = {
        "maxRestarts": 1,
        "restartStrategy": "InPlaceRestart",
        "rules": [{"name": "part", "action": action, "targetReplicatedJobs": ["w"]}],
    }
    return body


async def make_pods(js, *jobs):
    """Create the pod of each Job, as the Job controller would."""
    for name, job in (await js.read_all(Job)).items():
        if name not in jobs:
            continue
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-0",
                "labels": job["spec"]["template"]["metadata"]["labels"],
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True,
                     "uid": job["metadata"]["uid"]}
                ],
            },
            "spec": job["spec"]["template"]["spec"],
        }  # fmt: skip
        await js.client.create(Pod, js.namespace, pod)


async def come(js, epoch, *jobs):
    """The agents of Jobs' pods report an epoch."""
    body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
    for name in jobs:
        await js.client.merge_patch(ChildPod, js.namespace, f"{name}-0", body)


async def epochs(js, synced, deprecated):
    """Wait for both numbers."""

    async def check():
        status = (await js.client.get(JobSet, js.namespace, NAME)).status
        assert (status.synced_epoch, status.deprecated_epoch) == (synced, deprecated)

    await js.until(check)


async def running(js, action):
    """All three pods at epoch 1; their UIDs."""
    await js.create(gang(action))
    await js.until_jobs(DRIVER, *WORKERS)
    await make_pods(js, DRIVER, *WORKERS)
    await come(js, 1, DRIVER, *WORKERS)
    await epochs(js, 1, 0)
    return await uids(js)


async def uids(js):
    return {name: pod["metadata"]["uid"] for name, pod in (await js.read_all(Pod)).items()}


async def lose(js, name):
    """A Job fails, and its pod goes with it."""
    await js.fail(name, "PodFailurePolicy")
    await js.client.delete(Pod, js.namespace, f"{name}-0")


@pytest.mark.parametrize(
    ("action", "recreated"), [("RestartJob", WORKERS[:1]), ("RestartReplicatedJob", WORKERS)]
)
async def test_the_rest_restarts_in_place(js, action, recreated):
    """Pods outside the part are kept; the budget of one pays for the whole of it."""
    before = await running(js, action)
    old = {name: (await js.read(Job, name))["metadata"]["uid"] for name in WORKERS}
    await lose(js, WORKERS[0])

    async def others():
        await js.collect(*recreated)  # as the garbage collector would
        jobs = await js.read_all(Job)
        assert set(recreated) <= set(jobs)
        assert all(jobs[name]["metadata"]["uid"] != old[name] for name in recreated)

    await js.until(others)
    for name in recreated[1:]:
        await js.client.delete(Pod, js.namespace, f"{name}-0")
    kept = [name for name in (DRIVER, *WORKERS) if name not in recreated]
    await epochs(js, 1, 0)

    await make_pods(js, *recreated)
    await come(js, 2, *recreated)
    await epochs(js, 1, 1)
    await come(js, 2, *kept)
    await epochs(js, 2, 1)

    after = await uids(js)
    assert [name for name in before if after[name] == before[name]] == [f"{n}-0" for n in kept]
    assert await js.restarts() == (0, 0)
    assert await js.is_active()


async def test_a_job_that_stays_failed_leaves_the_group(js):
    """FailJob: the two others restart in place without it."""
    await running(js, "FailJob")
    await lose(js, WORKERS[0])

    async def told():
        assert await js.events("FailJobFailurePolicyAction")

    await js.until(told)
    rest = [DRIVER, WORKERS[1]]
    await come(js, 2, rest[0])
    await epochs(js, 1, 1)
    await come(js, 2, rest[1])
    await epochs(js, 2, 1)
    assert await js.is_active()
