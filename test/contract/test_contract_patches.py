"""Contract: JSON merge patch, JSON patch, strategic merge patch."""

import pytest

from support.contract_kit import JSON_PATCH, MERGE, STRATEGIC, Answer, Api, pod


async def test_merge_patch_merges_and_deletes(api: Api) -> None:
    """Maps are merged, null deletes, and other members stay."""
    await api.make("a", labels={"x": "1", "y": "2"}, data={"k": "1", "l": "2"})

    done = await api.merge(
        f"{api.configmaps}/a",
        {"metadata": {"labels": {"x": None, "z": "3"}}, "data": {"k": None, "m": "3"}},
    )

    assert done.status == 200
    assert done.meta["labels"] == {"y": "2", "z": "3"}
    assert done.body["data"] == {"l": "2", "m": "3"}


async def test_merge_patch_replaces_lists(api: Api) -> None:
    """A list is one value for a merge patch."""
    await api.make_widget("a", spec={"parts": [{"name": "x"}, {"name": "y"}]})

    done = await api.merge(f"{api.widgets}/a", {"spec": {"parts": [{"name": "z"}]}})

    assert done.body["spec"]["parts"] == [{"name": "z"}]


async def test_patch_of_nothing(api: Api) -> None:
    """A patch of a missing object is 404."""
    answer = await api.merge(f"{api.configmaps}/a", {"data": {}})

    assert answer.failure == (404, 404, "NotFound")


@pytest.mark.parametrize(
    ("meta", "failure"),
    [
        ({"resourceVersion": "1"}, (409, 409, "Conflict")),
        ({"uid": "11111111-2222-3333-4444-555555555555"}, (422, 422, "Invalid")),
        ({"name": "b"}, (400, 400, "BadRequest")),
        ({"namespace": "other"}, (400, 400, "BadRequest")),
    ],
    ids=["version", "uid", "name", "namespace"],
)
async def test_patches_of_the_identity(api: Api, meta: dict, failure: tuple) -> None:
    """A patch with an old version conflicts; uid, name and namespace are not changed."""
    await api.make("a")

    answer = await api.merge(f"{api.configmaps}/a", {"metadata": meta, "data": {"k": "1"}})

    assert answer.failure == failure


async def test_custom_objects_keep_their_uid(api: Api) -> None:
    """A patch of a custom object's uid is refused like one of a built-in kind."""
    await api.make_widget("a", spec={"size": 1})
    uid = "11111111-2222-3333-4444-555555555555"

    answer = await api.merge(f"{api.widgets}/a", {"metadata": {"uid": uid}})

    assert answer.failure == (422, 422, "Invalid")


async def test_merge_patch_with_the_current_version(api: Api) -> None:
    """A patch with the current version uses optimistic locking, and is accepted."""
    made = await api.make("a")

    patch = {"metadata": {"resourceVersion": made.version}, "data": {"k": "1"}}
    done = await api.merge(f"{api.configmaps}/a", patch)

    assert done.status == 200


@pytest.mark.parametrize("body", [b"{nope", b"[1]"], ids=["no-json", "list"])
async def test_invalid_patch_is_refused(api: Api, body: bytes) -> None:
    """A merge patch has to be a JSON object."""
    await api.make("a")

    answer = await api.call("PATCH", f"{api.configmaps}/a", body, MERGE)

    assert answer.failure == (400, 400, "BadRequest")


