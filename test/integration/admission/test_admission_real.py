"""A real API server that calls the real webhook server: defaults, refusals, pods, certificates."""

import asyncio
import base64
import contextlib
import itertools
import json
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy import aio
from jobsetpy.admission import WebhookSettings
from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap, Secret
from jobsetpy.client import HttpRequest
from jobsetpy.errors import InvalidError, NotFoundError
from jobsetpy.serving import x509
from jobsetpy.serving.webhook_certificates import secret_source
from jobsetpy.serving.webhook_kinds import MutatingConfiguration
from support import patience
from support.admission.admission_kit import Api, job, jobset, served_certificate
from support.cluster.install import apply_object
from support.cluster.manager_process import ManagerProcess, free_port
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


async def test_defaults(api):
    """The API server stores what the webhook fills in, next to the definition's own defaults."""
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


async def test_given_values_stay(api):
    """Nothing a user wrote is changed, zero included."""
    body = jobset(
        job(replicas=0, spec={"completionMode": "NonIndexed"}, pod={"restartPolicy": "Never"})
    )
    (stored,) = (await api.create(body))["spec"]["replicatedJobs"]
    assert stored["replicas"] == 0
    assert stored["template"]["spec"]["completionMode"] == "NonIndexed"
    assert stored["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


CLAIM = {"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
MOUNT = {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]}  # fmt: skip

ACCEPTED = {
    "no jobs": jobset() | {"spec": {}},
    "depends": jobset(job("a"), job("b", dependsOn=[{"name": "a", "status": "Ready"}]), startupPolicy={"startupPolicyOrder": "AnyOrder"}),
    "zero": jobset(job(replicas=0)),
    "claim": jobset(job(pod=MOUNT), volumeClaimPolicies=[{"templates": [CLAIM]}]),
}  # fmt: skip

REFUSED = {
    "target": (jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}), "invalid replicatedJob name 'x'"),
    "replicas": (jobset(job(replicas=-1)), "replicas"),
    "first": (jobset(job(dependsOn=[{"name": "w", "status": "Ready"}])), "DependsOn can't be set"),
    "in-order": (jobset(job("a"), job("b", dependsOn=[{"name": "a", "status": "Ready"}]), startupPolicy={"startupPolicyOrder": "InOrder"}), "mutually exclusive"),
    "status": (jobset(job("a"), job("b", dependsOn=[{"name": "a", "status": "Failed"}])), "dependsOn[0].status"),
    "coordinator": (jobset(job(spec={"completions": 1}), name="n" * 60, coordinator={"replicatedJob": "w"}), "spec will lead to invalid label value"),
    "manager": (jobset(managedBy="x"), "spec.managedBy: Invalid value"),
    "namespace": (jobset(job(pod=MOUNT), volumeClaimPolicies=[{"templates": [{**CLAIM, "metadata": {"name": "d", "namespace": "x"}}]}]), "namespace cannot be set"),
    "in-place": (jobset(failurePolicy={"restartStrategy": "InPlaceRestart"}), "backoffLimit must be set to 2147483647"),
}  # fmt: skip


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
async def test_accepted(api, body):
    """What breaks no rule is stored."""
    assert (await api.create(body))["metadata"]["uid"]


@pytest.mark.parametrize(("body", "words"), REFUSED.values(), ids=REFUSED)
async def test_refused(api, body, words):
    """A broken rule is told to the user, with the webhook's name where it is the webhook's."""
    with pytest.raises(InvalidError) as caught:
        await api.create(body)
    assert caught.value.status == 422
    assert words in caught.value.message


async def test_form_of_a_refusal(api):
    """422 Invalid, with one cause for each problem, through the API server."""
    with pytest.raises(InvalidError) as caught:
        await api.create(jobset(job(groupName="A"), managedBy="x"))
    status = json.loads(caught.value.body)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(
        'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "js" is invalid: ['
    )
    details = status["details"]
    assert (details["group"], details["kind"], details["name"]) == (
        "jobset.x-k8s.io",
        "JobSet",
        "js",
    )
    assert [cause["field"] for cause in details["causes"]] == [
        "spec.managedBy",
        "spec.replicatedJobs[0].groupName",
    ]
    assert {cause["reason"] for cause in details["causes"]} == {"FieldValueInvalid"}


