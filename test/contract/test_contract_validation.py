"""Contract: what the API server refuses of an object's content, and what it lets through."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support.contract_kit import Answer, Api, pod, widget

Probe = Callable[[Api], Awaitable[Answer]]

PROBES: dict[str, tuple[Probe, tuple[Any, ...]]] = {}


def probe(*expected: Any) -> Callable[[Probe], Probe]:
    """Add a request and what comes of it: status, and reason and field of each cause."""

    def add(function: Probe) -> Probe:
        PROBES[function.__name__] = (function, expected)
        return function

    return add


def spec(**fields: Any) -> dict[str, Any]:
    """A pod's spec."""
    made = pod("p")["spec"]
    return {**made, **fields}


def pod_with(name: str = "p", **fields: Any) -> dict[str, Any]:
    """A pod with other fields in its spec."""
    return {**pod(name), "spec": spec(**fields)}


def claim(**fields: Any) -> dict[str, Any]:
    """A volume claim."""
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
        **fields,
    }
    return {"metadata": {"name": "c"}, "spec": {k: v for k, v in wanted.items() if v is not None}}


def claims(api: Api) -> str:
    return f"/api/v1/namespaces/{api.ns}/persistentvolumeclaims"


def deployments(api: Api) -> str:
    return f"/apis/apps/v1/namespaces/{api.ns}/deployments"


def deployment(labels: Any = None, **fields: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": labels or {"app": "x"}}, "spec": pod("p")["spec"]}
    wanted = {"selector": {"matchLabels": {"app": "x"}}, "template": template, **fields}
    return {"metadata": {"name": "d"}, "spec": {k: v for k, v in wanted.items() if v is not None}}


def job(**fields: Any) -> dict[str, Any]:
    template = {"spec": {**pod("p")["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **fields}}


# -- server-side apply, types ----------------------------------------------------------------------


@probe(400, "BadRequest")
async def apply_without_a_name(api: Api) -> Answer:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    return await api.apply(f"{api.configmaps}/a", body, "me")


@probe(400, "BadRequest")
async def apply_without_metadata(api: Api) -> Answer:
    return await api.apply(f"{api.configmaps}/a", {"apiVersion": "v1", "kind": "ConfigMap"}, "me")


@probe(400, "BadRequest")
async def apply_without_a_kind(api: Api) -> Answer:
    return await api.apply(f"{api.configmaps}/a", {"metadata": {"name": "a"}}, "me")


@probe(400, "BadRequest")
async def custom_resource_without_a_kind(api: Api) -> Answer:
    body = {k: v for k, v in widget("a").items() if k != "kind"}
    return await api.post(api.widgets, body)


@probe(400, "BadRequest")
async def custom_resource_without_an_api_version(api: Api) -> Answer:
    body = {k: v for k, v in widget("a").items() if k != "apiVersion"}
    return await api.post(api.widgets, body)


# -- labels and annotations ------------------------------------------------------------------------


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_value_with_a_space(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "labels": {"a": "b c"}}})


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_value_that_is_too_long(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "labels": {"a": "b" * 64}}})


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_key_with_a_space(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "labels": {"a b": "c"}}})


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_key_with_a_bad_prefix(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "labels": {"-x/y": "c"}}})


@probe(400, "BadRequest")
async def label_value_that_is_a_number(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "labels": {"a": 1}}})


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_of_a_custom_resource(api: Api) -> Answer:
    return await api.post(api.widgets, widget("a", {"labels": {"a": "b c"}}))


@probe(422, ("FieldValueInvalid", "metadata.labels"))
async def label_that_a_patch_sets(api: Api) -> Answer:
    await api.make("a")
    patch = {"metadata": {"labels": {"a": "b c"}}}
    return await api.merge(f"{api.configmaps}/a", patch)


@probe(400, "BadRequest")
async def annotation_that_is_a_number(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "annotations": {"a": 1}}})


