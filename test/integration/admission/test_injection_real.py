"""Injection through a real API server: stored objects, and all ways to apply a manifest again."""

import asyncio
import copy
import json
import shutil
import subprocess

import pytest

from jobsetpy.api import keys
from jobsetpy.errors import InvalidError
from support import patience
from support.cluster.json_api import APPLY, send
from support.cluster.objects import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    jobset,
    replicated_job,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

MODES = ["sidecar", "supervisor"]
MODE = keys.IN_PLACE_AGENT_ANNOTATION


def manifest(mode: str, name: str = "train", **notes: str) -> dict:
    """An ordinary training JobSet with the annotation for agents."""
    worker = {
        "name": "worker",
        "image": "test.invalid/train:1",
        "command": ["python3", "train.py"],
        "args": ["--steps=7"],
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": RESTRICTED_CONTAINER,
    }
    pod = {
        "securityContext": {**RESTRICTED_POD, "runAsUser": 1000},
        "initContainers": [{**worker, "name": "download"}],
        "containers": [worker],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    on = {"containerName": "worker", "operator": "In", "values": [3]}
    rules = {"rules": [{"action": "FailJob", "onExitCodes": on}]}
    counts = {"backoffLimit": 0, "parallelism": 4}
    job = replicated_job(pod, name="workers", **counts, podFailurePolicy=rules)
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}
    return jobset(name, job, annotations={MODE: mode, **notes}, failurePolicy=policy)


class Api:
    """JobSets of one namespace, sent as users' tools send them."""

    def __init__(self, client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"

    async def send(self, method: str, path: str, body: dict, content_type="", **query) -> dict:
        query = {"fieldValidation": "Strict", **query}
        return await send(self.client, method, path, body, content_type=content_type, **query)

    async def create(self, body: dict) -> dict:
        return await self.send("POST", self.path, body)

    async def replace(self, body: dict, stored: dict) -> dict:
        """``kubectl replace``."""
        version = stored["metadata"]["resourceVersion"]
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return await self.send("PUT", f"{self.path}/{body['metadata']['name']}", body)

    async def merge(self, body: dict, _: dict) -> dict:
        """``kubectl apply``: changed lists are sent as a whole."""
        path = f"{self.path}/{body['metadata']['name']}"
        return await self.send("PATCH", path, body)

    async def apply(self, body: dict, _: object = None) -> dict:
        """``kubectl apply --server-side``."""
        path = f"{self.path}/{body['metadata']['name']}"
        return await self.send("PATCH", path, body, APPLY, fieldManager="kubectl")


@pytest.fixture
def api(shared_client, namespace):
    return Api(shared_client, namespace)


def job_of(jobset: dict) -> dict:
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize("mode", MODES)
async def test_agent_is_stored(api, mode):
    """The API server stores the injected agent; it knows all of its fields."""
    stored = await api.create(manifest(mode))
    job = job_of(stored)
    pod = job["template"]["spec"]

    assert [each["name"] for each in pod["initContainers"]] == ["download", "jobset-agent"]
    assert pod["initContainers"][1]["image"] == "test.invalid/agent:1"
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "jobset-agent")
    assert (job["backoffLimit"], job["completions"]) == (2**31 - 1, 4)
    assert (job["completionMode"], job["podReplacementPolicy"]) == ("Indexed", "Failed")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["replace", "merge"])
async def test_jobset_is_unchanged_when_its_manifest_is_sent_again(api, mode, way):
    """The manifest has no agent; the stored object does not even get a new version."""
    stored = await api.create(manifest(mode))
    again = await getattr(api, way)(manifest(mode), stored)

    assert again == stored


@pytest.mark.parametrize("mode", MODES)
async def test_jobset_is_unchanged_when_its_manifest_is_applied_server_side_again(api, mode):
    """Needs no force, and changes nothing, any number of times."""
    stored = await api.apply(manifest(mode))
    assert "jobset-agent" in json.dumps(stored["spec"])
    for _ in range(2):
        again = await api.apply(manifest(mode))
        assert again["spec"] == stored["spec"]
        assert again["metadata"]["generation"] == 1


async def test_refusal_names_the_field_and_the_remedy(api):
    """Field and remedy reach the user."""
    body = manifest("supervisor")
    job_of(body)["template"]["spec"]["containers"][0].pop("command")
    with pytest.raises(InvalidError) as caught:
        await api.create(body)
    status = json.loads(caught.value.body)
    (cause,) = status["details"]["causes"]

    assert (
        cause["field"] == "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command"
    )
    assert 'write the command out, or use "sidecar"' in status["message"]


