"""The pod webhook and pods of groups, and the manifests that have it asked about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.generate.kustomize import render
from jobsetpy.admission import _handlers as handlers
from jobsetpy.api import keys
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import StoreWriter
from jobsetpy.reconcilers.coscheduling.backends import GATE, SchedulerFields
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import json_patch

ROOT = Path(__file__).resolve().parents[3]

CONFIG = ROOT / "config"
ADMISSION = CONFIG / "coscheduler-admission"
NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE


OF_JOBSET = {keys.COSCHEDULING_BACKEND_ANNOTATION: "coscheduler"}


def serving(marks, **more):
    """The handlers of a manager with that backend."""
    return handlers.PodHandlers(
        pods=StoreWriter(ChildPod, indexes=[handlers.LEADERS]).store,
        nodes=StoreWriter(LabelledNode).store,
        marks=marks,
        **more,
    )


def request(labels, annotations=None, **spec):
    """A new pod's."""
    pod = {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": spec}
    return ReviewRequest(uid="u", operation="CREATE", namespace="ns", object=pod)


@pytest.mark.parametrize(
    ("marks", "gates"),
    [(SchedulerFields(backend="coscheduler"), [GATE]), (SchedulerFields(), None), (None, None)],
)
async def test_pods_of_groups_are_gated(marks, gates):
    """With the coscheduler in charge, and otherwise not."""
    asked = request({NAME: "g", MIN: "2"}, containers=[{"name": "c"}])
    answer = await serving(marks).mutate(asked)
    assert json_patch(asked.object, answer.patch)["spec"].get("schedulingGates") == gates


async def test_the_barrier_of_group_scheduling_comes_next_to_the_gate():
    """Pods may be of both kinds of group."""
    asked = request(
        {NAME: "g", MIN: "2", keys.JOBSET_NAME: "js"},
        {keys.GROUP_ATTEMPT: "1", keys.GROUP_SIZE: "2"},
        containers=[{"name": "c"}],
    )
    answer = await serving(SchedulerFields(backend="coscheduler", member_resource=True)).mutate(
        asked
    )
    spec = json_patch(asked.object, answer.patch)["spec"]
    assert spec["schedulingGates"] == [GATE]
    assert spec["initContainers"][0]["name"] == keys.GROUP_INIT_CONTAINER
    requests = spec["containers"][0]["resources"]["requests"]
    assert requests == {keys.POD_GROUP_MEMBER_RESOURCE: "1"}


@pytest.mark.parametrize(
    ("marks", "refused"), [(SchedulerFields(backend="coscheduler"), True), (None, False)]
)
async def test_a_minimum_that_is_none_is_refused(marks, refused):
    """With the coscheduler in charge; another plugin may read it in its own way."""
    answer = await serving(marks).validate(request({NAME: "g", MIN: "two"}))
    assert (answer.status is not None) == refused
    if refused:
        assert f'metadata.labels[{MIN}]: Invalid value: "two"' in answer.status["message"]


def webhooks(*components):
    """All webhooks of an installation by name, and the manager's arguments."""
    built = render(CONFIG / "default", *components)
    found = {each["name"]: each for item in built for each in item.get("webhooks", ())}
    (manager,) = [item for item in built if item["metadata"]["name"] == "jobset-controller-manager" and item["kind"] == "Deployment"]  # fmt: skip
    return found, manager["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("name", "path"), [("mgroup.kb.io", handlers.MUTATE_POD), ("vgroup.kb.io", handlers.VALIDATE_POD)]
)  # fmt: skip
def test_the_webhook_component(name, path):
    """All pods with the label are asked about, and none depends on the manager for it."""
    usual, _ = webhooks()
    found, arguments = webhooks(ADMISSION / "webhook")
    assert set(found) - set(usual) == {"mgroup.kb.io", "vgroup.kb.io"}
    webhook = found[name]
    assert webhook["clientConfig"]["service"]["path"] == path
    assert webhook["failurePolicy"] == "Ignore"
    selector = {each["key"]: each["operator"] for each in webhook["objectSelector"]["matchExpressions"]}  # fmt: skip
    assert selector == {NAME: "Exists", keys.JOBSET_NAME: "DoesNotExist"}
    assert "--coscheduling-backend=coscheduler" in arguments


def test_the_manager_component():
    """The backend, and no webhook more."""
    usual, _ = webhooks()
    found, arguments = webhooks(ADMISSION / "manager")
    assert found == usual
    assert "--coscheduling-backend=coscheduler" in arguments


def test_the_policies_are_about_the_same_labels_and_gate():
    """What they say stands for itself, so the names are compared here."""
    objects = {item["kind"]: item for item in render(ADMISSION / "policy")}
    gate = objects["MutatingAdmissionPolicy"]["spec"]
    expression = gate["mutations"][0]["applyConfiguration"]["expression"]
    assert f"{{name: '{GATE['name']}'}}" in expression
    labels = objects["ValidatingAdmissionPolicy"]["spec"]
    assert MIN in labels["variables"][0]["expression"]
    for each in (gate, labels):
        (rule,) = each["matchConstraints"]["objectSelector"]["matchExpressions"]
        assert rule == {"key": NAME, "operator": "Exists"}


@pytest.mark.parametrize("annotations", [{}, OF_JOBSET])
@pytest.mark.parametrize(
    ("empty", "spec", "gates"),
    [
        (False, {}, [GATE]),
        (True, {}, []),
        (True, {"schedulingGates": [{"name": "a/b"}]}, [{"name": "a/b"}, GATE]),
    ],
)
async def test_pods_are_not_gated_when_the_queue_is_empty(empty, spec, gates, annotations):
    """Unless gates of others hold them back; the member resource is added in any case."""

    class Status:
        marks = SchedulerFields(backend="coscheduler", member_resource=True)
        queue_is_empty = empty

    asked = request({NAME: "g", MIN: "2"}, annotations, containers=[{"name": "c"}], **spec)
    answer = await serving(SchedulerFields(), coscheduler=Status()).mutate(asked)
    found = json_patch(asked.object, answer.patch)["spec"]
    assert found.get("schedulingGates", []) == gates
    assert found["containers"][0]["resources"]["requests"] == {keys.POD_GROUP_MEMBER_RESOURCE: "1"}
