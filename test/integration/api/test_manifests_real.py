"""The manifests of config/ on a real API server."""

import copy
import functools
import shutil
import subprocess

import pytest
import yaml

from hack.generate.kustomize import render
from support import patience
from support.cluster.install import CONFIG
from support.cluster.kubectl import Kubectl

pytestmark = pytest.mark.cluster

RESOURCES = {
    "ConfigMap": "namespaces/{namespace}/configmaps",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Deployment": "namespaces/{namespace}/deployments",
    "Job": "namespaces/{namespace}/jobs",
    "JobSet": "namespaces/{namespace}/jobsets",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Namespace": "namespaces",
    "NetworkPolicy": "namespaces/{namespace}/networkpolicies",
    "Pod": "namespaces/{namespace}/pods",
    "PodDisruptionBudget": "namespaces/{namespace}/poddisruptionbudgets",
    "Role": "namespaces/{namespace}/roles",
    "RoleBinding": "namespaces/{namespace}/rolebindings",
    "Secret": "namespaces/{namespace}/secrets",
    "Service": "namespaces/{namespace}/services",
    "ServiceAccount": "namespaces/{namespace}/serviceaccounts",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


def path_of(obj, namespace):
    group = obj["apiVersion"]
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = obj["metadata"].get("namespace", namespace)
    plural = RESOURCES[obj["kind"]].format(namespace=namespace)
    return f"{prefix}/{plural}/{obj['metadata']['name']}"


@functools.cache
def manifests(folder):
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in render(CONFIG / folder)}


@pytest.fixture(scope="module")
def system(api):
    """The manager's namespace, as in the manifests."""
    obj = manifests("default")["Namespace/jobset-system"]
    api.apply(path_of(obj, ""), obj).accepted()


@pytest.mark.parametrize("name", manifests("default"))
def test_installation_is_accepted(api, system, name):
    """Each object of the installation is accepted unchanged, without a warning."""
    obj = manifests("default")[name]
    answer = api.apply(path_of(obj, "default"), obj, dryRun="All")

    answer.accepted()
    assert answer.warnings == []


OTHER_NAMESPACE = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: training-control
resources:
- config/default
components:
- config/components/network-policy
- config/components/prometheus
- config/components/high-availability
"""


def test_installation_may_be_in_any_namespace(api, tmp_path):
    """One line of a kustomization moves it: webhooks, bindings and monitors follow."""
    shutil.copytree(CONFIG, tmp_path / "config")
    (tmp_path / "kustomization.yaml").write_text(OTHER_NAMESPACE)
    objects = Kubectl(tmp_path / "none", tmp_path).rendered(tmp_path)

    assert {"kind", "metadata"} <= set(objects[0])
    assert "jobset-system" not in yaml.safe_dump_all(objects)
    (space,) = [each for each in objects if each["kind"] == "Namespace"]
    api.apply(path_of(space, ""), space).accepted()
    for obj in objects:
        if obj["kind"] in RESOURCES:
            api.apply(path_of(obj, "default"), obj, dryRun="All").accepted()


COMPONENTS = sorted(path.parent.name for path in CONFIG.glob("components/*/*ization.yaml"))


@pytest.mark.parametrize("name", COMPONENTS)
def test_component_is_accepted(api, system, name):
    """The objects of a component are accepted without a warning, and select the manager's pods."""
    deployment = manifests("default")["Deployment/jobset-controller-manager"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    component = CONFIG / "components" / name
    for obj in render(CONFIG / "default", component):
        if obj == manifests("default").get(f"{obj['kind']}/{obj['metadata']['name']}"):
            continue
        spec = obj.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if obj["apiVersion"].startswith("cert-manager.io/") or obj["kind"] == "PrometheusRule":
            continue  # this cluster does not have these kinds, nor the next one
        if obj["kind"] == "ServiceMonitor":
            service = manifests("default")["Service/jobset-controller-manager-metrics-service"]
            assert selector["matchLabels"].items() <= service["metadata"]["labels"].items()
            assert spec["endpoints"][0]["port"] in {p["name"] for p in service["spec"]["ports"]}
            continue
        answer = api.apply(path_of(obj, "default"), obj, dryRun="All")
        answer.accepted()
        assert answer.warnings == []
        if selector:
            assert selector["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", manifests("samples"))
def test_sample_is_accepted(api, namespace, name):
    """Each sample is accepted unchanged."""
    obj = manifests("samples")[name]
    answer = api.apply(path_of(obj, namespace), obj, dryRun="All")

    answer.accepted()
    assert answer.warnings == []


def sample_jobs():
    return [
        (name, item)
        for name, obj in manifests("samples").items()
        if obj["kind"] == "JobSet"
        for item in obj["spec"]["replicatedJobs"]
    ]


@pytest.mark.parametrize(
    ("name", "replicated_job"), sample_jobs(), ids=[f"{n}/{j['name']}" for n, j in sample_jobs()]
)
def test_templates_of_samples_make_jobs_and_pods(api, namespace, name, replicated_job):
    """The Job API and the pod API accept the templates of the samples, including their rules."""
    template = replicated_job["template"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sample"},
        "spec": template["spec"],
    }
    pod = {**job, "apiVersion": "v1", "kind": "Pod", "spec": template["spec"]["template"]["spec"]}
    account_name = pod["spec"].get("serviceAccountName", "default")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account_name}}
    api.apply(path_of(account, namespace), account).accepted()

    for obj in (job, pod):
        made = api.apply(path_of(obj, namespace), obj, dryRun="All").accepted()
    kept = {
        key: made["spec"][key] for key in ("containers", "initContainers") if key in made["spec"]
    }
    for key, containers in kept.items():
        for wanted, container in zip(pod["spec"][key], containers, strict=True):
            rules = wanted.get("restartPolicyRules")
            assert rules == container.get("restartPolicyRules")


