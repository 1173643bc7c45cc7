"""Two replicas of the manager in pods: one is killed, one deleted, both exchanged, all removed.

``config/default`` with the component for high availability, on a real node. One group of real pods
lives through everything with the same pods. The tests build on each other, in this order.
"""

import asyncio
import copy
import json
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
from jobsetpy.client import HttpRequest, connect
from jobsetpy.errors import AlreadyExistsError, JobSetPyError, NotFoundError
from support import patience
from support.cluster.deployed import JOBSETS, Replicas, WebhookCalls, kill
from support.cluster.install import (
    CONFIG,
    ROOT,
    SYSTEM,
    apply_all,
    delete_all,
    jobsets_served,
    rendered,
)
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
    client = await connect(kubeconfig=str(node_cluster.kubeconfig), qps=0)
    await apply_all(client, installation())
    await jobsets_served(client)
    await Replicas(client).settled()
    yield client
    await client.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gang(node_cluster, client):
    """A group of running pods, followed from the first test to the last."""
    jobset = gang_jobset(f"ha-{uuid.uuid4().hex[:4]}", PODS)
    async with run_gang(client, jobset, PODS, pod_log_folders(node_cluster)) as timeline:
        yield timeline


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def next_image(node_cluster, tmp_path_factory):
    """The next version's image; made and loaded while a test waits for something else."""
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
    """A JobSet that says as little as it can, and makes no pods."""
    container = {"name": "c", "image": "localhost/shell:1"}
    job = {"template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "w", "template": {"spec": job}}],
            **spec,
        },
    }


def next_version() -> list[dict]:
    """The installation as a later release might have it: image, version, a field more."""
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


async def get(client, path: str, **query: str) -> dict:
    request = HttpRequest(method="GET", path=path, query=tuple(query.items()))
    return json.loads((await client.raw(request)).body)


async def send(client, method: str, path: str, body: dict) -> dict:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, body=data, content_type=kind)
    return json.loads((await client.raw(request)).body)


def unharmed(timeline, before: dict, restarts: int) -> None:
    """The same pods, each of whose containers was started once more for each restart."""
    assert {name: story.uid for name, story in timeline.pods.items()} == before
    assert {story.restarts for story in timeline.pods.values()} == {restarts}
    assert set(timeline.synced) - {0} == set(range(1, restarts + 2))
    assert set(timeline.deprecated) - {0} == set(range(1, restarts + 1))
    assert timeline.restarts == 0


async def test_one_leads_and_both_are_ready(client, replicas, calls):
    """Two ready pods, one name in the Lease, and a budget that spares one of them."""
    pods = await replicas.settled()
    leader, _ = await replicas.leader()
    budget = await get(
        client,
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
    assert variable["value"] == "localhost/jobsetpy-agent:dev"  # by the kustomization's images


async def test_a_leader_killed_in_a_restart_is_followed(client, replicas, gang, calls, next_image):
    """The other one finishes the restart, once, after the Lease; webhooks go on meanwhile.

    So what is made while nobody leads is stored, and done by the next leader.
    """
    before = {name: story.uid for name, story in gang.pods.items()}
    pod, holder = await replicas.leader()
    process, transitions = process_of(pod), await replicas.transitions()
    async with calls.running():
        victim = await client.get(Pod, "default", min(before))
        await kill_worker(victim)
        await gang.wait(lambda: any(p.epoch == 2 for p in gang.pods.values()), 60, "a new epoch")
        killed = kill(process, signal.SIGKILL)
        assert 2 not in gang.synced  # in the middle
        await eventually(partial(created, client, example()), 60, poll_s=0.2)
        await replicas.leader(not_=holder, timeout_s=60)
        leads = time.time()
        await gang.wait(lambda: gang.all_running(PODS, 2), 60, "all workers to run again")
    runs = time.time()
    answered = [at for at in calls.answered if killed < at < leads]
    print(f"killed: the next leads after {leads - killed:.1f} s, all run {runs - killed:.1f} s")
    print(f"webhook calls: {len(calls.answered)} answered, {len(calls.refused)} refused")

    assert not next_image.done() or next_image.exception() is None
    assert leads - killed < 15 + patience.scaled(10)
    assert await replicas.transitions() == transitions + 1
    assert len(answered) > 5  # by the one that stood by
    unharmed(gang, before, 1)


async def test_a_leader_that_is_deleted_hands_over(client, replicas, gang, calls):
    """The Lease is free in a moment, no call is refused, and the pod gets a successor."""
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
    await client.raw(HttpRequest(method="DELETE", path=f"{JOBSETS}/simple"))
    print(f"deleted: the next leads after {leads - began:.2f} s")

    assert leads - began < patience.scaled(5)  # 0.3 s on a quiet machine
    assert calls.refused == []
    assert len(calls.answered) > 5
    unharmed(gang, before, 1)


def example() -> dict:
    """The first of the examples, with the image that the node has."""
    jobset = yaml.safe_load((ROOT / "examples/simple/jobset.yaml").read_text())
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        container["image"] = SHELL_IMAGE
    return jobset


async def created(client, jobset: dict) -> bool:
    """Whether the API server takes it: a call of the one that was killed is refused."""
    try:
        await send(client, "POST", JOBSETS, jobset)
    except AlreadyExistsError:
        return True
    except JobSetPyError:
        return False
    return True


async def completed(client, name: str) -> bool:
    found = await get(client, f"{JOBSETS}/{name}")
    return found.get("status", {}).get("terminalState") == "Completed"


async def test_an_upgrade_refuses_nothing(client, replicas, gang, calls, next_image):
    """New pods and a new field of the definition; the group runs on, and restarts afterwards."""
    before = {name: story.uid for name, story in gang.pods.items()}
    await next_image
    async with calls.running():
        await apply_all(client, next_version())
        pods = await replicas.settled()
    for pod in pods:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod.metadata.name}"
        made = await get(client, path)
        assert made["metadata"]["labels"][VERSION] == "next"
        assert made["spec"]["containers"][0]["image"] == NEXT_IMAGE
    print(f"upgrade: {len(calls.answered)} calls, slowest {calls.slowest_s:.2f} s")

    assert calls.refused == []
    assert len(calls.answered) > 10
    unharmed(gang, before, 1)
    again = await restart_once(gang, PODS)
    assert again.recreated == 0
    unharmed(gang, before, 2)

    async def kept() -> bool:  # once API servers have heard of the field
        query = (("dryRun", "All"),)
        body = json.dumps(minimal("x", **{NEW_FIELD: "x"})).encode()
        answer = await client.raw(HttpRequest(method="POST", path=JOBSETS, body=body, query=query))
        return NEW_FIELD in json.loads(answer.body)["spec"]

    await eventually(kept, 60, poll_s=0.2)
    await send(client, "POST", JOBSETS, minimal("later", **{NEW_FIELD: "x"}))
    found = await eventually(partial(suspended, client, "later"), 60, poll_s=0.1)
    assert found["spec"][NEW_FIELD] == "x"  # the manager, which knows nothing of it, left it


