"""The chart with default values renders config/default; all differences are listed here."""

import argparse
import copy

import attrs
import pytest
import yaml

from hack.generate.kustomize import render
from jobsetpy import __version__
from jobsetpy.app.config import flags as app_flags
from jobsetpy.app.config.configuration import without_effect
from jobsetpy.app.config.settings import COSCHEDULER, MANAGER, SETTINGS, Configuration
from jobsetpy.app.main import _parser
from support.cluster.chart_kit import CHART, REPOSITORY

pytestmark = pytest.mark.cluster  # for Helm, which is installed with the cluster's programs

CONFIG = REPOSITORY / "config"
CHART_NAMES = {
    # the chart's name: the name in config/
    "jobset-agent": "jobset-agent",
    "jobset-controller": "jobset-controller-manager",
    "jobset-jobset-editor-role": "jobset-editor-role",
    "jobset-jobset-viewer-role": "jobset-viewer-role",
    "jobset-metrics-service": "jobset-controller-manager-metrics-service",
}
"""Objects with different names in today's chart and today's kustomization."""
ROLE_NAMES = {"jobset-controller": "jobset-manager-role"}
BINDING_NAMES = {"jobset-controller": "jobset-manager-rolebinding"}
WEBHOOK_NAMES = {
    "mutate-jobset-x-k8s-io-v1alpha2-jobset.x-k8s.io": "mjobset.kb.io",
    "mutate--v1-pod.x-k8s.io": "mpod.kb.io",
    "validate-jobset-x-k8s-io-v1alpha2-jobset.x-k8s.io": "vjobset.kb.io",
    "validate--v1-pod.x-k8s.io": "vpod.kb.io",
}
ONLY_IN_CONFIG = {
    ("Namespace", "jobset-system"),  # created by Helm's --create-namespace
    ("CustomResourceDefinition", "jobsets.jobset.x-k8s.io"),  # in the chart's folder crds/
    ("ConfigMap", "jobset-manager-config"),  # compared by the configuration that the manager reads
}
ONLY_IN_CHART = {("ConfigMap", "jobset-controller-config")}
AGENTS = ("inPlaceRestart.agentImage", "groupScheduling.agentImage")
OWN_LABELS = ("app.kubernetes.io/", "helm.sh/chart")
PORT_NAMES = {"webhook": "webhook-server"}


def without_own_labels(node):
    """Return the node without labels that name the installer, in selectors as well."""
    if isinstance(node, dict):
        return {
            key: without_own_labels(value)
            for key, value in node.items()
            if not key.startswith(OWN_LABELS)
        }
    return [without_own_labels(item) for item in node] if isinstance(node, list) else node


def comparable(document):
    """Return the object without the labels of its installation."""
    document = without_own_labels(copy.deepcopy(document))
    if not document["metadata"].get("labels", True):
        del document["metadata"]["labels"]
    return document


def as_in_config(document):
    """Return an object of the chart with the names of config/."""
    document = comparable(document)
    kind = document["kind"]
    names = CHART_NAMES
    if kind == "ClusterRole":
        names = names | ROLE_NAMES
    if kind == "ClusterRoleBinding":
        names = names | BINDING_NAMES
    name = document["metadata"]["name"]
    document["metadata"]["name"] = names.get(name, name)
    if role := document.get("roleRef"):
        role["name"] = ROLE_NAMES.get(role["name"], role["name"])
    for subject in document.get("subjects", ()):
        subject["name"] = CHART_NAMES.get(subject["name"], subject["name"])
    for webhook in document.get("webhooks", ()):
        webhook["name"] = WEBHOOK_NAMES.get(webhook["name"], webhook["name"])
    if kind == "Service":
        for port in document["spec"]["ports"]:
            # config/ has the number, the chart the port's name, so that the number can be chosen
            port["targetPort"] = {"webhook": 9443}.get(port["targetPort"], port["targetPort"])
        document["metadata"]["labels"] = document["metadata"].get("labels", {})
    return document


@pytest.fixture(scope="module")
def chart(offline):
    """Return the objects of the chart, by kind and the chart's name."""
    return offline.render()


@pytest.fixture(scope="module")
def config():
    """Return the objects of config/default, by kind and name."""
    return {(item["kind"], item["metadata"]["name"]): item for item in render(CONFIG / "default")}


