"""Warnings and refusals about agents through a real API server, and what it says of such rules."""

import copy
import json
import uuid
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from jobsetpy.api import keys
from jobsetpy.api.core import Node
from jobsetpy.client import HttpRequest
from jobsetpy.errors import InvalidError
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

REPOSITORY = Path(__file__).resolve().parents[3]
RULES = "spec.replicatedJobs[0].template.spec.template.spec.initContainers[0].restartPolicyRules"


def manifest(**rule) -> dict:
    """The sidecar example; with ``rule``, its agent's."""
    text = (REPOSITORY / "examples/in-place-restart/sidecar.yaml").read_text()
    body = yaml.safe_load(text)
    if rule:
        agent_of(body)["restartPolicyRules"] = [rule]
    return body


def agent_of(jobset: dict) -> dict:
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return job["template"]["spec"]["initContainers"][0]


async def send(client, method: str, path: str, body: dict, **query):
    request = HttpRequest(
        method=method,
        path=path,
        query=tuple(query.items()),
        content_type="application/json",
        body=json.dumps(body).encode(),
    )
    return await client.raw(request)


def jobsets(namespace: str) -> str:
    return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"


@pytest_asyncio.fixture(loop_scope="module")
async def node(shared_client):
    """A node without features, on which no pod is scheduled."""
    name = f"features-{uuid.uuid4().hex[:6]}"
    body = {"metadata": {"name": name}, "spec": {"unschedulable": True}}
    await shared_client.create(Node, "", {"apiVersion": "v1", "kind": "Node", **body})
    yield name
    await shared_client.delete(Node, "", name)


async def test_a_warning_arrives(shared_client, namespace, node):
    """The user's client gets it, with the field, at creation only; a good agent has none."""
    path = jobsets(namespace)

    async def warning() -> str:
        good = await send(shared_client, "POST", path, manifest(), dryRun="All")
        return good.headers.get("warning", "")

    # The cluster has nodes of other tests as well, none of which has kubelets with features.
    async def no_node_declares_it() -> bool:
        return "nodes declares the feature" in await warning()

    async def no_warning() -> bool:
        return not await warning()

    await eventually(no_node_declares_it, 30, poll_s=0.1)
    features = {"status": {"declaredFeatures": [keys.RESTART_ALL_FEATURE]}}
    await shared_client.merge_patch(Node, "", node, features, subresource="status")
    await eventually(no_warning, 30, poll_s=0.1)
    codes = {"operator": "In", "values": [42]}
    body = manifest(action="RestartAllContainers", exitCodes=codes)
    made = await send(shared_client, "POST", path, body)
    assert RULES in made.headers["warning"]
    assert "use RestartAllContainers, NotIn [0, 1, 2]" in made.headers["warning"]
    stored = json.loads(made.body)
    stored["spec"]["suspend"] = True
    name = stored["metadata"]["name"]
    changed = await send(shared_client, "PUT", f"{path}/{name}", stored)
    assert "warning" not in changed.headers


UNRELEASED = {
    "RestartPod": ({"action": "RestartPod", "exitCodes": {"operator": "NotIn", "values": [0]}}, None),
    "Terminate": ({"action": "Terminate", "exitCodes": {"operator": "NotIn", "values": [0]}}, "remove the rule"),
    "NoIn": ({"action": "RestartAllContainers", "exitCodes": {"operator": "NoIn", "values": [0]}}, "use NotIn"),
}  # fmt: skip


@pytest.mark.parametrize("word", UNRELEASED)
async def test_words_of_the_kep_that_kubernetes_does_not_know(shared_client, namespace, word):
    """The API server takes no Job with them; so they are refused or warned about before."""
    rule, advice = UNRELEASED[word]
    body = manifest(**rule)
    job = copy.deepcopy(body["spec"]["replicatedJobs"][0]["template"]["spec"])
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with pytest.raises(InvalidError, match=f'Unsupported value: "{word}"'):
        await send(shared_client, "POST", jobs, {"metadata": {"name": "j"}, "spec": job})
    if advice:
        with pytest.raises(InvalidError, match=advice):
            await send(shared_client, "POST", jobsets(namespace), body)
    else:
        made = await send(shared_client, "POST", jobsets(namespace), body)
        assert "use RestartAllContainers" in made.headers["warning"]