async def suspended(client, name: str) -> dict | None:
    """The JobSet, once a manager has seen to it."""
    found = await get(client, f"{JOBSETS}/{name}")
    conditions = found.get("status", {}).get("conditions", ())
    return found if any(each["type"] == "Suspended" for each in conditions) else None


async def test_a_downgrade_goes_as_smoothly(client, replicas, gang, calls):
    """The version before takes over what the later one made; what it cannot know is dropped."""
    before = {name: story.uid for name, story in gang.pods.items()}
    async with calls.running():
        await apply_all(client, installation())
        await replicas.settled(alone=False)
        labels = (await replicas.deployment())["metadata"]["labels"]
    changed = await send(
        client, "PATCH", f"{JOBSETS}/later", {"metadata": {"labels": {"seen": "yes"}}}
    )
    await client.raw(HttpRequest(method="DELETE", path=f"{JOBSETS}/later"))

    assert VERSION not in labels
    assert calls.refused == []
    assert changed["metadata"]["labels"] == {"seen": "yes"}
    assert NEW_FIELD not in changed["spec"]
    unharmed(gang, before, 2)


async def test_nothing_is_left_when_it_is_deleted(client, gang):
    """With what was applied all JobSets and their pods go; no object of any kind has our name."""
    assert len(gang.pods) == PODS
    await delete_all(client, installation())
    for folder in ("account", "flow"):  # which the group needed, beside the installation
        await delete_all(client, render(CONFIG / "agent" / folder))
    await gang.wait(lambda: not gang.pods, 90, "the group's pods to be deleted")

    async def gone() -> bool:
        left = [name async for name in ours(client)]
        assert left == []
        return True

    await eventually(gone, 90, poll_s=1.0)


async def ours(client):
    """Every object of every kind whose name, namespace or labels are of the installation."""
    groups = [("/api/v1", "v1")]
    for group in (await get(client, "/apis"))["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        groups.append((f"/apis/{version}", version))
    for path, version in groups:
        try:
            resources = (await get(client, path))["resources"]
        except NotFoundError:
            continue  # a group that has just gone
        for resource in resources:
            if "list" not in resource["verbs"] or resource["name"] == "events":
                continue  # events are kept for an hour
            try:
                items = (await get(client, f"{path}/{resource['name']}"))["items"]
            except NotFoundError:
                continue
            for item in items:
                metadata = item["metadata"]
                text = [metadata["name"], metadata.get("namespace", "")]
                text += [f"{k}={v}" for k, v in metadata.get("labels", {}).items()]
                if any("jobset" in each for each in text):
                    yield f"{version} {resource['name']} {metadata['name']}"
