"""A real API server that calls the real webhook server: defaults, pods, certificates."""

import asyncio
import base64
import itertools
import json
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy import aio
from jobsetpy.admission import WebhookSettings
from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap, Secret
from jobsetpy.errors import InvalidError
from jobsetpy.serving import x509
from jobsetpy.serving.webhook_certificates import MutatingConfiguration, secret_source
from support import patience
from support.admission.admission_kit import Api, job, jobset, served_certificate
from support.cluster.install import apply_object
from support.cluster.json_api import exchange, send
from support.cluster.manager_process import free_port, manager_process
from support.cluster.webhooks import webhook_flags, write_certificate
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]


@pytest.fixture
def api(shared_client, namespace):
    return Api(shared_client, namespace)


POD = ("spec", "replicatedJobs", 0, "template", "spec", "template")


async def test_defaults_are_stored(api):
    """The API server stores the webhook's defaults next to those of the CRD."""
    spec = (await api.create(jobset(failurePolicy={"rules": [{"action": "FailJobSet"}]})))["spec"]
    template = spec["replicatedJobs"][0]["template"]["spec"]
    assert template["completionMode"] == "Indexed"
    assert template["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["failurePolicy"] == {
        "restartStrategy": "Recreate",
        "rules": [{"name": "failurePolicyRule0", "action": "FailJobSet"}],
    }


CLAIM = {"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
MOUNT = {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]}  # fmt: skip


async def test_refusal_has_a_cause_for_each_problem(api):
    """422 Invalid, with one cause for each problem, through the API server."""
    with pytest.raises(InvalidError) as caught:
        await api.create(jobset(job(groupName="A"), managedBy="x"))
    status = json.loads(caught.value.body)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(
        'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "js" is invalid: ['
    )
    details = status["details"]
    found = (details["group"], details["kind"], details["name"])
    assert found == ("jobset.x-k8s.io", "JobSet", "js")
    assert [(cause["reason"], cause["field"]) for cause in details["causes"]] == [
        ("FieldValueInvalid", "spec.managedBy"),
        ("FieldValueInvalid", "spec.replicatedJobs[0].groupName"),
    ]


@pytest.mark.parametrize(
    ("mode", "counts", "words"),
    [
        ("Indexed", (4, 4), ""),
        ("Indexed", (4, 5), "completions must be equal to parallelism"),
        ("Indexed", (0, 0), "parallelism must be >= 1"),
        ("NonIndexed", (4, 4), "field is immutable"),
    ],
)
async def test_elastic_job_is_resized_when_its_numbers_agree(api, mode, counts, words):
    """Both numbers of Indexed Jobs change together."""
    spec = {"completionMode": mode, "parallelism": 2, "completions": 2}
    stored = await api.create(jobset(job(spec=spec)))
    template = stored["spec"]["replicatedJobs"][0]["template"]["spec"]
    changed = {**template, "parallelism": counts[0], "completions": counts[1]}
    path = POD[:-1]
    if not words:
        await api.change(stored, changed, *path)
        return
    with pytest.raises(InvalidError) as caught:
        await api.change(stored, changed, *path)
    assert words in caught.value.message


KEEP = {"retentionPolicy": {"whenDeleted": "Retain"}}
OWNER = {"apiVersion": "example.com/v1", "kind": "Workspace", "name": "ann", "uid": "u-1"}


@pytest.mark.parametrize(
    ("there", "policy", "fields"),
    [
        pytest.param({}, KEEP, [], id="stored form"),
        pytest.param({"spec": {**CLAIM["spec"], "storageClassName": "x"}}, KEEP, [], id="class"),
        pytest.param({"spec": {**CLAIM["spec"], "accessModes": ["ReadWriteMany"]}}, KEEP, ["template[0].spec"], id="another mode"),
        pytest.param({"metadata": {"name": "d-js", "ownerReferences": [OWNER]}}, KEEP, ["template[0].name"], id="owner"),
        pytest.param({}, {}, ["retentionPolicy.whenDeleted"], id="not retained"),
    ],
)  # fmt: skip
async def test_existing_claim_is_reused_when_it_agrees_with_its_template(
    api, shared_client, namespace, there, policy, fields
):
    """The API server has added ``volumeMode``; what the template states is compared."""
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    await send(
        shared_client, "POST", path, {**CLAIM, **kind, "metadata": {"name": "d-js"}, **there}
    )
    body = jobset(job(pod=MOUNT), volumeClaimPolicies=[{"templates": [CLAIM], **policy}])
    if not fields:
        await api.create(body)
        return
    with pytest.raises(InvalidError) as caught:
        await api.create(body)
    causes = json.loads(caught.value.body)["details"]["causes"]
    assert [each["field"] for each in causes] == [
        f"spec.volumeClaimPolicies[0].{f}" for f in fields
    ]
    assert ("Workspace ann" in causes[0]["message"]) is (
        "ownerReferences" in there.get("metadata", ())
    )


