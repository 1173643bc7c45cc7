"""Startup groups on a real node: real kubelet, real barriers, the deployed manager with webhooks.

All JobSets are created at the same time; a test waits for its own one.
"""

import asyncio
import contextlib

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap, Node, Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from support import patience
from support.cluster.json_api import StoredJobSet, send
from support.cluster.objects import jobset, replicated_job, shell_worker
from support.patience import eventually
from support.restarts.scenario import (
    gang_jobset,
    kill_worker,
    managed,
    pod_log_folders,
    restart_once,
    run_gang,
)

pytestmark = [
    pytest.mark.node,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

NAMESPACE = "default"
LIMIT_S = 60.0
LONG_S = round(patience.scaled(120))
TOO_LONG_S = round(patience.scaled(6))
"""Timeout of groups that never start. Two pods have to start within it, one after the other."""
WATCHED_S = min(patience.scaled(15), 50.0)  # less than the minute that the kubelet's mounts take
SCRIPT = "trap 'exit 143' TERM; echo started; while :; do sleep 1 & wait $!; done"
NO_TOKEN = {"automountServiceAccountToken": False}
"""Pods that cannot call the API server wait for the mounted ConfigMap."""


def job(name, pods=2, *, late="", **spec):
    """A ReplicatedJob; ``late`` is a node label that no node has at first."""
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    pod["containers"] = [shell_worker(SCRIPT)]
    if late:
        pod["nodeSelector"] = {late: "yes"}
    return replicated_job(pod, pods, name=name, backoffLimit=0)


class Stage:
    """The cluster and its JobSets."""

    def __init__(self, client, node):
        self.client = client
        self.node = node
        self.names = []

    async def create(self, name, *jobs, config=None, annotations=None, **spec):
        """Create a JobSet that starts as a startup group."""
        config = {"timeoutAfterSeconds": LONG_S} if config is None else config
        body = jobset(name, *jobs, annotations=annotations, groupSchedulingConfig=config, **spec)
        self.names.append(name)
        await self.client.create(JobSet, NAMESPACE, body)

    async def set_label(self, label, value="yes"):
        """Set a label of the node, or remove it with ``None``."""
        body = {"metadata": {"labels": {label: value}}}
        await self.client.merge_patch(Node, "", self.node, body)

    async def all_pods(self, name):
        """Return all pods of a JobSet."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        selector = f"{keys.JOBSET_NAME}={name}"
        return (await send(self.client, "GET", path, labelSelector=selector))["items"]

    async def pods(self, name):
        """Return the pods, unless deleted or failed, by name without JobSet and suffix."""
        return {
            pod["metadata"]["name"].rpartition("-")[0].removeprefix(f"{name}-"): pod
            for pod in await self.all_pods(name)
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"
        }

    async def waits(self, name, *pods):
        """Wait until exactly these pods wait at the barrier; return all pods."""
        return await self._until(name, pods, lambda pod: "running" in barrier(pod))

    async def runs(self, name, *pods):
        """Wait until the workers of exactly these pods run; return all pods."""
        return await self._until(name, pods, has_started)

    async def _until(self, name, pods, check):
        async def there():
            found = await self.pods(name)
            return found if {key for key in found if check(found[key])} == set(pods) else None

        return await eventually(there, LIMIT_S, poll_s=0.2)

    async def jobset(self, name):
        """Return the JobSet."""
        return await self.client.get(JobSet, NAMESPACE, name)


def barrier(pod):
    """Return the state of the barrier's container; {} before it has one."""
    for status in pod["status"].get("initContainerStatuses", ()):
        if status["name"] == keys.GROUP_INIT_CONTAINER:
            return status["state"]
    return {}


def has_started(pod):
    """Return True if the worker has started."""
    statuses = pod["status"].get("containerStatuses", ())
    return any("waiting" not in status["state"] for status in statuses)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(node_cluster):
    """The installed manager, and all JobSets of this file."""
    async with managed(node_cluster.kubeconfig) as client:
        (node,) = (await client.list_page(Node)).items
        stage = Stage(client, node.metadata.name)
        await stage.create("all", job("a"), job("b", 1, late="test/all"),
                           failurePolicy={"maxRestarts": 1})  # fmt: skip
        await stage.create("some", job("workers", 1), job("more", 1, late="test/some"),
                           job("auxiliary", 1),
                           config={"targetReplicatedJobs": ["workers", "more"]})  # fmt: skip
        late = {"config": {"timeoutAfterSeconds": TOO_LONG_S}, "failurePolicy": {"maxRestarts": 0}}
        await stage.create("watch", job("a"), job("b", 1, late="test/never"), **late)
        await stage.create("mount", job("a", **NO_TOKEN), job("b", 1, late="test/never"), **late)
        yield stage
        for name in stage.names:
            with contextlib.suppress(NotFoundError):
                await client.delete(JobSet, NAMESPACE, name, propagation="Background")


async def test_startup_group_waits_for_a_pod_that_cannot_be_scheduled(stage):
    """Story 1, and again after a restart, with the old signal still in the ConfigMap.

    The group is released by the watch: the kubelet's mounts would take a minute.
    """
    names = ("a-0-0", "a-0-1", "b-0-0")
    early = await stage.waits("all", *names[:2])
    assert not any(map(has_started, early.values()))
    await stage.set_label("test/all")
    async with asyncio.timeout(WATCHED_S):
        first = await stage.runs("all", *names)
    assert {"0"} == {p["metadata"]["labels"][keys.RESTART_ATTEMPT] for p in first.values()}

    await stage.set_label("test/all", None)
    victim = first["b-0-0"]["metadata"]["name"]
    await kill_worker(await stage.client.get(Pod, NAMESPACE, victim), SCRIPT)

    async def recreated():
        jobset = await stage.jobset("all")
        pods = await stage.pods("all")
        kept = {p["metadata"]["uid"] for p in pods.values()} & {
            p["metadata"]["uid"] for p in first.values()
        }
        return jobset.status.restarts == 1 and len(pods) == 3 and not kept

    await eventually(recreated, LIMIT_S, poll_s=0.2)
    await stage.waits("all", *names[:2])
    await asyncio.sleep(3)  # time in which a barrier would mistake the old signal for the new one
    config_map = await stage.client.get(ConfigMap, NAMESPACE, "all-group-scheduling")
    assert config_map.data["started"].endswith(" 1\n")
    assert not any(map(has_started, (await stage.pods("all")).values()))
    await stage.set_label("test/all")
    async with asyncio.timeout(WATCHED_S):
        await stage.runs("all", *names)


@pytest.mark.parametrize("name", ["watch", "mount"])
async def test_startup_group_fails_when_it_waits_too_long(stage, name):
    """Barriers report the progress of the group, and the failure policy is applied."""
    stored = StoredJobSet(stage.client, NAMESPACE, name)
    await stored.reaches(lambda status: status.terminal_state == "Failed", LIMIT_S)
    ended = [
        barrier(pod)["terminated"]
        for pod in await stage.all_pods(name)
        if "terminated" in barrier(pod)
    ]
    assert ended
    assert {each["exitCode"] for each in ended} <= {1, 143}
    messages = [each["message"] for each in ended if each["exitCode"] == 1]
    assert messages
    for message in messages:
        assert message.startswith(f"group scheduling timed out after {TOO_LONG_S} s: ")
        assert "of 3 pods had started at" in message or "fewer than 3 pods" in message
    if name == "watch":
        assert "2 of 3 pods had started at" in messages[0]


async def test_restarts_in_place_pass_the_open_startup_barrier(stage, node_cluster):
    """All containers restart, the barrier's included, and the barrier is open."""
    jobset = gang_jobset("group-gang", 2)
    jobset["spec"]["groupSchedulingConfig"] = {"timeoutAfterSeconds": LONG_S}
    async with run_gang(stage.client, jobset, 2, pod_log_folders(node_cluster)) as timeline:
        restart = await restart_once(timeline, 2)
        pods = await stage.pods("group-gang")

    assert restart.recreated == 0
    for pod in pods.values():
        (status,) = [
            each
            for each in pod["status"]["initContainerStatuses"]
            if each["name"] == keys.GROUP_INIT_CONTAINER
        ]
        assert status["restartCount"] >= 1
        assert status["state"]["terminated"]["exitCode"] == 0