def test_objects_are_the_same(chart, config):
    """All objects are equal except the Deployment, which is compared below."""
    renamed = {}
    for key, document in chart.items():
        if key not in ONLY_IN_CHART and document["kind"] != "Deployment":
            changed = as_in_config(document)
            renamed[changed["kind"], changed["metadata"]["name"]] = changed
    expected = {
        key: comparable(document)
        for key, document in config.items()
        if key not in ONLY_IN_CONFIG and document["kind"] != "Deployment"
    }
    for document in expected.values():
        if document["kind"] == "Service":
            document["metadata"].setdefault("labels", {})
    assert sorted(renamed) == sorted(expected)
    for key, document in expected.items():
        assert renamed[key] == document, key
    assert {kind for kind, _ in chart} >= {"Deployment", "ConfigMap"}


def test_crd_is_the_same(config):
    """Helm installs the files of crds/ unchanged."""
    (path,) = (CHART / "crds").iterdir()
    definition = config["CustomResourceDefinition", "jobsets.jobset.x-k8s.io"]
    assert comparable(yaml.safe_load(path.read_text())) == comparable(definition)


def test_deployment_is_the_same(chart, config):
    """Only the way to pass the configuration and the CPU limit differ."""
    made = as_in_config(chart["Deployment", "jobset-controller"])
    expected = comparable(config["Deployment", "jobset-controller-manager"])
    template, other = (each["spec"]["template"] for each in (made, expected))
    annotations = template["metadata"]["annotations"]
    assert annotations.pop("jobset.x-k8s.io/config-hash")
    assert annotations.pop("kubectl.kubernetes.io/default-container") == "controller"
    assert other["metadata"]["annotations"].pop("kubectl.kubernetes.io/default-container")

    pod = template["spec"]
    volume = {"name": "config", "configMap": {"name": "jobset-controller-config"}}
    assert pod.pop("volumes") == [volume]
    volume = {"name": "manager-config", "configMap": {"name": "jobset-manager-config"}}
    assert other["spec"].pop("volumes") == [volume]
    pod["serviceAccountName"] = CHART_NAMES[pod["serviceAccountName"]]
    (container,), (kept,) = pod["containers"], other["spec"]["containers"]
    assert container.pop("name") == "controller"
    assert container.pop("image") == f"jobsetpy-manager:{__version__}"  # the chart's appVersion
    assert container["resources"]["limits"].pop("cpu") == "2"
    (mount,), (expected_mount,) = container.pop("volumeMounts"), kept.pop("volumeMounts")
    assert mount | {"name": "manager-config"} == expected_mount
    assert [kept.pop("name"), kept.pop("image")] == ["manager", "jobsetpy-manager:latest"]
    for each in (container, kept):
        for part in ("args", "env"):
            each.pop(part, None)
        each["ports"] = {
            PORT_NAMES.get(port["name"], port["name"]): port["containerPort"]
            for port in each["ports"]
        }
    assert made == expected


def effective(document, folder, configuration):
    """Return the flags of a Deployment's container and the manager's configuration."""
    (container,) = document["spec"]["template"]["spec"]["containers"]
    arguments = []
    for argument in container["args"]:
        for entry in container.get("env", ()):
            argument = argument.replace(f"$({entry['name']})", entry["value"])
        arguments.append(argument)
    file = folder / "configuration.yaml"
    file.write_text(configuration["data"]["controller_manager_config.yaml"])
    arguments = [
        f"--config={file}" if argument == "--config=/controller_manager_config.yaml" else argument
        for argument in arguments
    ]
    options = _parser().parse_args(arguments)
    return options, app_flags.read(options, MANAGER)


def test_configuration_is_the_same(chart, config, tmp_path):
    """The manager runs with the same settings, except for the tag of the agent's image."""
    configuration = chart["ConfigMap", "jobset-controller-config"]
    options, made = effective(chart["Deployment", "jobset-controller"], tmp_path, configuration)
    expected_options, expected = effective(
        config["Deployment", "jobset-controller-manager"],
        tmp_path,
        config["ConfigMap", "jobset-manager-config"],
    )
    for path in AGENTS:
        assert made[path] == f"jobsetpy-agent:{__version__}"
        assert expected[path] == "jobsetpy-agent:latest"
    same_agent = {**made.values, **dict.fromkeys(AGENTS, "jobsetpy-agent:latest")}
    assert everything(attrs.evolve(made, values=same_agent)) == everything(expected)
    assert made["--webhooks"]
    assert without_effect(made) == []
    assert app_flags.log_options(options) == app_flags.log_options(expected_options)
    assert flags(options) == flags(expected_options)


