"""Two replicas of the manager in pods: kill, deletion, upgrade, downgrade and removal.

``config/default`` with the component for high availability, on a real node. One JobSet of real
pods runs through all of it without losing a pod. The tests build on each other, in this order.
"""

import asyncio
import copy
import signal
import time
import uuid
from functools import partial

import pytest
import pytest_asyncio
import yaml

from hack.generate.kustomize import render
from hack.images.project import Release, build
from jobsetpy import aio
from jobsetpy.api.core import Pod
from jobsetpy.errors import AlreadyExistsError, JobSetPyError, NotFoundError
from support.cluster.deployed import JOBSETS, Replicas, WebhookCalls, kill
from support.cluster.install import (
    CONFIG,
    ROOT,
    SYSTEM,
    apply_all,
    connected,
    delete_all,
    jobsets_served,
    rendered,
)
from support.cluster.json_api import exchange, send
from support.cluster.objects import jobset, replicated_job
from support.cluster.processes import process_of
from support.patience import eventually
from support.restarts.scenario import (
    SHELL_IMAGE,
    gang_jobset,
    kill_worker,
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

PODS = 3
NEXT_IMAGE = "localhost/jobsetpy-manager:next"
VERSION = "app.kubernetes.io/version"
NEW_FIELD = "fieldOfTheNextVersion"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(node_cluster):
    """A client of the node's cluster, with two replicas installed."""
    async with connected(node_cluster.kubeconfig, qps=0) as client:
        await apply_all(client, installation())
        await jobsets_served(client)
        await Replicas(client).settled()
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gang(node_cluster, client):
    """A JobSet of running pods, followed from the first test to the last."""
    jobset = gang_jobset(f"ha-{uuid.uuid4().hex[:4]}", PODS)
    async with run_gang(client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        yield timeline


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def next_image(node_cluster, tmp_path_factory):
    """The next version's image, built and loaded while a test waits for something else."""
    folder = tmp_path_factory.mktemp("images")

    def make() -> None:
        release = Release(tag="next", revision="next")
        node_cluster.load_images([build("manager", folder, release=release).path])

    async with aio.supervise() as tasks:
        yield tasks.start(asyncio.to_thread(make), name="next-image")


@pytest.fixture
def replicas(client):
    return Replicas(client)


@pytest.fixture
def calls(node_cluster):
    return WebhookCalls(node_cluster.kubeconfig, minimal("called"))


def installation(**images) -> list[dict]:
    return rendered("default", "high-availability", **images)


def minimal(name: str, **spec) -> dict:
    """A minimal JobSet, suspended, so that it has no pods."""
    container = {"name": "c", "image": "localhost/shell:1"}
    job = replicated_job({"containers": [container]})
    return jobset(name, job, suspend=True, **spec)


def next_version() -> list[dict]:
    """The installation of a fictitious later release: another image and version, one more field."""
    documents = copy.deepcopy(installation(image=NEXT_IMAGE))
    for document in documents:
        if document["kind"] == "Deployment":
            for metadata in (document["metadata"], document["spec"]["template"]["metadata"]):
                metadata["labels"][VERSION] = "next"
        if document["kind"] == "CustomResourceDefinition":
            (version,) = document["spec"]["versions"]
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            spec["properties"][NEW_FIELD] = {"type": "string"}
    return documents


def assert_undisturbed(timeline, before: dict, restarts: int) -> None:
    """Assert that the pods are the same and each container has started once more per restart."""
    assert {name: story.uid for name, story in timeline.pods.items()} == before
    assert {story.restarts for story in timeline.pods.values()} == {restarts}
    assert set(timeline.synced) - {0} == set(range(1, restarts + 2))
    assert set(timeline.deprecated) - {0} == set(range(1, restarts + 1))
    assert timeline.restarts == 0


async def test_one_replica_leads_and_both_are_ready(client, replicas, calls):
    """Two ready pods, one holder of the Lease, and a budget that allows one disruption."""
    pods = await replicas.settled()
    leader, _ = await replicas.leader()
    budget = await send(
        client,
        "GET",
        f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/jobset-controller-manager",
    )
    async with calls.running():
        await eventually(lambda: len(calls.answered) >= 5, 60)
    spec = (await replicas.deployment())["spec"]["template"]["spec"]
    (variable,) = spec["containers"][0]["env"]

    assert len(pods) == 2
    assert leader.metadata.name in {pod.metadata.name for pod in pods}
    assert (budget["status"]["disruptionsAllowed"], budget["status"]["currentHealthy"]) == (1, 2)
    assert calls.refused == []
    assert variable["value"] == "localhost/jobsetpy-agent:dev"  # set by the kustomization's images


async def test_other_replica_finishes_a_restart_when_the_leader_is_killed(
    client, replicas, gang, calls, next_image
):
    """It takes over when the Lease has expired; webhooks answer meanwhile.

    A JobSet that is created while no replica leads is stored, and served by the next leader.
    """
    before = {name: story.uid for name, story in gang.pods.items()}
    pod, holder = await replicas.leader()
    process, transitions = process_of(pod), await replicas.transitions()
    async with calls.running():
        victim = await client.get(Pod, "default", min(before))
        await kill_worker(victim)
        await gang.wait(lambda: any(p.epoch == 2 for p in gang.pods.values()), 60, "a new epoch")
        killed = kill(process, signal.SIGKILL)
        assert 2 not in gang.synced  # the restart is in progress
        await eventually(partial(created, client, example()), 60, poll_s=0.2)
        await replicas.leader(not_=holder, timeout_s=60)
        leads = time.time()
        await gang.wait(lambda: gang.all_running(PODS, 2), 60, "all workers to run again")
    runs = time.time()
    answered = [at for at in calls.answered if killed < at < leads]
    print(f"killed: the next leads after {leads - killed:.1f} s, all run {runs - killed:.1f} s")
    print(f"webhook calls: {len(calls.answered)} answered, {len(calls.refused)} refused")

    assert not next_image.done() or next_image.exception() is None
    assert await replicas.transitions() == transitions + 1
    assert len(answered) > 5  # by the replica on standby
    assert_undisturbed(gang, before, 1)


async def test_leader_hands_over_when_it_is_deleted(client, replicas, gang, calls):
    """The Lease is released immediately, no webhook call is refused, and the pod is replaced."""
    before = {name: story.uid for name, story in gang.pods.items()}
    await replicas.settled()
    pod, holder = await replicas.leader()
    async with calls.running():
        began = time.time()
        await client.delete(Pod, SYSTEM, pod.metadata.name)
        await replicas.leader(not_=holder)
        leads = time.time()
        await replicas.settled()
    await eventually(partial(completed, client, "simple"), 60, poll_s=0.2)
    await exchange(client, "DELETE", f"{JOBSETS}/simple")
    print(f"deleted: the next leads after {leads - began:.2f} s")

    assert calls.refused == []
    assert len(calls.answered) > 5
    assert_undisturbed(gang, before, 1)


def example() -> dict:
    """The first example, with the image that the node has."""
    jobset = yaml.safe_load((ROOT / "examples/simple/jobset.yaml").read_text())
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        container["image"] = SHELL_IMAGE
    return jobset


async def created(client, jobset: dict) -> bool:
    """Return True once the JobSet is stored; calls of the killed replica's webhooks are refused."""
    try:
        await send(client, "POST", JOBSETS, jobset)
    except AlreadyExistsError:
        return True
    except JobSetPyError:
        return False
    return True


async def completed(client, name: str) -> bool:
    found = await send(client, "GET", f"{JOBSETS}/{name}")
    return found.get("status", {}).get("terminalState") == "Completed"


async def test_upgrade_refuses_no_call_and_disturbs_no_pod(
    client, replicas, gang, calls, next_image
):
    """New manager pods and a new field of the CRD; the workers run on and restart afterwards."""
    before = {name: story.uid for name, story in gang.pods.items()}
    await next_image
    async with calls.running():
        await apply_all(client, next_version())
        pods = await replicas.settled()
    for pod in pods:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod.metadata.name}"
        made = await send(client, "GET", path)
        assert made["metadata"]["labels"][VERSION] == "next"
        assert made["spec"]["containers"][0]["image"] == NEXT_IMAGE
    print(f"upgrade: {len(calls.answered)} calls, slowest {calls.slowest_s:.2f} s")

    assert calls.refused == []
    assert len(calls.answered) > 10
    assert_undisturbed(gang, before, 1)
    again = await restart_once(gang, PODS)
    assert again.recreated == 0
    assert_undisturbed(gang, before, 2)

    async def kept() -> bool:  # once the API server has loaded the new CRD
        body = minimal("x", **{NEW_FIELD: "x"})
        return NEW_FIELD in (await send(client, "POST", JOBSETS, body, dryRun="All"))["spec"]

    await eventually(kept, 60, poll_s=0.2)
    await send(client, "POST", JOBSETS, minimal("later", **{NEW_FIELD: "x"}))
    found = await eventually(partial(suspended, client, "later"), 60, poll_s=0.1)
    assert found["spec"][NEW_FIELD] == "x"  # the manager does not know the field, and keeps it


async def suspended(client, name: str) -> dict | None:
    """Return the JobSet once a manager has set its condition."""
    found = await send(client, "GET", f"{JOBSETS}/{name}")
    conditions = found.get("status", {}).get("conditions", ())
    return found if any(each["type"] == "Suspended" for each in conditions) else None


async def test_downgrade_refuses_no_call_and_disturbs_no_pod(client, replicas, gang, calls):
    """The older version takes over the newer one's objects; unknown fields are dropped."""
    before = {name: story.uid for name, story in gang.pods.items()}
    async with calls.running():
        await apply_all(client, installation())
        await replicas.settled(alone=False)
        labels = (await replicas.deployment())["metadata"]["labels"]
    changed = await send(
        client, "PATCH", f"{JOBSETS}/later", {"metadata": {"labels": {"seen": "yes"}}}
    )
    await exchange(client, "DELETE", f"{JOBSETS}/later")

    assert VERSION not in labels
    assert calls.refused == []
    assert changed["metadata"]["labels"] == {"seen": "yes"}
    assert NEW_FIELD not in changed["spec"]
    assert_undisturbed(gang, before, 2)


async def test_nothing_is_left_when_the_installation_is_deleted(client, gang):
    """JobSets and their pods are deleted with the manifests; no object of any kind has our name."""
    assert len(gang.pods) == PODS
    await delete_all(client, installation())
    for folder in ("account", "flow"):  # which the JobSet needed in addition to the installation
        await delete_all(client, render(CONFIG / "agent" / folder))
    await gang.wait(lambda: not gang.pods, 90, "the group's pods to be deleted")

    async def gone() -> bool:
        assert [name async for name in ours(client)] == []
        return True

    await eventually(gone, 90, poll_s=1.0)


async def ours(client):
    """Yield all objects whose name, namespace or labels are those of the installation."""
    groups = [("/api/v1", "v1")]
    for group in (await send(client, "GET", "/apis"))["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        groups.append((f"/apis/{version}", version))
    for path, version in groups:
        try:
            resources = (await send(client, "GET", path))["resources"]
        except NotFoundError:
            continue  # an API group that has just been removed
        for resource in resources:
            if "list" not in resource["verbs"] or resource["name"] == "events":
                continue  # events are kept for an hour
            try:
                items = (await send(client, "GET", f"{path}/{resource['name']}"))["items"]
            except NotFoundError:
                continue
            for item in items:
                metadata = item["metadata"]
                text = [metadata["name"], metadata.get("namespace", "")]
                text += [f"{k}={v}" for k, v in metadata.get("labels", {}).items()]
                if any("jobset" in each for each in text):
                    yield f"{version} {resource['name']} {metadata['name']}"