ZONE = "topology.kubernetes.io/zone"
INDEXES = itertools.count(2)


class Pods:
    """Pods of a JobSet without a Job controller or kubelet."""

    def __init__(self, client, namespace: str, owner: dict) -> None:
        self.client = client
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.owner = owner

    async def create(self, index: int, *, jobset_pod: bool = True, node: str = "") -> dict:
        labels = {
            keys.JOBSET_NAME: "js",
            keys.REPLICATED_JOB_NAME: "w",
            keys.JOB_INDEX: "0",
            keys.JOB_KEY: "key",
        }
        notes = {
            keys.JOBSET_NAME: "js",
            keys.COMPLETION_INDEX_ANNOTATION: str(index),
            keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: ZONE,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"js-w-0-{index}-abcde",
                "labels": labels if jobset_pod else {},
                "annotations": notes,
                "ownerReferences": [self.owner],
            },
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "automountServiceAccountToken": False,
                "schedulerName": "none",
                **({"nodeName": node} if node else {}),
            },
        }
        return await send(self.client, "POST", self.path, body)


async def pods_in(client, namespace: str) -> Pods:
    """Return the namespace's pods, once pods can be created.

    Their owner takes the place of the Job: it exists, so that the garbage collector keeps the pods,
    and no controller handles it.
    """
    account = {"metadata": {"name": "default", "namespace": namespace}}
    await apply_object(client, {"apiVersion": "v1", "kind": "ServiceAccount", **account})
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = await client.create(ConfigMap, namespace, {**owner, "metadata": {"name": "owner"}})
    reference = {**owner, "name": "owner", "uid": made.metadata.uid, "controller": True}
    return Pods(client, namespace, reference)


async def ungated_follower(pods: Pods) -> dict:
    """Create another follower, and return it if it has no scheduling gate."""
    follower = await pods.create(next(INDEXES))
    assert "schedulingGates" not in follower["spec"]
    return follower