@pytest.mark.parametrize("mode", MODES)
async def test_kubernetes_accepts_the_result(api, mode):
    """Job and pod pass the API server's validation and the restricted Pod Security Standard."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await api.send("PATCH", f"/api/v1/namespaces/{api.namespace}", label)
    job = copy.deepcopy(job_of(await api.create(manifest(mode))))
    jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
    await api.send("POST", jobs, {"metadata": {"name": "j"}, "spec": job}, dryRun="All")
    pods = f"/api/v1/namespaces/{api.namespace}/pods"
    pod = {"metadata": {"name": "p"}, "spec": job["template"]["spec"]}
    made = await api.send("POST", pods, pod, dryRun="All")

    # A pod without requests keeps none: a quota without memory would not admit the agent.
    assert made["status"]["qosClass"] == "BestEffort"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client", "server"])
async def test_kubectl_applies_a_manifest_again(cluster, api, tmp_path, flags):
    """The same manifest, and then one with another count."""

    kubectl = ["kubectl", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={api.namespace}"]

    async def apply(body: dict) -> str:
        path = tmp_path / "jobset.json"
        path.write_text(json.dumps(body))
        done = await asyncio.to_thread(
            subprocess.run,
            [*kubectl, "apply", f"--filename={path}", *flags],
            capture_output=True,
            text=True,
            timeout=patience.scaled(60),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    body = manifest("supervisor")
    job_of(body)["completions"] = 4
    first = await apply(body)
    assert first.endswith("serverside-applied" if flags else "created")
    for _ in range(2):
        await apply(body)
    job_of(body).update(parallelism=5, completions=5)
    await apply(body)
    job = job_of(await send(api.client, "GET", f"{api.path}/train"))

    assert job["parallelism"] == 5
    assert job["template"]["spec"]["containers"][0]["command"][0] == "/jobset-agent/supervise"


async def test_word_and_defaults_of_the_namespace_survive_each_way_to_apply_again(api):
    """One annotation is enough; Kubernetes accepts what admission adds, and later applies keep it."""
    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "60s"}
    await api.send(
        "PATCH", f"/api/v1/namespaces/{api.namespace}", {"metadata": {"annotations": notes}}
    )
    body = manifest("supervisor")
    body["metadata"]["annotations"] = {keys.IN_PLACE_RESTART_ANNOTATION: "fast"}
    del body["spec"]["failurePolicy"]
    stored = await api.apply(body)

    assert stored["spec"]["failurePolicy"] == {
        "maxRestarts": 100,
        "restartStrategy": "InPlaceRestart",
    }
    assert stored["metadata"]["annotations"] == notes | {
        keys.IN_PLACE_RESTART_ANNOTATION: "fast",
        keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
        keys.IN_PLACE_PRELOAD_ANNOTATION: "auto",
        keys.IN_PLACE_HANG_ANNOTATION: "auto",
        keys.PROGRESS_PATTERN_ANNOTATION: "auto",
        keys.SETTINGS_FROM_ANNOTATION: "fast=in-place-restart-agent,in-place-restart-hang-seconds,"
        "in-place-restart-progress-pattern,in-place-restart-preload namespace=lost-node-deadline",
    }
    for again in (await api.apply(body), await api.replace(body, stored)):
        assert again["spec"] == stored["spec"]
        assert again["metadata"]["annotations"] == stored["metadata"]["annotations"]
    body["metadata"]["annotations"][keys.IN_PLACE_RESTART_ANNOTATION] = "off"
    with pytest.raises(InvalidError, match="immutable"):
        await api.replace(body, again)


@pytest.mark.parametrize("way", ["apply", "merge", "replace"])
async def test_spares_come_on_top_once_when_a_manifest_is_sent_again(api, way):
    """Four pods and one of each spare: two Jobs of five pods, however often it is sent."""
    notes = {keys.IN_PLACE_PROCESSES_ANNOTATION: "1", keys.IN_PLACE_SPARES_ANNOTATION: "1"}
    notes[keys.IN_PLACE_SPARE_JOBS_ANNOTATION] = "1"
    body = manifest("supervisor", **notes)
    stored = await api.apply(body)
    (item,) = stored["spec"]["replicatedJobs"]
    job = job_of(stored)

    assert (item["replicas"], job["parallelism"], job["completions"]) == (2, 5, 5)
    for _ in range(2):
        again = await getattr(api, way)(body, stored)
        assert again["spec"] == stored["spec"]
        stored = again
    job_of(body).update(parallelism=6, completions=6)
    with pytest.raises(InvalidError, match="cannot change"):
        await getattr(api, way)(body, stored)