@pytest.mark.parametrize(
    ("path", "value", "suspended_only"),
    [
        ((*POD, "spec", "nodeSelector"), {"a": "b"}, True),
        ((*POD, "metadata"), {"annotations": {"a": "b"}}, True),
        ((*POD, "spec", "schedulingGates"), [{"name": "a.b/c"}], True),
        ((*POD, "spec", "hostname"), "h", False),
        ((*POD, "spec", "subdomain"), "s", False),
        (("spec", "managedBy"), "a.b/c", False),
        (("spec", "successPolicy"), {"operator": "Any"}, False),
    ],
)
async def test_changes(api, path, value, suspended_only):
    """Some fields change while suspended, others never; a refusal says so."""
    running = await api.create(jobset(name="running"))
    suspended = await api.create(jobset(name="suspended", suspend=True))
    with pytest.raises(InvalidError, match="immutable"):
        await api.change(running, value, *path)
    if suspended_only:
        await api.change(suspended, value, *path)
    else:
        with pytest.raises(InvalidError, match="immutable"):
            await api.change(suspended, value, *path)


async def test_suspend_and_resume(api):
    """Both are changes that are always allowed."""
    stored = await api.create(jobset())
    stored = await api.change(stored, True, "spec", "suspend")
    await api.change(stored, False, "spec", "suspend")


@pytest.mark.parametrize(
    ("mode", "counts", "words"),
    [
        ("Indexed", (4, 4), ""),
        ("Indexed", (4, 5), "completions must be equal to parallelism"),
        ("Indexed", (0, 0), "parallelism must be >= 1"),
        ("NonIndexed", (4, 4), "field is immutable"),
    ],
)
async def test_elastic(api, mode, counts, words):
    """Numbers of pods of Indexed Jobs change together."""
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


async def test_present_claim(api, shared_client, namespace):
    """A claim that exists is found, and compared."""
    body = {
        **CLAIM,
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "d-js"},
    }
    await shared_client.raw(
        HttpRequest(
            method="POST",
            path=f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
            body=json.dumps(body).encode(),
        )
    )
    with pytest.raises(InvalidError) as caught:
        await api.create(jobset(job(pod=MOUNT), volumeClaimPolicies=[{"templates": [CLAIM]}]))
    causes = json.loads(caught.value.body)["details"]["causes"]
    assert [cause["field"] for cause in causes] == [
        "spec.volumeClaimPolicies[0].template[0].spec",  # the live one has volumeMode and more
        "spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted",
    ]


ZONE = "topology.kubernetes.io/zone"
INDEXES = itertools.count(2)