async def test_follower_is_placed_with_its_leader(shared_client, namespace):
    """A leader gets its affinity terms; a follower is gated until the leader runs, then follows."""
    pods = await pods_in(shared_client, namespace)
    held = await pods.create(1)
    assert held["spec"]["schedulingGates"] == [{"name": keys.PLACEMENT_GATE}]
    node = f"{namespace}-node"
    metadata = {"name": node, "labels": {ZONE: "zone-a"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    await send(shared_client, "POST", "/api/v1/nodes", body)
    try:
        leader = await pods.create(0, node=node)
        assert leader["metadata"]["labels"][keys.PRIORITY_LABEL] == "0"
        affinity = leader["spec"]["affinity"]
        (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == ZONE
        (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        operators = [each["operator"] for each in term["labelSelector"]["matchExpressions"]]
        assert operators == ["Exists", "NotIn", "In"]
        # Repeated until the webhook's caches have the leader.
        follower = await eventually(lambda: ungated_follower(pods), 20, poll_s=0.1)
        assert follower["spec"]["nodeSelector"] == {ZONE: "zone-a"}
        assert "affinity" not in follower["spec"]
    finally:
        await exchange(shared_client, "DELETE", f"/api/v1/nodes/{node}")


async def test_pod_is_unchanged_when_it_has_no_label_of_a_jobset(shared_client, namespace):
    """The webhooks change pods of JobSets only."""
    pod = await (await pods_in(shared_client, namespace)).create(1, jobset_pod=False)
    assert "nodeSelector" not in pod["spec"]
    assert keys.PRIORITY_LABEL not in pod["metadata"].get("labels", {})


# ---- certificates


async def stored(client) -> dict[str, bytes]:
    secret = await client.get(Secret, "jobset-system", "jobset-webhook-server-cert")
    return {name: base64.b64decode(value) for name, value in (secret.data or {}).items()}


async def bundles(client) -> set[str]:
    name = "jobset-mutating-webhook-configuration"
    configuration = await client.get(MutatingConfiguration, "", name)
    return {one["clientConfig"].get("caBundle", "") for one in configuration["webhooks"]}


async def test_all_webhooks_trust_the_authority_of_the_secret(shared_client):
    """The Secret has all four parts."""
    data = await stored(shared_client)
    assert set(data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert data["ca.key"].startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    assert await bundles(shared_client) == {base64.b64encode(data["ca.crt"]).decode()}


async def test_certificates_are_replaced_without_a_restart(shared_client, webhooks, api):
    """Lost certificates, authority included, are replaced while requests are answered."""
    before, old = await stored(shared_client), await served_certificate(webhooks.port)
    lost = {"data": {"ca.key": None}}
    await shared_client.merge_patch(Secret, "jobset-system", "jobset-webhook-server-cert", lost)
    async with patience.timeout(20):
        number = 0
        while await served_certificate(webhooks.port) == old:
            # Requests are answered at any moment of the change.
            await api.create(jobset(name=f"js-{number}"))
            number += 1
            await asyncio.sleep(0.05)
    data = await stored(shared_client)
    assert data["ca.crt"].endswith(before["ca.crt"])  # both are trusted
    assert data["ca.crt"] != before["ca.crt"]
    assert await bundles(shared_client) == {base64.b64encode(data["ca.crt"]).decode()}
    assert (await api.create(jobset(name="after")))["metadata"]["uid"]


async def test_lost_bundle_is_injected_again(shared_client):
    """Applying the configurations again breaks them for a moment only."""
    good = await bundles(shared_client)
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    name = "jobset-mutating-webhook-configuration"
    await shared_client.json_patch(MutatingConfiguration, "", name, patch)

    async def restored() -> bool:
        return await bundles(shared_client) == good

    await eventually(restored, 10, poll_s=0.05)


async def own_settings(client, namespace: str) -> WebhookSettings:
    """Settings with an empty Secret and configurations without webhooks, all of them new."""
    kind = {"apiVersion": "v1", "kind": "Secret"}
    await apply_object(client, {**kind, "metadata": {"name": "s", "namespace": namespace}})
    for name in ("Mutating", "Validating"):
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{name}WebhookConfiguration",
            "metadata": {"name": f"{namespace}-{name[0].lower()}"},
        }
        await apply_object(client, configuration)
    return WebhookSettings(
        namespace=namespace,
        secret_name="s",
        mutating_configuration=f"{namespace}-m",
        validating_configuration=f"{namespace}-v",
    )


async def test_replicas_agree_on_a_certificate(shared_client, namespace):
    """Replicas that start at the same time with an empty Secret all serve one certificate."""
    settings = await own_settings(shared_client, namespace)
    sources = [secret_source(shared_client, settings, aio.LoopClock()) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for source in sources:
            tasks.create_task(source.renew())
    served = {await source.current() for source in sources}
    assert len(served) == 1
    assert None not in served


async def test_certificate_is_renewed_before_it_expires(shared_client, namespace):
    """A certificate that expires soon, or is not valid at the current time, is issued again."""
    settings = await own_settings(shared_client, namespace)
    clock = aio.ManualClock()
    source = secret_source(shared_client, settings, clock)
    assert await source.renew()
    first = await source.current()
    clock.advance((x509.SERVING_LIFETIME - x509.RENEW_BEFORE - timedelta(days=1)).total_seconds())
    assert not await source.renew()
    clock.advance(timedelta(days=2).total_seconds())
    assert await source.renew()
    assert await source.current() != first

    # A wall clock that is set back by years, and then right again: issued once each time.
    for year in (2023, 2026):
        there = aio.ManualClock(datetime(year, 12, 1, tzinfo=UTC))
        source = secret_source(shared_client, settings, there)
        assert await source.renew()
        assert not await source.renew()
        served = x509.lifetime((await source.current()).pair)
        assert served.begins < there.now() < served.ends


async def test_manager_process_serves_certificate_files(cluster, tmp_path):
    """The command serves the webhooks with certificates from files, and stops in order."""
    _, pair = write_certificate(tmp_path)
    port = free_port()
    flags = webhook_flags(port, tmp_path)
    async with manager_process(cluster.kubeconfig, tmp_path / "log", *flags) as process:
        shown = await served_certificate(port)
        assert ssl.DER_cert_to_PEM_cert(shown).encode() == pair.certificate
        assert await process.stop() == 0
