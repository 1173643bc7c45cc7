"""Contract: server-side apply: ownership, conflicts, force, and removed fields."""

import pytest

from support.contract_kit import APPLY, Api, config_map, widget


def managers(meta: dict) -> set[str]:
    """Return the managers that own a field."""
    return {m["manager"] for m in meta["managedFields"]}


async def test_apply_creates(api: Api) -> None:
    """Applying a new object creates it, and the manager owns what it applied."""
    body = config_map("a", data={"k": "1"})
    body["metadata"]["labels"] = {"x": "y"}

    made = await api.apply(f"{api.configmaps}/a", body, "one")

    assert made.status == 201
    (entry,) = made.meta["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {
        "f:data": {"f:k": {}},
        "f:metadata": {"f:labels": {"f:x": {}}},
    }


async def test_apply_again_changes_nothing(api: Api) -> None:
    """The same configuration twice is one version."""
    body = config_map("a", data={"k": "1"})
    first = await api.apply(f"{api.configmaps}/a", body, "one")

    second = await api.apply(f"{api.configmaps}/a", body, "one")

    assert second.status == 200
    assert second.version == first.version


async def test_apply_conflicts_with_the_owner(api: Api) -> None:
    """Another value for a field of another applier is 409, with one cause per field."""
    path = f"{api.configmaps}/a"
    await api.apply(path, config_map("a", data={"k": "1", "l": "1"}), "one")

    answer = await api.apply(path, config_map("a", data={"k": "2", "l": "2", "m": "3"}), "two")

    assert answer.failure == (409, 409, "Conflict")
    assert answer.causes == [("FieldManagerConflict", f".data.{name}") for name in "kl"]


async def test_apply_with_force_takes_over(api: Api) -> None:
    """Force changes the value and the owner."""
    path = f"{api.configmaps}/a"
    await api.apply(path, config_map("a", data={"k": "1", "l": "1"}), "one")

    done = await api.apply(path, config_map("a", data={"k": "2"}), "two", force="true")

    assert done.status == 200
    assert done.body["data"] == {"k": "2", "l": "1"}
    left = await api.apply(path, config_map("a"), "one")
    assert left.body["data"] == {"k": "2"}


async def test_apply_of_the_same_value_shares(api: Api) -> None:
    """Two appliers of one value both own it; it is removed when both have given it up."""
    path = f"{api.configmaps}/a"
    await api.apply(path, config_map("a", data={"k": "1"}), "one")

    shared = await api.apply(path, config_map("a", data={"k": "1"}), "two")
    first_left = await api.apply(path, config_map("a"), "one")
    both_left = await api.apply(path, config_map("a"), "two")

    assert shared.status == 200
    assert managers(shared.meta) == {"one", "two"}
    assert first_left.body["data"] == {"k": "1"}
    assert "data" not in both_left.body


async def test_apply_removes_fields_that_are_left_out(api: Api) -> None:
    """A field that was applied before and is not now is removed; those of others stay."""
    path = f"{api.configmaps}/a"
    await api.make("a", labels={"theirs": "1"}, data={"theirs": "1"})
    body = config_map("a", data={"mine": "1", "also": "1"})
    body["metadata"]["annotations"] = {"mine": "1"}
    await api.apply(path, body, "one")

    done = await api.apply(path, config_map("a", data={"mine": "1"}), "one")

    assert done.body["data"] == {"mine": "1", "theirs": "1"}
    assert done.meta["labels"] == {"theirs": "1"}
    assert "annotations" not in done.meta


async def test_apply_of_status(api: Api) -> None:
    """On /status only the status is applied."""
    path = f"{api.widgets}/a"
    await api.make_widget("a", spec={"size": 1})
    body = widget("a", {"labels": {"x": "y"}}, spec={"size": 2}, status={"ready": 1, "total": 2})

    done = await api.apply(f"{path}/status", body, "one")
    less = await api.apply(f"{path}/status", widget("a", status={"ready": 1}), "one")

    assert (done.body["spec"], done.body["status"]) == ({"size": 1}, {"ready": 1, "total": 2})
    assert "labels" not in done.meta
    assert less.body["status"] == {"ready": 1}


async def test_main_and_status_are_applied_separately(api: Api) -> None:
    """The two endpoints keep each other's fields of one manager."""
    path = f"{api.widgets}/a"
    both = widget("a", spec={"size": 1}, status={"ready": 1})

    made = await api.apply(path, both, "one")
    status = await api.apply(f"{path}/status", both, "one")
    again = await api.apply(path, both, "one")

    assert "status" not in made.body
    assert status.body["status"] == again.body["status"] == {"ready": 1}


async def test_apply_of_conditions_by_type(api: Api) -> None:
    """Two managers each own a condition; one leaving its own out removes only that."""
    path = f"{api.widgets}/a/status"
    await api.make_widget("a")

    def with_condition(kind: str) -> dict:
        return widget("a", status={"conditions": [{"type": kind, "status": "True"}]})

    await api.apply(path, with_condition("A"), "one")
    two = await api.apply(path, with_condition("B"), "two")
    left = await api.apply(path, widget("a", status={"ready": 1}), "one")

    assert {c["type"] for c in two.body["status"]["conditions"]} == {"A", "B"}
    assert left.body["status"]["conditions"] == [{"type": "B", "status": "True"}]
    assert left.body["status"]["ready"] == 1


