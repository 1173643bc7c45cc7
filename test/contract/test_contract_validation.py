"""Contract: content that the API server refuses, and content that it accepts."""

from typing import Any

import pytest

from support.contract_kit import Answer, Api, widget


def metadata(**fields: Any) -> dict[str, Any]:
    """A body with a name and other metadata."""
    return {"metadata": {"name": "a", **fields}}


def labels(key: str = "a", value: Any = "b c") -> dict[str, Any]:
    """A body with a label, by default an invalid one."""
    return metadata(labels={key: value})


def without(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


BAD_LABEL = (422, ("FieldValueInvalid", "metadata.labels"))
BAD_REQUEST = (400, "BadRequest")

# name: attribute of the Api with the path of the collection, body, outcome
CREATES: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "custom resource without a kind": ("widgets", without("kind", widget("a")), BAD_REQUEST),
    "custom resource without an API version": ("widgets", without("apiVersion", widget("a")), BAD_REQUEST),
    "label value with a space": ("configmaps", labels(), BAD_LABEL),
    "label value that is too long": ("configmaps", labels("a", "b" * 64), BAD_LABEL),
    "label key with a space": ("configmaps", labels("a b", "c"), BAD_LABEL),
    "label key with a bad prefix": ("configmaps", labels("-x/y", "c"), BAD_LABEL),
    "label of a custom resource": ("widgets", widget("a", {"labels": {"a": "b c"}}), BAD_LABEL),
    "annotation key with a space": ("configmaps", metadata(annotations={"a b": "c"}), (422, ("FieldValueInvalid", "metadata.annotations"))),
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


async def test_patch_is_validated(api: Api) -> None:
    """The result of a patch is validated like a new object."""
    await api.make("a")
    answer = await api.merge(f"{api.configmaps}/a", labels())

    assert outcome(answer) == BAD_LABEL, answer.body


@pytest.mark.parametrize("body", APPLIES.values(), ids=APPLIES)
async def test_apply_is_refused_when_it_is_incomplete(api: Api, body: dict) -> None:
    """A configuration without name, metadata or kind is a bad request."""
    answer = await api.apply(f"{api.configmaps}/a", body, "me")

    assert outcome(answer) == BAD_REQUEST, answer.body