class Pods:
    """Pods of a JobSet without a Job controller or kubelet."""

    def __init__(self, client, namespace: str, owner: dict) -> None:
        self.client = client
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.owner = owner

    async def create(self, index: int, *, jobset_pod: bool = True, node: str = "") -> dict:
        marks = {
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
                "labels": marks if jobset_pod else {},
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
        request = HttpRequest(method="POST", path=self.path, body=json.dumps(body).encode())
        return json.loads((await self.client.raw(request)).body)


async def make_node(client, name: str, labels: dict) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    body = json.dumps(body).encode()
    await client.raw(HttpRequest(method="POST", path="/api/v1/nodes", body=body))


async def pods_in(client, namespace: str) -> Pods:
    """Ready to create pods.

    Their owner stands in for the Job: it exists, or the garbage collector would take the pods,
    and no controller minds it.
    """
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    async def there() -> bool:
        with contextlib.suppress(NotFoundError):
            await client.raw(HttpRequest(method="GET", path=accounts))
            return True
        return False

    await eventually(there, 20, poll_s=0.1)
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = await client.create(ConfigMap, namespace, {**owner, "metadata": {"name": "owner"}})
    return Pods(
        client, namespace, {**owner, "name": "owner", "uid": made.metadata.uid, "controller": True}
    )


async def follows(pods: Pods) -> dict:
    """A new follower, once it is not held."""
    follower = await pods.create(next(INDEXES))
    assert "schedulingGates" not in follower["spec"]
    return follower


async def test_exclusive_pods(shared_client, namespace):
    """A leader gets its terms; a follower is held until the leader runs, or follows it at once."""
    pods = await pods_in(shared_client, namespace)
    held = await pods.create(1)
    assert held["spec"]["schedulingGates"] == [{"name": keys.PLACEMENT_GATE}]
    node = f"{namespace}-node"
    await make_node(shared_client, node, {ZONE: "zone-a"})
    try:
        leader = await pods.create(0, node=node)
        assert leader["metadata"]["labels"][keys.PRIORITY_LABEL] == "0"
        affinity = leader["spec"]["affinity"]
        (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == ZONE
        (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [each["operator"] for each in term["labelSelector"]["matchExpressions"]] == [
            "Exists",
            "NotIn",
            "In",
        ]
        # Again, until the webhook's caches show the leader.
        follower = await eventually(lambda: follows(pods), 20, poll_s=0.1)
        assert follower["spec"]["nodeSelector"] == {ZONE: "zone-a"}
        assert "affinity" not in follower["spec"]
    finally:
        await shared_client.raw(HttpRequest(method="DELETE", path=f"/api/v1/nodes/{node}"))


async def test_other_pods_are_no_business_of_the_webhooks(shared_client, namespace):
    """Without the label a pod is created untouched."""
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
    return {webhook.client_config.ca_bundle or "" for webhook in configuration.webhooks}


async def test_certificates_are_shared_and_injected(shared_client):
    """The Secret holds all four parts, and every webhook trusts its authority."""
    data = await stored(shared_client)
    assert set(data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert data["ca.key"].startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    assert await bundles(shared_client) == {base64.b64encode(data["ca.crt"]).decode()}


async def test_rotation_without_a_restart(shared_client, webhooks, api):
    """Lost certificates, authority included, are replaced while requests go on being answered."""
    before, old = await stored(shared_client), await served_certificate(webhooks.port)
    await shared_client.merge_patch(
        Secret,
        "jobset-system",
        "jobset-webhook-server-cert",
        {"data": {"ca.key": None}},
    )
    async with patience.timeout(20):
        number = 0
        while await served_certificate(webhooks.port) == old:
            # A request at any moment of the change is answered.
            await api.create(jobset(name=f"js-{number}"))
            number += 1
            await asyncio.sleep(0.05)
    data = await stored(shared_client)
    assert data["ca.crt"].endswith(before["ca.crt"])  # both are trusted
    assert data["ca.crt"] != before["ca.crt"]
    assert await bundles(shared_client) == {base64.b64encode(data["ca.crt"]).decode()}
    assert (await api.create(jobset(name="after")))["metadata"]["uid"]


async def test_a_lost_bundle_is_injected_again(shared_client):
    """Someone who applies the configurations anew breaks them for a moment only."""
    good = await bundles(shared_client)
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    name = "jobset-mutating-webhook-configuration"
    await shared_client.json_patch(MutatingConfiguration, "", name, patch)

    async def healed() -> bool:
        return await bundles(shared_client) == good

    await eventually(healed, 10, poll_s=0.05)


async def test_replicas_agree(shared_client, namespace):
    """Of replicas that start at the same time with an empty Secret, all serve one certificate."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
    }
    await apply_object(shared_client, secret)
    settings = WebhookSettings(
        namespace=namespace,
        secret_name="s",
        mutating_configuration=f"{namespace}-m",
        validating_configuration=f"{namespace}-v",
    )
    for kind, suffix in (("MutatingWebhookConfiguration", "m"), ("ValidatingWebhookConfiguration", "v")):  # fmt: skip
        metadata = {"name": f"{namespace}-{suffix}"}
        document = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": metadata,
        }
        await apply_object(shared_client, document)
    sources = [secret_source(shared_client, settings, aio.LoopClock()) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for source in sources:
            tasks.create_task(source.renew())
    served = {await source.current() for source in sources}
    assert len(served) == 1
    assert None not in served


async def test_renewal_before_the_end(shared_client, namespace):
    """A certificate that ends soon, or is out of its time, is issued anew."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
    }
    await apply_object(shared_client, secret)
    names = (f"{namespace}-m", f"{namespace}-v")
    for kind, name in zip(("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"), names, strict=True):  # fmt: skip
        document = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
        }
        await apply_object(shared_client, document)
    settings = WebhookSettings(
        namespace=namespace,
        secret_name="s",
        mutating_configuration=names[0],
        validating_configuration=names[1],
    )
    clock = aio.ManualClock()
    source = secret_source(shared_client, settings, clock)
    assert await source.renew()
    first = await source.current()
    clock.advance((x509.SERVING_LIFETIME - x509.RENEW_BEFORE - timedelta(days=1)).total_seconds())
    assert not await source.renew()
    clock.advance(timedelta(days=2).total_seconds())
    assert await source.renew()
    assert await source.current() != first

    # A wall clock that is set back by years, and right again: made anew each time, and once.
    for year in (2023, 2026):
        there = aio.ManualClock(datetime(year, 12, 1, tzinfo=UTC))
        source = secret_source(shared_client, settings, there)
        assert await source.renew()
        assert not await source.renew()
        served = x509.lifetime((await source.current()).pair)
        assert served.begins < there.now() < served.ends


async def test_manager_process_with_files(cluster, tmp_path):
    """The command line serves the webhooks from certificate files, and stops in order."""
    authority = x509.new_authority(datetime.now(UTC))
    pair = x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    port = free_port()
    process = ManagerProcess(
        cluster.kubeconfig,
        tmp_path / "log",
        "--webhooks",
        f"--webhook-bind-address=127.0.0.1:{port}",
        f"--webhook-cert-dir={tmp_path}",
    )
    await process.start()
    try:
        shown = await served_certificate(port)
        assert ssl.DER_cert_to_PEM_cert(shown).encode() == pair.certificate
    finally:
        assert await process.stop() == 0
