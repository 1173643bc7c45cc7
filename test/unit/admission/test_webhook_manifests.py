"""The manifests of webhooks agree with the code."""

from pathlib import Path

import pytest
import yaml

from hack.generate.kustomize import render
from jobsetpy.admission import WebhookSettings
from jobsetpy.admission import _handlers as handlers
from jobsetpy.api import keys

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config"

JOBSETS = {
    "apiGroups": [keys.GROUP],
    "apiVersions": [keys.VERSION],
    "resources": ["jobsets"],
}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
POD_SELECTOR = {"matchExpressions": [{"key": keys.JOBSET_NAME, "operator": "Exists"}]}


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((CONFIG / "webhook" / name).read_text()))


@pytest.mark.parametrize(
    ("name", "path", "rule", "operations", "selector"),
    [
        ("mjobset.kb.io", handlers.MUTATE_JOBSET, JOBSETS, ["CREATE", "UPDATE"], None),
        ("mpod.kb.io", handlers.MUTATE_POD, PODS, ["CREATE"], POD_SELECTOR),
        ("vjobset.kb.io", handlers.VALIDATE_JOBSET, JOBSETS, ["CREATE", "UPDATE"], None),
        ("vpod.kb.io", handlers.VALIDATE_POD, PODS, ["CREATE"], POD_SELECTOR),
    ],
)
def test_webhook_selects_its_kind(name, path, rule, operations, selector):
    """Pods are selected only if they belong to JobSets."""
    settings = WebhookSettings(namespace="jobset-system")
    webhook = configured(name)
    service = {"name": settings.service_name, "namespace": "jobset-system", "path": path}
    assert webhook["clientConfig"] == {"service": service}
    assert webhook["rules"] == [{**rule, "operations": operations}]
    assert webhook.get("objectSelector") == selector
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Fail", "None")
    assert webhook["admissionReviewVersions"] == ["v1"]


def configured(name: str) -> dict:
    """Return a webhook of the configurations."""
    found = [webhook for item in documents("configurations.yaml") for webhook in item["webhooks"]]
    (webhook,) = [each for each in found if each["name"] == name]
    return webhook


def conditions(name: str) -> dict[str, str]:
    """Return the match conditions of a webhook, in CEL."""
    found = configured(name).get("matchConditions", ())
    return {each["name"]: each["expression"] for each in found}


def test_every_update_is_mutated():
    """In each JobSet, forms that typed clients write back are replaced by the stored ones."""
    assert set(conditions("mjobset.kb.io")) == {"not-being-deleted"}


def test_jobset_can_be_deleted_without_the_manager():
    """Removing a finalizer is an update: refusing it would keep the JobSet for ever."""
    for name in ("mjobset.kb.io", "vjobset.kb.io"):
        assert conditions(name)["not-being-deleted"] == "!has(object.metadata.deletionTimestamp)"
    assert conditions("mpod.kb.io") == conditions("vpod.kb.io") == {}


def test_names_are_the_defaults():
    """Configurations, Secret and Service have the names that the manager reads."""
    settings = WebhookSettings()
    names = [item["metadata"]["name"] for item in documents("configurations.yaml")]
    assert names == [settings.mutating_configuration, settings.validating_configuration]
    (secret,) = documents("secret.yaml")
    assert secret["metadata"]["name"] == settings.secret_name
    (service,) = documents("service.yaml")
    assert service["metadata"]["name"] == settings.service_name
    (port,) = service["spec"]["ports"]
    assert settings.bind_address == f":{port['targetPort']}"


@pytest.mark.parametrize(("folder", "served"), [("default", True), ("without-webhooks", False)])
def test_webhooks_are_installed_unless_configured_otherwise(folder, served):
    """The manager serves them, and all the objects that they need are installed."""
    built = {f"{item['kind']}/{item['metadata']['name']}": item for item in render(CONFIG / folder)}
    deployment = built["Deployment/jobset-controller-manager"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    needed = {
        "Service/jobset-webhook-service",
        "Secret/jobset-webhook-server-cert",
        "ClusterRole/jobset-webhook-role",
        "MutatingWebhookConfiguration/jobset-mutating-webhook-configuration",
        "ValidatingWebhookConfiguration/jobset-validating-webhook-configuration",
    }
    assert needed & set(built) == (needed if served else set())
    assert ("--webhooks" in container["args"]) is served
    assert (9443 in [port["containerPort"] for port in container["ports"]]) is served
    if served:
        selector = built["Service/jobset-webhook-service"]["spec"]["selector"]
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