def everything(configuration: Configuration) -> dict:
    """Return all settings, defaults included."""
    return {
        "gates": configuration.feature_gates,
        **{setting.path: configuration[setting.path] for setting in SETTINGS},
    }


def flags(options: argparse.Namespace) -> dict:
    """Return the flags that the configuration does not have."""
    replaced = {"config", *AGENTS, "groupScheduling.manageRbac", "log_level", "log_format"}
    return {name: value for name, value in vars(options).items() if name not in replaced}


def without_image_and_arguments(document, added):
    """Return the object; a Deployment without its image and the arguments ``added``."""
    if document["kind"] != "Deployment":
        return document
    (container,) = document["spec"]["template"]["spec"]["containers"]
    del container["image"]
    if "args" in container:
        container["args"] = [each for each in container["args"] if each not in added]
    return document


@pytest.mark.parametrize("mode", ["cluster-scheduler", "marked-pods", "second-scheduler"])
def test_coscheduler_is_the_same(offline, chart, mode):
    """The chart adds the objects of the folder with that name; arguments name its objects."""
    values = {"coscheduler": {"enable": True, "mode": mode}}
    added = [item for key, item in offline.render(values).items() if key not in chart]
    names = ["--service-name=jobset-coscheduler"]
    expected = [comparable(item) for item in render(CONFIG / "coscheduler" / mode)]
    made = [comparable(item) for item in added]

    def by_name(documents):
        return {
            (item["kind"], item["metadata"]["name"]): without_image_and_arguments(item, names)
            for item in documents
        }

    assert by_name(made) == by_name(expected)
    (coscheduler,) = (
        item
        for item in added
        if item["kind"] == "Deployment" and item["metadata"]["name"] == "jobset-coscheduler"
    )
    (container,) = coscheduler["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"jobsetpy-manager:{__version__}"
    options = _parser().parse_args(container["args"])
    assert app_flags.read(options, COSCHEDULER)
    assert container["args"][-1:] == names


def test_admission_of_gangs_is_the_same(offline, chart):
    """The webhooks are those of the component, the policies those of the folder."""
    webhooks = offline.render({"coscheduling": {"admission": "webhook"}})
    folder = CONFIG / "coscheduler-admission"
    for item in render(CONFIG / "default", folder / "webhook"):
        if item["kind"].endswith("WebhookConfiguration"):
            made = as_in_config(webhooks[item["kind"], item["metadata"]["name"]])
            assert made == comparable(item)
    policies = offline.render({"coscheduling": {"admission": "policy"}})
    added = {key: comparable(item) for key, item in policies.items() if key not in chart}
    assert added == {
        (item["kind"], item["metadata"]["name"]): comparable(item)
        for item in render(folder / "policy")
    }


def test_alerts_and_dashboard_are_the_same(offline):
    """Rules and dashboard are those of the components."""
    values = {"prometheus": {"enable": True}, "grafana": {"dashboard": {"enable": True}}}
    made = offline.render(values)
    components = CONFIG / "components"
    expected = {
        item["kind"]: item
        for item in render(CONFIG / "default", components / "prometheus", components / "grafana")
    }
    rules = made["PrometheusRule", "jobset-controller-rules"]
    assert rules["spec"] == expected["PrometheusRule"]["spec"]
    dashboard = made["ConfigMap", "jobset-dashboard"]
    assert dashboard["data"] == expected["ConfigMap"]["data"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_values_for_production_render(offline):
    """The file of the page about production has two managers without a CPU limit, and alerts."""
    made = offline.render(yaml.safe_load((CHART / "production-values.yaml").read_text()))
    pods = made["Deployment", "jobset-controller"]["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    assert (pods["replicas"], container["resources"]["limits"]) == (2, {"memory": "4Gi"})
    assert {kind for kind, _ in made} >= {
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PriorityLevelConfiguration",
        "PrometheusRule",
    }
