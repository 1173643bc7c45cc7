"""Warnings and refusals about agents through a real API server."""

import copy
import json
import uuid

import pytest
import pytest_asyncio
import yaml

from jobsetpy.api import keys
from jobsetpy.api.core import Node
from jobsetpy.errors import InvalidError
from support.cluster.install import ROOT
from support.cluster.json_api import exchange
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

RULES = "spec.replicatedJobs[0].template.spec.template.spec.initContainers[0].restartPolicyRules"


def manifest(**rule) -> dict:
    """The sidecar example; ``rule`` replaces the rules of its agent."""
    text = (ROOT / "examples/in-place-restart/sidecar.yaml").read_text()
    body = yaml.safe_load(text)
    if rule:
        agent_of(body)["restartPolicyRules"] = [rule]
    return body


def agent_of(jobset: dict) -> dict:
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return job["template"]["spec"]["initContainers"][0]


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


async def test_warning_reaches_the_users_client(shared_client, namespace, node):
    """It names the field, at creation only; a correct agent causes none."""
    path = jobsets(namespace)

    async def warning() -> str:
        response = await exchange(shared_client, "POST", path, manifest(), dryRun="All")
        return response.headers.get("warning", "")

    # Nodes of other tests have no kubelets with features either.
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
    made = await exchange(shared_client, "POST", path, body)
    assert RULES in made.headers["warning"]
    assert "use RestartAllContainers, NotIn [0, 1, 2]" in made.headers["warning"]
    stored = json.loads(made.body)
    stored["spec"]["suspend"] = True
    name = stored["metadata"]["name"]
    changed = await exchange(shared_client, "PUT", f"{path}/{name}", stored)
    assert "warning" not in changed.headers


UNRELEASED = {
    "RestartPod": ({"action": "RestartPod", "exitCodes": {"operator": "NotIn", "values": [0]}}, None),
    "Terminate": ({"action": "Terminate", "exitCodes": {"operator": "NotIn", "values": [0]}}, "remove the rule"),
    "NoIn": ({"action": "RestartAllContainers", "exitCodes": {"operator": "NoIn", "values": [0]}}, "use NotIn"),
}  # fmt: skip


@pytest.mark.parametrize("word", UNRELEASED)
async def test_jobset_is_refused_or_warned_about_when_it_has_a_value_of_the_kep_only(
    shared_client, namespace, word
):
    """The API server would refuse its Jobs."""
    rule, advice = UNRELEASED[word]
    body = manifest(**rule)
    job = copy.deepcopy(body["spec"]["replicatedJobs"][0]["template"]["spec"])
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with pytest.raises(InvalidError, match=f'Unsupported value: "{word}"'):
        await exchange(shared_client, "POST", jobs, {"metadata": {"name": "j"}, "spec": job})
    if advice:
        with pytest.raises(InvalidError, match=advice):
            await exchange(shared_client, "POST", jobsets(namespace), body)
    else:
        made = await exchange(shared_client, "POST", jobsets(namespace), body)
        assert "use RestartAllContainers" in made.headers["warning"]
