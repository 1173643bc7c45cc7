"""The manifests of the coscheduler on a real API server."""

import copy
import functools
import json
import shutil
import subprocess

import pytest
import yaml

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Shown
from hack.generate.kustomize import render
from jobsetpy.app import main
from jobsetpy.app.config import flags
from jobsetpy.app.config.settings import COSCHEDULER
from support import patience
from support.cluster.install import CONFIG
from support.coscheduling.coscheduler_process import ExtenderSite, shipped

pytestmark = pytest.mark.cluster

FOLDER = CONFIG / "coscheduler"
INSTALLATIONS = ("cluster-scheduler", "marked-pods", "second-scheduler")
COMPONENTS = ("cert-manager", "network-policy", "prometheus")
FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
PLURALS = {"NetworkPolicy": "networkpolicies"}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "Namespace"}


def path_of(obj):
    """Return the path of an object."""
    group, kind = obj["apiVersion"], obj["kind"]
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    middle = "" if kind in CLUSTER_WIDE else f"/namespaces/{obj['metadata']['namespace']}"
    return f"{prefix}{middle}/{plural}/{obj['metadata']['name']}"


@functools.cache
def installed(name, *components):
    """Return the objects by kind and name."""
    found = render(FOLDER / name, *(FOLDER / each for each in components))
    objects = {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in found}
    assert len(objects) == len(found)
    return objects


@pytest.fixture(scope="module")
def system(api):
    """The namespace that config/default makes, which enforces the restricted profile."""
    (obj,) = yaml.safe_load_all((CONFIG / "manager" / "namespace.yaml").read_text())
    api.apply(path_of(obj), obj).accepted()


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_installation_is_accepted(api, system, name):
    """Each object is accepted unchanged and without a warning; pods fit the restricted profile."""
    objects = installed(name)
    for obj in objects.values():
        if obj["kind"] == "ServiceAccount":
            api.apply(path_of(obj), obj).accepted()
    for key, obj in objects.items():
        answer = api.apply(path_of(obj), obj, dryRun="All")
        answer.accepted()
        assert answer.warnings == [], key
        if obj["kind"] == "Deployment":
            template = copy.deepcopy(obj["spec"]["template"])
            metadata = template["metadata"] | {"name": "x", "namespace": "jobset-system"}
            pod = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            answer = api.apply(path_of(pod), pod, dryRun="All")
            answer.accepted()
            assert answer.warnings == [], key


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("name", INSTALLATIONS)
def test_component_is_accepted(api, system, name, component):
    """The objects of a component are accepted, and select objects of the installation."""
    before, after = installed(name), installed(name, component)
    for key, obj in after.items():
        if obj == before.get(key) or obj["apiVersion"].startswith(FOREIGN):
            continue
        answer = api.apply(path_of(obj), obj, dryRun="All")
        answer.accepted()
        assert answer.warnings == [], key
    if component == "prometheus":
        monitor = after["ServiceMonitor/jobset-coscheduler-metrics-monitor"]["spec"]
        service = after["Service/jobset-coscheduler-metrics-service"]
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert monitor["endpoints"][0]["port"] in ports
        extender = after["Service/jobset-coscheduler"]["metadata"]["labels"].items()
        assert not monitor["selector"]["matchLabels"].items() <= extender
    if component == "network-policy":
        policy = after["NetworkPolicy/jobset-coscheduler"]["spec"]
        pods = after["Deployment/jobset-coscheduler"]["spec"]["template"]
        assert policy["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
        ports = {port["name"] for port in pods["spec"]["containers"][0]["ports"]}
        assert {rule["ports"][0]["port"] for rule in policy["ingress"]} <= ports


def test_services_select_the_pods_of_the_coscheduler():
    """And none of the second scheduler's pods."""
    objects = installed("second-scheduler")
    template = objects["Deployment/jobset-coscheduler"]["spec"]["template"]["metadata"]["labels"]
    other = objects["Deployment/jobset-coscheduler-scheduler"]["spec"]["template"]["metadata"]
    for name in ("jobset-coscheduler", "jobset-coscheduler-metrics-service"):
        selector = objects[f"Service/{name}"]["spec"]["selector"].items()
        assert selector <= template.items()
        assert not selector <= other["labels"].items()


def test_flags_of_the_manifests_exist():
    """A manifest with an unknown flag would never start."""
    for name in INSTALLATIONS:
        for components in ((), ("cert-manager",)):
            deployment = installed(name, *components)["Deployment/jobset-coscheduler"]
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            flags.read(main._parser().parse_args(container["args"]), COSCHEDULER)


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_scheduler_accepts_its_configuration(cluster, name, tmp_path):
    """The real scheduler reads each one strictly, and understands what was meant."""
    if cluster.is_existing:
        pytest.skip("there is no scheduler of our own")
    config = shipped(name)
    config["clientConnection"]["kubeconfig"] = str(cluster.folder / "scheduler.kubeconfig")
    config["extenders"] = [ExtenderSite(tmp_path).extender(name)]
    (tmp_path / "in.yaml").write_text(json.dumps(config))
    program = Binaries.find(["kube-scheduler"], Shown())["kube-scheduler"]
    out = tmp_path / "out.yaml"
    command = [program, f"--config={tmp_path / 'in.yaml'}", f"--write-config-to={out}"]
    command += ["--authentication-skip-lookup", "--secure-port=0"]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=patience.scaled(60)
    )
    assert ended.returncode == 0, ended.stderr
    understood = yaml.safe_load(out.read_text())
    (given,), (extender,) = config["extenders"], understood["extenders"]
    assert not extender.get("ignorable")  # omitted if it is false
    assert extender.pop("httpTimeout") == "15m0s"
    wanted = {key: given[key] for key in given if key not in {"ignorable", "httpTimeout"}}
    assert {key: extender[key] for key in wanted} == wanted
    assert understood["podMaxBackoffSeconds"] == 10


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", INSTALLATIONS)
def test_kustomize_builds_the_same_coscheduler(name):
    """Kubectl's kustomize renders the objects that these tests install."""
    command = ["kubectl", "kustomize", str(FOLDER / name)]
    text = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=patience.scaled(60)
    ).stdout
    built = yaml.safe_load_all(text)
    assert {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in built} == installed(name)
