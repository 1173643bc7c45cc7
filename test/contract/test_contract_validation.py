"""Contract: content that the API server refuses, and content that it accepts."""

from typing import Any

import pytest

from support.contract_kit import STRATEGIC, Answer, Api, pod, widget


def metadata(**fields: Any) -> dict[str, Any]:
    """A body with a name and other metadata."""
    return {"metadata": {"name": "a", **fields}}


def labels(key: str = "a", value: Any = "b c") -> dict[str, Any]:
    """A body with a label, by default an invalid one."""
    return metadata(labels={key: value})


def data(key: str = "k", value: Any = 1) -> dict[str, Any]:
    """A ConfigMap with an entry, by default an invalid one."""
    return {**metadata(), "data": {key: value}}


def without(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def pod_with(**fields: Any) -> dict[str, Any]:
    """A pod with other fields in its spec."""
    return {**pod("a"), "spec": {**pod("a")["spec"], **fields}}


def deployment(labels: Any = None, **fields: Any) -> dict[str, Any]:
    """A Deployment whose pods have these labels; ``None`` removes a field of its spec."""
    template = {"metadata": {"labels": labels or {"app": "x"}}, "spec": pod("p")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template, **fields}
    return {**metadata(), "spec": {k: v for k, v in spec.items() if v is not None}}


def job(**fields: Any) -> dict[str, Any]:
    """A Job of one pod."""
    template = {"spec": {**pod("p")["spec"], "restartPolicy": "Never"}}
    return {**metadata(), "spec": {"template": template, **fields}}


def image(name: str = "x") -> dict[str, str]:
    return {"name": name, "image": "x"}


BAD_LABEL = (422, ("FieldValueInvalid", "metadata.labels"))
BAD_REQUEST = (400, "BadRequest")
BAD_SELECTOR = [("FieldValueRequired", "spec.selector"), ("FieldValueInvalid", "spec.template.metadata.labels")]  # fmt: skip
OTHER_SELECTOR = deployment({"app": "x", "b": "c"}, selector={"matchLabels": {"b": "c"}})

# name: attribute of the Api with the path of the collection, body, outcome
CREATES: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "custom resource without a kind": ("widgets", without("kind", widget("a")), BAD_REQUEST),
    "custom resource without an API version": ("widgets", without("apiVersion", widget("a")), BAD_REQUEST),
    "label value with a space": ("configmaps", labels(), BAD_LABEL),
    "label value that is too long": ("configmaps", labels("a", "b" * 64), BAD_LABEL),
    "label key with a space": ("configmaps", labels("a b", "c"), BAD_LABEL),
    "label key with a bad prefix": ("configmaps", labels("-x/y", "c"), BAD_LABEL),
    "label value that is a number": ("configmaps", labels("a", 1), BAD_REQUEST),
    "label of a custom resource": ("widgets", widget("a", {"labels": {"a": "b c"}}), BAD_LABEL),
    "annotation that is a number": ("configmaps", metadata(annotations={"a": 1}), BAD_REQUEST),
    "annotation key with a space": ("configmaps", metadata(annotations={"a b": "c"}), (422, ("FieldValueInvalid", "metadata.annotations"))),
    "ConfigMap value that is a number": ("configmaps", data(), BAD_REQUEST),
    "ConfigMap value that is a map": ("configmaps", data("k", {"a": "b"}), BAD_REQUEST),
    "pod without containers": ("pods", pod_with(containers=[]), (422, ("FieldValueRequired", "spec.containers"))),
    "pod without a spec": ("pods", metadata(), (422, ("FieldValueRequired", "spec.containers"))),
    "container without a name": ("pods", pod_with(containers=[{"image": "x"}]), (422, ("FieldValueRequired", "spec.containers[0].name"))),
    "container without an image": ("pods", pod_with(containers=[{"name": "x"}]), (422, ("FieldValueRequired", "spec.containers[0].image"))),
    "containers of one name": ("pods", pod_with(containers=[image(), image()]), (422, ("FieldValueDuplicate", "spec.containers[1].name"))),
    "pod with an unknown restart policy": ("pods", pod_with(restartPolicy="Sometimes"), (422, ("FieldValueNotSupported", "spec.restartPolicy"))),
    "plain deployment": ("deployments", deployment(), (201,)),
    "deployment without a selector": ("deployments", deployment(selector=None), (422, *BAD_SELECTOR)),
    "deployment that does not select its pods": ("deployments", deployment({"app": "y"}), (422, BAD_SELECTOR[1])),
    "Job without containers": ("jobs", job(template={"spec": {"restartPolicy": "Never"}}), (422, ("FieldValueRequired", "spec.template.spec.containers"))),
}  # fmt: skip