async def test_json_patch(api: Api) -> None:
    """Operations are applied in order, with ~1 for a slash and - for a list's end."""
    await api.make_widget("a", spec={"size": 1, "steps": ["x", "y"]})
    operations = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 2},
        {"op": "add", "path": "/spec/steps/-", "value": "z"},
        {"op": "add", "path": "/spec/steps/0", "value": "w"},
        {"op": "remove", "path": "/spec/steps/1"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/labels/example.com~1c", "value": "d"},
        {"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/e"},
        {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/f"},
    ]

    done = await api.call("PATCH", f"{api.widgets}/a", operations, JSON_PATCH)

    assert done.status == 200
    assert done.body["spec"] == {"size": 2, "steps": ["w", "y", "z"]}
    assert done.meta["labels"] == {"example.com/c": "d", "e": "b", "f": "b"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/k", "value": "other"},
        {"op": "test", "path": "/data/none", "value": "x"},
        {"op": "remove", "path": "/data/none"},
        {"op": "add", "path": "/none/below", "value": "x"},
        {"op": "replace", "path": "/none/below", "value": "x"},
        {"op": "frobnicate", "path": "/data/k", "value": "x"},
        {"op": "move", "from": "/data/none", "path": "/data/k"},
    ],
    ids=["test", "test-missing", "remove", "add", "replace", "unknown", "move"],
)
async def test_json_patch_that_fails(api: Api, operation: dict) -> None:
    """One failing operation fails the whole patch with 422, and nothing changes."""
    made = await api.make("a", data={"k": "v"})
    operations = [{"op": "add", "path": "/data/first", "value": "x"}, operation]

    answer = await api.call("PATCH", f"{api.configmaps}/a", operations, JSON_PATCH)

    assert answer.failure == (422, 422, "Invalid")
    assert (await api.get(f"{api.configmaps}/a")).body == made.body


async def test_json_patch_is_lenient_with_members(api: Api) -> None:
    """Replacing a missing member adds it; testing a missing one against null succeeds."""
    await api.make("a", data={"k": "v"})
    operations = [
        {"op": "test", "path": "/data/l", "value": None},
        {"op": "replace", "path": "/data/l", "value": "x"},
    ]

    done = await api.call("PATCH", f"{api.configmaps}/a", operations, JSON_PATCH)

    assert done.status == 200
    assert done.body["data"] == {"k": "v", "l": "x"}


async def test_json_patch_must_be_a_list(api: Api) -> None:
    """A JSON patch that is an object is 400."""
    await api.make("a")

    answer = await api.call("PATCH", f"{api.configmaps}/a", {"op": "add"}, JSON_PATCH)

    assert answer.failure == (400, 400, "BadRequest")


async def test_json_patch_of_the_version_is_a_lock(api: Api) -> None:
    """Replacing the resourceVersion by an old one conflicts."""
    await api.make("a")
    operations = [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]

    answer = await api.call("PATCH", f"{api.configmaps}/a", operations, JSON_PATCH)

    assert answer.failure == (409, 409, "Conflict")


async def test_strategic_merge_patch_knows_list_keys(api: Api) -> None:
    """Conditions are merged by type, and an item can be deleted by a directive."""
    await api.make_pod("a")
    path = f"{api.pods}/a/status"

    async def patch(*conditions: dict) -> dict[str, str]:
        body = {"status": {"conditions": list(conditions)}}
        answer = await api.call("PATCH", path, body, STRATEGIC)
        assert answer.status == 200, answer.body
        found = answer.body["status"].get("conditions", [])
        return {one["type"]: one["status"] for one in found}

    first = await patch({"type": "Ready", "status": "False"}, {"type": "A", "status": "True"})
    second = await patch({"type": "Ready", "status": "True"}, {"type": "B", "status": "True"})
    third = await patch({"type": "A", "$patch": "delete"})

    assert first == {"Ready": "False", "A": "True"}
    assert second == {"Ready": "True", "A": "True", "B": "True"}
    assert third == {"Ready": "True", "B": "True"}


async def test_strategic_merge_patch_of_metadata(api: Api) -> None:
    """Labels are merged, and finalizers are added."""
    made = await api.post(api.pods, pod("a", finalizers=["example.com/a"], labels={"x": "1"}))
    assert made.status == 201

    async def patch(metadata: dict) -> Answer:
        return await api.call("PATCH", f"{api.pods}/a", {"metadata": metadata}, STRATEGIC)

    added = await patch({"finalizers": ["example.com/b"], "labels": {"y": "2", "x": None}})

    assert sorted(added.meta["finalizers"]) == ["example.com/a", "example.com/b"]
    assert added.meta["labels"] == {"y": "2"}


async def test_custom_kinds_have_no_strategic_merge_patch(api: Api) -> None:
    """Their lists have no merge keys that the server knows."""
    await api.make_widget("a")

    answer = await api.call("PATCH", f"{api.widgets}/a", {}, STRATEGIC)

    assert answer.failure == (415, 415, "UnsupportedMediaType")
