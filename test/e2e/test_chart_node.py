"""The chart on a real node, by Helm: namespace and name of its own, restarts in place, removal."""

import json

import pytest

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Progress
from hack.generate.kustomize import render
from support import patience
from support.cluster.chart_kit import CHART, Helm, Kube
from support.cluster.install import CONFIG
from support.cluster.objects import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    jobset,
    replicated_job,
    shell_worker,
)
from support.restarts.scenario import WORKER_SCRIPT

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT_S = 90.0
RELEASE, SPACE, TEAM = "gangs", "training-control", "charted"
SELECTOR = f"app.kubernetes.io/instance={RELEASE}"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{TEAM}/jobsets"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
IMAGE = {"repository": "jobsetpy-manager", "tag": "dev"}
VALUES = {
    "image": {"registry": "localhost", **IMAGE},
    "agent": {"image": {"repository": "jobsetpy-agent"}, "namespaces": [TEAM, "nowhere"]},
    "controller": {"replicas": 2, "resources": {"requests": {"cpu": "50m"}}},
}
LABELLED = (
    f"/apis/apps/v1/namespaces/{SPACE}/deployments",
    *(f"/api/v1/namespaces/{SPACE}/{kind}" for kind in ("configmaps", "secrets", "services")),
    *(f"/api/v1/namespaces/{each}/serviceaccounts" for each in (SPACE, TEAM)),
    *(f"{RBAC}/namespaces/{each}/roles" for each in (SPACE, TEAM)),
    *(f"{RBAC}/{kind}" for kind in ("clusterroles", "clusterrolebindings")),
    *(f"{WEBHOOKS}/{kind}webhookconfigurations" for kind in ("mutating", "validating")),
    f"{WEBHOOKS}/validatingadmissionpolicies",
)


@pytest.fixture
def kube(node_cluster):
    """The cluster without a manager, with two namespaces that enforce the restricted profile."""
    kube = Kube(node_cluster.kubeconfig)
    for document in reversed(render(CONFIG / "default")):  # other tests may have installed it
        if document["kind"] != "CustomResourceDefinition":
            kube.delete(document)
    patience.wait_for(lambda: kube.get("/api/v1/namespaces/jobset-system") is None, LIMIT_S)
    for name in (SPACE, TEAM):
        metadata = {"name": name, "labels": RESTRICTED}
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield kube
    for name in (SPACE, TEAM):
        kube.send("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def helm(node_cluster, tmp_path):
    """Helm; what it installed is removed in the end."""
    program = Binaries.find(["helm"], Progress())["helm"]
    helm = Helm(program, tmp_path, node_cluster.kubeconfig)
    yield helm
    helm.run("uninstall", RELEASE, "--namespace", SPACE, "--ignore-not-found")


def gang() -> dict:
    """Two workers that fit the restricted profile; the webhook adds the agent."""
    worker = shell_worker(WORKER_SCRIPT, securityContext=RESTRICTED_CONTAINER)
    pod = {"securityContext": RESTRICTED_POD, "containers": [worker]}
    policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}
    notes = {"jobset.sigs.k8s.io/in-place-restart-agent": "supervisor"}
    return jobset("gang", replicated_job(pod, 2), annotations=notes, failurePolicy=policy)


def test_chart_runs_restarts_in_place_and_leaves_only_jobsets_when_it_is_removed(kube, helm):
    """Certificates, agents and rights work with the chosen names."""
    where = ("--namespace", SPACE)
    # The CRD may exist already, from config/default.
    more = ("--force-conflicts", "--wait", f"--timeout={patience.scaled(LIMIT_S):.0f}s")
    notes = helm.ok("install", RELEASE, str(CHART), *where, *more, values=VALUES)
    assert "do not exist, and got no account for agents: nowhere." in notes

    secret = kube.get(f"/api/v1/namespaces/{SPACE}/secrets/gangs-jobset-webhook-server-cert")
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    answer = kube.send("POST", JOBSETS, gang())
    assert answer.status == 201, answer.message
    assert answer.body["spec"]["network"]["enableDNSHostnames"] is True  # set by the webhook

    def synced():
        return kube.get(f"{JOBSETS}/gang").get("status", {}).get("syncedEpoch") == 1

    # Both agents have reported, with the account that the chart creates.
    patience.wait_for(synced, LIMIT_S)
    pods = kube.get(f"/api/v1/namespaces/{TEAM}/pods")["items"]
    (agent,) = {pod["spec"]["initContainers"][0]["image"] for pod in pods}
    assert agent == "localhost/jobsetpy-agent:dev"

    managers = kube.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]
    assert len(managers) == 2
    for manager in managers:
        log = kube.text(f"/api/v1/namespaces/{SPACE}/pods/{manager['metadata']['name']}/log")
        lines = [json.loads(line) for line in log.splitlines()]
        assert [line for line in lines if line["level"] == "error"] == []
        assert "forbidden" not in log.lower()

    helm.ok("uninstall", RELEASE, *where)

    def gone():
        return not [
            (path, item["metadata"]["name"])
            for path in LABELLED
            for item in kube.get(f"{path}?labelSelector={SELECTOR}")["items"]
        ]

    patience.wait_for(gone, LIMIT_S)
    phases = {
        pod["status"]["phase"] for pod in kube.get(f"/api/v1/namespaces/{TEAM}/pods")["items"]
    }
    assert phases == {"Running"}  # the JobSet continues without a manager
    answer = kube.send("DELETE", f"{JOBSETS}/gang")
    assert answer.status == 200