# name: attribute of the Api, body that is created, patch of it, outcome
PATCHES: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...]]] = {
    "label": ("configmaps", metadata(), {"metadata": {"labels": {"a": "b c"}}}, BAD_LABEL),
    "ConfigMap value that is a number": ("configmaps", metadata(), {"data": {"k": 1}}, (422, ("FieldValueInvalid", "patch"))),
    "node of a pod": ("pods", pod("a"), {"spec": {"nodeName": "n"}}, (422, ("FieldValueForbidden", "spec"))),
    "deadline of a pod": ("pods", pod("a"), {"spec": {"activeDeadlineSeconds": 5}}, (200,)),
    "selector of a deployment": ("deployments", deployment(), OTHER_SELECTOR, (422, ("FieldValueInvalid", "spec.selector"))),
    "template of a Job": ("jobs", job(), {"spec": {"template": {"spec": {"priorityClassName": "x"}}}}, (422, ("FieldValueInvalid", "spec.template"))),
}  # fmt: skip

# name: body of a server-side apply
APPLIES = {
    "without a name": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}},
    "without metadata": {"apiVersion": "v1", "kind": "ConfigMap"},
    "without a kind": {"metadata": {"name": "a"}},
}


def outcome(answer: Answer) -> tuple[Any, ...]:
    """Return the status of a response, and reason and field of each cause."""
    if answer.status < 300:
        return (answer.status,)
    if answer.status == 422:
        return (422, *answer.causes)
    return answer.status, answer.body.get("reason")


@pytest.mark.parametrize(("plural", "body", "expected"), CREATES.values(), ids=CREATES)
async def test_create_has_outcome(api: Api, plural: str, body: dict, expected: tuple) -> None:
    """Both servers refuse or accept the same content."""
    answer = await api.post(getattr(api, plural), body)

    assert outcome(answer) == expected, answer.body


@pytest.mark.parametrize(("plural", "body", "patch", "expected"), PATCHES.values(), ids=PATCHES)
async def test_patch_has_outcome(
    api: Api, plural: str, body: dict, patch: dict, expected: tuple
) -> None:
    """Both servers refuse or accept the same merge patches."""
    path = getattr(api, plural)
    made = await api.post(path, body)
    answer = await api.merge(f"{path}/a", patch)

    assert made.status == 201, made.body
    assert outcome(answer) == expected, answer.body


@pytest.mark.parametrize("body", APPLIES.values(), ids=APPLIES)
async def test_apply_is_refused_when_it_is_incomplete(api: Api, body: dict) -> None:
    """A configuration without name, metadata or kind is a bad request."""
    answer = await api.apply(f"{api.configmaps}/a", body, "me")

    assert outcome(answer) == BAD_REQUEST, answer.body


async def test_image_of_a_pod_may_change(api: Api) -> None:
    """By a strategic merge patch of its container."""
    await api.make_pod("a")
    patch = {"spec": {"containers": [{"name": "main", "image": "example/other"}]}}
    answer = await api.call("PATCH", f"{api.pods}/a", patch, STRATEGIC)

    assert answer.status == 200, answer.body


def binding(node: str = "n", name: str = "a") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }


# name: bindings that are sent, and outcome of the last one
BINDINGS: dict[str, tuple[list[dict[str, Any]], tuple[Any, ...]]] = {
    "to a node": ([binding()], (201,)),
    "of a bound pod": ([binding(), binding("other")], (409, "Conflict")),
    "of another name": ([binding(name="q")], BAD_REQUEST),
    "to nowhere": ([binding("")], (500, None)),
}


@pytest.mark.parametrize(("bodies", "expected"), BINDINGS.values(), ids=BINDINGS)
async def test_binding_has_outcome(api: Api, bodies: list[dict], expected: tuple) -> None:
    """Both servers refuse or accept the same bindings of a pod."""
    await api.make_pod("a")
    for body in bodies:
        answer = await api.post(f"{api.pods}/a/binding", body)

    assert outcome(answer) == expected, answer.body


async def test_binding_may_be_created_in_the_collection(api: Api) -> None:
    """The pod is the one with the binding's name."""
    await api.make_pod("a")
    answer = await api.post(f"/api/v1/namespaces/{api.ns}/bindings", binding())

    assert answer.status == 201, answer.body
