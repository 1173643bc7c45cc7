"""Recreation of a part of a JobSet that restarts in place, with a real API server."""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.testing import make_jobset
from support.features.checklist_kit import NAME
from support.restarts.epoch_reports import report_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

DRIVER = f"{NAME}-driver-0"
WORKERS = [f"{NAME}-w-0", f"{NAME}-w-1"]


def gang(action):
    """A JobSet of a driver and two workers, each with one pod."""
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
    """Create the pod of each Job in place of the Job controller."""
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


async def report(js, epoch, *jobs):
    """Report an epoch in place of the agents of these Jobs."""
    await report_epoch(js.client, js.namespace, epoch, *(f"{name}-0" for name in jobs))


async def epochs(js, synced, deprecated):
    """Wait until the status has both epochs."""

    async def check():
        status = (await js.client.get(JobSet, js.namespace, NAME)).status
        assert (status.synced_epoch, status.deprecated_epoch) == (synced, deprecated)

    await js.until(check)


async def running(js, action):
    """Create the JobSet, run all three pods at epoch 1, and return their UIDs."""
    await js.create(gang(action))
    await js.until_jobs(DRIVER, *WORKERS)
    await make_pods(js, DRIVER, *WORKERS)
    await report(js, 1, DRIVER, *WORKERS)
    await epochs(js, 1, 0)
    return await uids(js)


async def uids(js):
    return {name: pod["metadata"]["uid"] for name, pod in (await js.read_all(Pod)).items()}


async def lose(js, name):
    """Fail a Job and delete its pod."""
    await js.fail(name, "PodFailurePolicy")
    await js.client.delete(Pod, js.namespace, f"{name}-0")


@pytest.mark.parametrize(
    ("action", "recreated"), [("RestartJob", WORKERS[:1]), ("RestartReplicatedJob", WORKERS)]
)
async def test_other_pods_restart_in_place_when_a_part_is_recreated(js, action, recreated):
    """Pods outside the part are kept; the budget of the part's Job is charged for all."""
    before = await running(js, action)
    old = {name: (await js.read(Job, name))["metadata"]["uid"] for name in WORKERS}
    await lose(js, WORKERS[0])

    async def replaced():
        await js.collect(*recreated)  # in place of the garbage collector
        jobs = await js.read_all(Job)
        assert set(recreated) <= set(jobs)
        assert all(jobs[name]["metadata"]["uid"] != old[name] for name in recreated)

    await js.until(replaced)
    for name in recreated[1:]:
        await js.client.delete(Pod, js.namespace, f"{name}-0")
    kept = [name for name in (DRIVER, *WORKERS) if name not in recreated]
    await epochs(js, 1, 0)

    await make_pods(js, *recreated)
    await report(js, 2, *recreated)
    await epochs(js, 1, 1)
    await report(js, 2, *kept)
    await epochs(js, 2, 1)

    after = await uids(js)
    assert [name for name in before if after[name] == before[name]] == [f"{n}-0" for n in kept]
    assert await js.restarts() == (0, 0)
    assert await js.is_active()


async def test_other_pods_restart_in_place_when_a_failed_job_is_kept(js):
    """FailJob: the group continues without the failed Job."""
    await running(js, "FailJob")
    await lose(js, WORKERS[0])

    async def reported():
        assert await js.events("FailJobFailurePolicyAction")

    await js.until(reported)
    rest = [DRIVER, WORKERS[1]]
    await report(js, 2, rest[0])
    await epochs(js, 1, 1)
    await report(js, 2, rest[1])
    await epochs(js, 2, 1)
    assert await js.is_active()
