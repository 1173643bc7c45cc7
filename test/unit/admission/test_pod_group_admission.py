"""The pod webhook for pods of gangs, and the manifests that configure it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.generate.kustomize import render
from jobsetpy.admission import WebhookSettings
from jobsetpy.admission import _handlers as handlers
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import StoreWriter
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import json_patch

ROOT = Path(__file__).resolve().parents[3]

CONFIG = ROOT / "config"
ADMISSION = CONFIG / "coscheduler-admission"
NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE


def handlers_of(marks, **more):
    """Return the handlers of a manager with given scheduler fields, or without coscheduling."""
    settings = WebhookSettings(
        features=Features(coscheduling=marks is not None), marks=marks or SchedulerFields(), **more
    )
    return handlers.PodHandlers(
        settings,
        pods=StoreWriter(ChildPod, indexes=[handlers.LEADERS]).store,
        nodes=StoreWriter(LabelledNode).store,
        jobs=StoreWriter(Job).store,
    )


def request(labels, annotations=None, **spec):
    """Return the request for a new pod."""
    pod = {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": spec}
    return ReviewRequest(uid="u", operation="CREATE", namespace="ns", object=pod)


async def test_pod_may_have_a_barrier_and_fields_of_a_gang():
    """It belongs to a startup group and to a gang."""
    review = request(
        {NAME: "g", MIN: "2", keys.JOBSET_NAME: "js"},
        {keys.GROUP_ATTEMPT: "1", keys.GROUP_SIZE: "2"},
        containers=[{"name": "c"}],
    )
    marks = SchedulerFields(backend="coscheduler", member_resource=True)
    answer = await handlers_of(marks).mutate(review)
    spec = json_patch(review.object, answer.patch)["spec"]
    assert "schedulingGates" not in spec
    assert spec["initContainers"][0]["name"] == keys.GROUP_INIT_CONTAINER
    requests = spec["containers"][0]["resources"]["requests"]
    assert requests == {keys.POD_GROUP_MEMBER_RESOURCE: "0"}


@pytest.mark.parametrize(
    ("marks", "refused"), [(SchedulerFields(backend="coscheduler"), True), (None, False)]
)
async def test_invalid_minimum_is_refused_with_the_coscheduler(marks, refused):
    """Another plugin may read it differently."""
    answer = await handlers_of(marks).validate(request({NAME: "g", MIN: "two"}))
    assert (answer.status is not None) == refused
    if refused:
        assert f'metadata.labels[{MIN}]: Invalid value: "two"' in answer.status["message"]


def webhooks(*components):
    """Return all webhooks of an installation by name, and the manager's arguments."""
    built = render(CONFIG / "default", *components)
    found = {each["name"]: each for item in built for each in item.get("webhooks", ())}
    (manager,) = [item for item in built if item["metadata"]["name"] == "jobset-controller-manager" and item["kind"] == "Deployment"]  # fmt: skip
    return found, manager["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("name", "path"), [("mgroup.kb.io", handlers.MUTATE_POD), ("vgroup.kb.io", handlers.VALIDATE_POD)]
)  # fmt: skip
def test_webhook_component_selects_all_pods_with_the_label(name, path):
    """None of them depends on the manager."""
    usual, _ = webhooks()
    found, arguments = webhooks(ADMISSION / "webhook")
    assert set(found) - set(usual) == {"mgroup.kb.io", "vgroup.kb.io"}
    webhook = found[name]
    assert webhook["clientConfig"]["service"]["path"] == path
    assert webhook["failurePolicy"] == "Ignore"
    selector = {each["key"]: each["operator"] for each in webhook["objectSelector"]["matchExpressions"]}  # fmt: skip
    assert selector == {NAME: "Exists", keys.JOBSET_NAME: "DoesNotExist"}
    assert "--coscheduling-backend=coscheduler" in arguments


def test_manager_component_sets_the_backend():
    """It adds no webhook."""
    usual, _ = webhooks()
    found, arguments = webhooks(ADMISSION / "manager")
    assert found == usual
    assert "--coscheduling-backend=coscheduler" in arguments


def test_policy_has_the_same_labels():
    """It is written in CEL, so the names are compared."""
    objects = {item["kind"]: item for item in render(ADMISSION / "policy")}
    labels = objects["ValidatingAdmissionPolicy"]["spec"]
    assert MIN in labels["variables"][0]["expression"]
    (rule,) = labels["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert rule == {"key": NAME, "operator": "Exists"}