async def test_conflict_within_a_list_item(api: Api) -> None:
    """A field of an item has one owner."""
    path = f"{api.widgets}/a"
    body = widget("a", spec={"parts": [{"name": "x", "size": 1}]})
    await api.apply(path, body, "one")

    other = widget("a", spec={"parts": [{"name": "x", "size": 2}]})
    answer = await api.apply(path, other, "two")

    assert answer.failure == (409, 409, "Conflict")


async def test_sets_are_shared_item_by_item(api: Api) -> None:
    """Items of a set are owned one by one."""
    path = f"{api.widgets}/a"
    await api.apply(path, widget("a", spec={"tags": ["x", "y"]}), "one")

    both = await api.apply(path, widget("a", spec={"tags": ["y", "z"]}), "two")
    left = await api.apply(path, widget("a", spec={"size": 1}), "one")

    assert sorted(both.body["spec"]["tags"]) == ["x", "y", "z"]
    assert sorted(left.body["spec"]["tags"]) == ["y", "z"]


@pytest.mark.parametrize(
    ("mine", "theirs", "field"),
    [
        ({"steps": ["x"]}, {"steps": ["y"]}, ".spec.steps"),
        ({"whole": {"x": "1"}}, {"whole": {"y": "1"}}, ".spec.whole"),
    ],
    ids=["list", "map"],
)
async def test_atomic_values_have_one_owner(api: Api, mine: dict, theirs: dict, field: str) -> None:
    """Atomic lists and maps conflict as a whole and are replaced as a whole."""
    path = f"{api.widgets}/a"
    await api.apply(path, widget("a", spec=mine), "one")

    answer = await api.apply(path, widget("a", spec=theirs), "two")
    forced = await api.apply(path, widget("a", spec=theirs), "two", force="true")

    assert answer.causes == [("FieldManagerConflict", field)]
    assert forced.body["spec"] == theirs


async def test_map_is_removed_when_its_last_member_is_given_up(api: Api) -> None:
    """Maps of custom objects are not left empty."""
    path = f"{api.widgets}/a"
    await api.apply(path, widget("a", spec={"size": 1, "options": {"x": "1"}}), "one")

    done = await api.apply(path, widget("a", spec={"size": 1}), "one")

    assert done.body["spec"] == {"size": 1}


async def test_apply_of_annotations_leaves_others_alone(api: Api) -> None:
    """Our controllers mark objects this way: one owner per purpose, by force, metadata only."""
    await api.make_pod("a", labels={"x": "1"}, annotations={"keep": "1"})
    path = f"{api.pods}/a"
    metadata = {"name": "a", "annotations": {"mine": "2"}, "labels": {"x": "2"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}

    done = await api.apply(path, body, "marker", force="true")

    assert done.status == 200
    assert done.meta["annotations"] == {"keep": "1", "mine": "2"}
    assert done.meta["labels"] == {"x": "2"}
    assert done.meta["generation"] == 1


async def test_owner_references_are_applied_by_uid(api: Api) -> None:
    """Appliers add owner references next to those of others."""
    one, two = await api.make("one"), await api.make("two")
    path = f"{api.configmaps}/a"

    def owned(by: dict) -> dict:
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": by["name"], "uid": by["uid"]}
        return {**config_map("a"), "metadata": {"name": "a", "ownerReferences": [ref]}}

    await api.apply(path, owned(one.meta), "one")
    done = await api.apply(path, owned(two.meta), "two")

    assert {ref["name"] for ref in done.meta["ownerReferences"]} == {"one", "two"}


VERSION = {**config_map("a"), "metadata": {"name": "a", "resourceVersion": "1"}}
MANAGED = {**config_map("a"), "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"metadata": {"name": "a"}}, (400, 400, "BadRequest")),
        (config_map("b"), (400, 400, "BadRequest")),
        (MANAGED, (400, 400, "BadRequest")),
        (VERSION, (409, 409, "Conflict")),
    ],
    ids=["kind", "name", "managed-fields", "version"],
)
async def test_invalid_apply_is_refused(api: Api, body: dict, failure: tuple) -> None:
    """A configuration needs its kind and name, and no managedFields or old version."""
    await api.make("a")

    answer = await api.apply(f"{api.configmaps}/a", body, "one", force="true")

    assert answer.failure == failure


async def test_apply_needs_a_manager(api: Api) -> None:
    """Without fieldManager an apply is refused."""
    answer = await api.call("PATCH", f"{api.configmaps}/a", config_map("a"), APPLY)

    assert answer.failure == (422, 422, "Invalid")
    assert answer.causes == [("FieldValueRequired", "fieldManager")]


async def test_apply_of_a_missing_status(api: Api) -> None:
    """An apply to /status creates nothing."""
    answer = await api.apply(f"{api.widgets}/a/status", widget("a", status={"ready": 1}), "one")

    assert answer.failure == (404, 404, "NotFound")


async def test_generation_and_apply(api: Api) -> None:
    """An apply that changes the spec increments the generation, a forced label does not."""
    path = f"{api.widgets}/a"
    made = await api.apply(path, widget("a", spec={"size": 1}), "one")
    spec = await api.apply(path, widget("a", spec={"size": 2}), "one")
    label = await api.apply(path, widget("a", {"labels": {"x": "y"}}, spec={"size": 2}), "one")

    assert [x.meta["generation"] for x in (made, spec, label)] == [1, 2, 2]