def test_in_place_sample_follows_the_rules_of_the_strategy():
    """The sample has what the strategy requires of a template."""
    spec = manifests("samples")["JobSet/in-place-restart"]["spec"]
    (item,) = spec["replicatedJobs"]
    job = item["template"]["spec"]
    pod = job["template"]["spec"]
    (agent,) = pod["initContainers"]
    (rule,) = agent["restartPolicyRules"]
    environment = {entry["name"]: entry for entry in agent["env"]}

    assert spec["failurePolicy"]["restartStrategy"] == "InPlaceRestart"
    assert job["backoffLimit"] == 2**31 - 1
    assert job["podReplacementPolicy"] == "Failed"
    assert job["completions"] == job["parallelism"]
    assert agent["restartPolicy"] == "Always"
    assert agent["startupProbe"]["httpGet"] == {"path": "/barrier-is-lifted?wait=25", "port": 8080}
    assert rule["action"] == "RestartAllContainers"
    assert {"NAMESPACE", "POD_NAME", "JOBSET_NAME"} <= environment.keys()
    assert rule["exitCodes"]["operator"] == "NotIn"
    exit_code = int(environment["RESTART_POD_IN_PLACE_EXIT_CODE"]["value"])
    assert exit_code not in rule["exitCodes"]["values"]


def test_manager_fits_the_restricted_profile(api, system):
    """A pod of the manager's Deployment is allowed in a namespace that enforces the profile."""
    obj = copy.deepcopy(manifests("default")["Deployment/jobset-controller-manager"])
    template = obj["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "manager", "namespace": "jobset-system"},
        "spec": template["spec"],
    }
    account = manifests("default")["ServiceAccount/jobset-controller-manager"]
    api.apply(path_of(account, ""), account).accepted()

    answer = api.apply(path_of(pod, ""), pod, dryRun="All")
    answer.accepted()
    assert answer.warnings == []
    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert api.apply(path_of(pod, ""), pod, dryRun="All").status == 403


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["default", "without-webhooks", "samples", "agent/account"])
def test_kustomize_builds_the_same_objects(folder):
    """Kubectl's kustomize renders the objects that this test folder and others install."""
    text = subprocess.run(
        ["kubectl", "kustomize", str(CONFIG / folder)],
        check=True,
        capture_output=True,
        text=True,
        timeout=patience.scaled(60),
    ).stdout

    built = {
        f"{item['kind']}/{item['metadata']['name']}": item for item in yaml.safe_load_all(text)
    }
    assert built == manifests(folder)
