"""The installation as users get it: the manager in a pod, its webhooks behind a Service.

``node_client`` installs ``config/default`` with the image built here.
"""

import base64
import json
import uuid
from datetime import UTC, datetime

import pytest

from hack.generate.kustomize import render
from jobsetpy.api.core import Namespace, Pod
from jobsetpy.errors import ApiError, InvalidError, NotFoundError
from jobsetpy.serving import x509
from support import patience
from support.cluster.install import CONFIG, apply_object, rendered
from support.cluster.json_api import exchange, send
from support.cluster.objects import RESTRICTED_CONTAINER, RESTRICTED_POD, jobset, replicated_job
from support.patience import eventually
from support.restarts.scenario import (
    SHELL_IMAGE,
    WORKER_SCRIPT,
    gang_jobset,
    kill_worker,
    manager_ready,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

SYSTEM = "jobset-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/jobset-controller-manager"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
ENFORCE = {"pod-security.kubernetes.io/enforce": "restricted"}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
TOPOLOGY = "kubernetes.io/hostname"


class Raw:
    """Requests with plain JSON."""

    def __init__(self, client) -> None:
        self.client = client

    async def text(self, path: str) -> str:
        return (await exchange(self.client, "GET", path)).body.decode()

    async def get(self, path: str, **query: str):
        """Return the object, or ``None`` if it does not exist."""
        try:
            return await send(self.client, "GET", path, **query)
        except NotFoundError:
            return None

    async def post(self, path: str, body: dict, **query: str) -> dict:
        return await send(self.client, "POST", path, body, **query)

    async def delete(self, path: str, **query: str) -> None:
        await exchange(self.client, "DELETE", path, **query)


@pytest.fixture
async def raw(node_client):
    return Raw(node_client)


@pytest.fixture
async def strict(node_client, raw):
    """A namespace that enforces the restricted profile."""
    name = f"strict-{uuid.uuid4().hex[:6]}"
    body = {"metadata": {"name": name, "labels": ENFORCE}, "kind": "Namespace", "apiVersion": "v1"}
    await node_client.create(Namespace, "", body)
    yield name
    await raw.delete(f"/api/v1/namespaces/{name}")


def restricted(jobset: dict) -> dict:
    """Add the security contexts that the restricted profile requires."""
    for job in jobset["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        pod["securityContext"] = RESTRICTED_POD
        for container in pod["containers"]:
            container["securityContext"] = RESTRICTED_CONTAINER
    return jobset


def sleepers(name: str, pods: int, **annotations: str) -> dict:
    """A minimal JobSet of one Job."""
    container = {"name": "c", "image": SHELL_IMAGE, "command": ["sh", "-c", WORKER_SCRIPT]}
    job = replicated_job({"containers": [container]}, pods)
    return restricted(jobset(name, job, annotations=annotations))


async def running_pods(raw: Raw, namespace: str, jobset: str, number: int) -> list[dict]:
    """Return the JobSet's pods in the order of their completion indexes, once all of them run."""
    selector = f"jobset.sigs.k8s.io/jobset-name={jobset}"

    async def running():
        path = f"/api/v1/namespaces/{namespace}/pods"
        items = (await raw.get(path, labelSelector=selector))["items"]
        return (
            len(items) == number and all(p["status"]["phase"] == "Running" for p in items) and items
        )

    found = await eventually(running, 60, poll_s=0.2)
    return sorted(
        found, key=lambda pod: pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
    )


async def test_webhooks_trust_the_certificate_that_the_manager_has_stored(raw):
    """The CA bundles of both configurations are the authority of the Secret."""
    secret = await raw.get(f"/api/v1/namespaces/{SYSTEM}/secrets/jobset-webhook-server-cert")
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    bundles = []
    for kind in ("mutating", "validating"):
        name = f"{kind}webhookconfigurations/jobset-{kind}-webhook-configuration"
        found = await raw.get(f"{WEBHOOKS}/{name}")
        bundles += [webhook["clientConfig"]["caBundle"] for webhook in found["webhooks"]]
    assert bundles == [secret["data"]["ca.crt"]] * 4


async def test_jobsets_are_defaulted_validated_and_placed(raw, strict):
    """The API server calls the manager's pod for JobSets and their pods."""
    jobsets = f"{GROUP}/namespaces/{strict}/jobsets"
    wrong = sleepers("wrong", 1)
    wrong["spec"]["managedBy"] = "x"
    with pytest.raises(InvalidError) as caught:
        await raw.post(jobsets, wrong)
    (cause,) = json.loads(caught.value.body)["details"]["causes"]
    assert cause["field"] == "spec.managedBy"

    stored = await raw.post(jobsets, sleepers("placed", 2, **{EXCLUSIVE: TOPOLOGY}))
    (job,) = stored["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["completionMode"] == "Indexed"
    assert stored["spec"]["network"]["enableDNSHostnames"] is True

    leader, follower = await running_pods(raw, strict, "placed", 2)
    affinity = leader["spec"]["affinity"]
    for kind in ("podAffinity", "podAntiAffinity"):
        (term,) = affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == TOPOLOGY
    assert follower["spec"]["nodeSelector"][TOPOLOGY] == leader["spec"]["nodeName"]
    await raw.delete(f"{jobsets}/placed")


async def test_restart_in_place_works_under_the_restricted_profile(node_client, raw, strict):
    """Agent and workers fit the profile, and the deployed manager has all rights that it needs."""
    for document in render(CONFIG / "agent" / "account"):
        document["metadata"]["namespace"] = strict
        await apply_object(node_client, document)
    jobsets = f"{GROUP}/namespaces/{strict}/jobsets"
    name = strict.replace("strict", "gang")  # a host name that no other pod on this machine has
    await raw.post(jobsets, restricted(gang_jobset(name, 2)))

    async def synced(epoch: int) -> bool:
        status = (await raw.get(f"{jobsets}/{name}")).get("status", {})
        return status.get("syncedEpoch") == epoch

    await eventually(lambda: synced(1), 60, poll_s=0.2)
    before = await running_pods(raw, strict, name, 2)
    await kill_worker(await node_client.get(Pod, strict, before[0]["metadata"]["name"]))
    await eventually(lambda: synced(2), 60, poll_s=0.2)
    after = await running_pods(raw, strict, name, 2)
    assert [p["metadata"]["uid"] for p in after] == [p["metadata"]["uid"] for p in before]
    await raw.delete(f"{jobsets}/{name}")

    (manager,) = (await raw.get(f"/api/v1/namespaces/{SYSTEM}/pods"))["items"]
    log = await raw.text(f"/api/v1/namespaces/{SYSTEM}/pods/{manager['metadata']['name']}/log")
    lines = [json.loads(line) for line in log.splitlines()]
    assert any(line["msg"] == "serving with a new certificate" for line in lines)
    assert [line for line in lines if line["level"] == "error"] == []
    assert "forbidden" not in log.lower()


async def test_jobsets_run_on_and_can_be_deleted_when_the_manager_is_stopped(
    node_client, raw, strict
):
    """New JobSets are refused, pods without a JobSet are not."""
    jobsets = f"{GROUP}/namespaces/{strict}/jobsets"
    await raw.post(jobsets, sleepers("orphan", 1))
    (pod,) = await running_pods(raw, strict, "orphan", 1)
    await send(node_client, "PATCH", DEPLOYMENT, {"spec": {"replicas": 0}})

    async def stopped() -> bool:
        return (await raw.get(f"/api/v1/namespaces/{SYSTEM}/pods"))["items"] == []

    await eventually(stopped, 60, poll_s=0.2)

    with pytest.raises(ApiError, match="failed calling webhook"):
        timeout_s = patience.scaled(2)
        await exchange(node_client, "POST", jobsets, sleepers("unseen", 1), timeout_s=timeout_s)
    ordinary = {**pod, "metadata": {"name": "ordinary"}}
    assert await raw.post(f"/api/v1/namespaces/{strict}/pods", ordinary, dryRun="All")
    await raw.delete(f"{jobsets}/orphan", propagationPolicy="Foreground")

    async def gone() -> bool:
        return await raw.get(f"{jobsets}/orphan") is None

    await eventually(gone, 60, poll_s=0.2)


def issued_by_others() -> dict:
    """The Secret that cert-manager would create, which is not in this cluster."""
    now = datetime.now(UTC)
    authority = x509.new_authority(now)
    name = f"jobset-webhook-service.{SYSTEM}.svc"
    pair = x509.new_serving(authority, [name], now)
    data = {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "jobset-webhook-serving-cert", "namespace": SYSTEM},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


async def test_manager_serves_mounted_certificates_of_others(node_client, raw, strict):
    """With the component for cert-manager the manager issues no certificate of its own."""
    secret = issued_by_others()
    await apply_object(node_client, secret)
    documents = rendered("default", "cert-manager")
    for document in documents:
        for webhook in document.get("webhooks", ()):  # as cert-manager's injector does
            webhook["clientConfig"]["caBundle"] = secret["data"]["ca.crt"]
        if not document["apiVersion"].startswith("cert-manager.io/"):
            await apply_object(node_client, document)
    await manager_ready(node_client)
    for document in documents:  # as the injector does: the old manager had restored its own
        if document["kind"].endswith("WebhookConfiguration"):
            await apply_object(node_client, document)
    stored = await raw.post(f"{GROUP}/namespaces/{strict}/jobsets", sleepers("filed", 1))
    assert stored["spec"]["network"]["enableDNSHostnames"] is True
    path = f"{WEBHOOKS}/mutatingwebhookconfigurations/jobset-mutating-webhook-configuration"
    (bundle,) = {w["clientConfig"]["caBundle"] for w in (await raw.get(path))["webhooks"]}
    assert bundle == secret["data"]["ca.crt"]