@probe(422, ("FieldValueInvalid", "metadata.annotations"))
async def annotation_key_with_a_space(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a", "annotations": {"a b": "c"}}})


# -- ConfigMaps ------------------------------------------------------------------------------------


@probe(400, "BadRequest")
async def config_map_value_that_is_a_number(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a"}, "data": {"k": 1}})


@probe(400, "BadRequest")
async def config_map_value_that_is_a_map(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a"}, "data": {"k": {"a": "b"}}})


@probe(422, ("FieldValueInvalid", "patch"))
async def config_map_value_that_a_patch_sets_to_a_number(api: Api) -> Answer:
    await api.make("a")
    return await api.merge(f"{api.configmaps}/a", {"data": {"k": 1}})


@probe(422, ("FieldValueInvalid", "data[a b]"))
async def config_map_key_with_a_space(api: Api) -> Answer:
    return await api.post(api.configmaps, {"metadata": {"name": "a"}, "data": {"a b": "c"}})


@probe(422, ("FieldValueForbidden", "data"))
async def immutable_config_map(api: Api) -> Answer:
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}, "immutable": True}
    await api.post(api.configmaps, body)
    return await api.merge(f"{api.configmaps}/a", {"data": {"k": "w"}})


# -- pods ------------------------------------------------------------------------------------------


@probe(422, ("FieldValueRequired", "spec.containers"))
async def pod_without_containers(api: Api) -> Answer:
    return await api.post(api.pods, pod_with(containers=[]))


@probe(422, ("FieldValueRequired", "spec.containers"))
async def pod_without_a_spec(api: Api) -> Answer:
    return await api.post(api.pods, {"metadata": {"name": "p"}})


@probe(422, ("FieldValueRequired", "spec.containers[0].name"))
async def container_without_a_name(api: Api) -> Answer:
    return await api.post(api.pods, pod_with(containers=[{"image": "x"}]))


@probe(422, ("FieldValueRequired", "spec.containers[0].image"))
async def container_without_an_image(api: Api) -> Answer:
    return await api.post(api.pods, pod_with(containers=[{"name": "x"}]))


@probe(422, ("FieldValueDuplicate", "spec.containers[1].name"))
async def containers_of_one_name(api: Api) -> Answer:
    twice = [{"name": "x", "image": "x"}, {"name": "x", "image": "x"}]
    return await api.post(api.pods, pod_with(containers=twice))


@probe(422, ("FieldValueNotSupported", "spec.restartPolicy"))
async def pod_with_an_unknown_restart_policy(api: Api) -> Answer:
    return await api.post(api.pods, pod_with(restartPolicy="Sometimes"))


@probe(422, ("FieldValueForbidden", "spec"))
async def pod_that_is_moved_by_a_patch(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.merge(f"{api.pods}/p", {"spec": {"nodeName": "n"}})


@probe(200)
async def image_of_a_pod(api: Api) -> Answer:
    await api.make_pod("p")
    containers = [{"name": "main", "image": "example/other"}]
    patch = {"spec": {"containers": containers}}
    return await api.call("PATCH", f"{api.pods}/p", patch, "application/strategic-merge-patch+json")


@probe(200)
async def deadline_of_a_pod(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.merge(f"{api.pods}/p", {"spec": {"activeDeadlineSeconds": 5}})


@probe(201)
async def binding_of_a_pod(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.post(f"{api.pods}/p/binding", binding())


@probe(409, "Conflict")
async def binding_of_a_bound_pod(api: Api) -> Answer:
    await api.make_pod("p")
    await api.post(f"{api.pods}/p/binding", binding())
    return await api.post(f"{api.pods}/p/binding", binding("other"))


@probe(400, "BadRequest")
async def binding_of_another_name(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.post(f"{api.pods}/p/binding", {**binding(), "metadata": {"name": "q"}})


@probe(500, None)
async def binding_to_nowhere(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.post(f"{api.pods}/p/binding", binding(""))


@probe(201)
async def binding_by_the_collection(api: Api) -> Answer:
    await api.make_pod("p")
    return await api.post(f"/api/v1/namespaces/{api.ns}/bindings", binding())


def binding(node: str = "n") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": node},
    }


# -- volume claims, Deployments, Jobs --------------------------------------------------------------


@probe(422, ("FieldValueRequired", "spec.accessModes"))
async def claim_without_access_modes(api: Api) -> Answer:
    return await api.post(claims(api), claim(accessModes=None))


@probe(422, ("FieldValueRequired", "spec.resources[storage]"))
async def claim_without_a_size(api: Api) -> Answer:
    return await api.post(claims(api), claim(resources=None))


@probe(422, ("FieldValueForbidden", "spec"))
async def claim_that_changes_its_class(api: Api) -> Answer:
    await api.post(claims(api), claim())
    return await api.merge(f"{claims(api)}/c", {"spec": {"storageClassName": "other"}})


@probe(422, ("FieldValueForbidden", "spec"))
async def claim_that_grows_before_it_is_bound(api: Api) -> Answer:
    await api.post(claims(api), claim())
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    return await api.merge(f"{claims(api)}/c", larger)


@probe(201)
async def plain_deployment(api: Api) -> Answer:
    return await api.post(deployments(api), deployment())


@probe(
    422,
    ("FieldValueRequired", "spec.selector"),
    ("FieldValueInvalid", "spec.template.metadata.labels"),
)
async def deployment_without_a_selector(api: Api) -> Answer:
    return await api.post(deployments(api), deployment(selector=None))


@probe(422, ("FieldValueInvalid", "spec.template.metadata.labels"))
async def deployment_that_does_not_select_its_pods(api: Api) -> Answer:
    return await api.post(deployments(api), deployment({"app": "y"}))


@probe(422, ("FieldValueInvalid", "spec.selector"))
async def deployment_that_changes_its_selector(api: Api) -> Answer:
    await api.post(deployments(api), deployment())
    other = deployment({"app": "x", "b": "c"}, selector={"matchLabels": {"b": "c"}})
    return await api.merge(f"{deployments(api)}/d", other)


@probe(422, ("FieldValueRequired", "spec.template.spec.containers"))
async def job_without_containers(api: Api) -> Answer:
    template = {"spec": {"restartPolicy": "Never"}}
    return await api.post(api.jobs, job(template=template))


@probe(422, ("FieldValueInvalid", "spec.template"))
async def job_that_changes_its_template(api: Api) -> Answer:
    await api.post(api.jobs, job())
    patch = {"spec": {"template": {"spec": {"priorityClassName": "x"}}}}
    return await api.merge(f"{api.jobs}/j", patch)


def outcome(answer: Answer) -> tuple[Any, ...]:
    """What a probe gives: status, and reason and field of each cause."""
    if answer.status < 300:
        return (answer.status,)
    if answer.status == 422:
        return (422, *answer.causes)
    return answer.status, answer.body.get("reason")


@pytest.mark.parametrize("name", PROBES)
async def test_content_is_refused_or_taken(api: Api, name: str) -> None:
    """Each probe has the same outcome on both servers."""
    ask, expected = PROBES[name]

    answer = await ask(api)

    assert outcome(answer) == expected, answer.body
