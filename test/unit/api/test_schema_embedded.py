"""api/schema_embedded.py: published OpenAPI to structural schemas."""

import pytest

from jobsetpy.api.schema_embedded import snapshot, structural, trim


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


def document(**definitions):
    return {"components": {"schemas": definitions}}


def test_references_are_resolved():
    """A reference, alone or in allOf, is replaced by what it names, atomic marks included."""
    definitions = {
        "Outer": {
            "type": "object",
            "properties": {
                "direct": ref("Inner"),
                "wrapped": {"allOf": [ref("Inner")], "default": {}, "description": "text"},
                "many": {
                    "type": "array",
                    "items": {"allOf": [ref("Inner")], "default": {}},
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
        "Inner": {"type": "object", "x-kubernetes-map-type": "atomic"},
    }
    inner = definitions["Inner"]

    assert {
        "type": "object",
        "properties": {
            "direct": inner,
            "wrapped": inner,
            "many": {"type": "array", "items": inner, "x-kubernetes-list-type": "atomic"},
        },
    } == structural("Outer", definitions)


@pytest.mark.parametrize(
    ("name", "schema", "required", "kept"),
    [
        ("a", {"type": "string", "default": "TCP"}, False, True),
        ("a", {"type": "boolean", "default": False}, False, True),
        ("a", {"type": "integer", "default": 0}, False, True),
        ("name", {"type": "string", "default": ""}, False, True),
        ("service", {"type": "string", "default": ""}, False, True),
        ("status", {"type": "string", "default": ""}, False, False),
        ("name", {"type": "string", "default": ""}, True, False),
        ("a", {"type": "integer", "default": 0}, True, False),
        ("a", {"type": "object", "default": {}}, False, False),
        ("a", {"type": "array", "items": {"type": "string"}, "default": []}, False, False),
    ],
)
def test_which_defaults_are_kept(name, schema, required, kept):
    """Defaults of optional scalars are kept, zero values of other fields are not."""
    definition = {"type": "object", "properties": {name: schema}}
    if required:
        definition["required"] = [name]

    found = structural("A", {"A": definition})

    assert kept == ("default" in found["properties"][name])
    assert definition.get("required") == found.get("required")


def test_defaults_of_elements_are_dropped():
    """An element of a list or map has no default."""
    text = {"type": "string", "default": ""}
    definition = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": text},
            "map": {"type": "object", "additionalProperties": text},
        },
    }

    found = structural("A", {"A": definition})["properties"]

    assert {"type": "string"} == found["list"]["items"] == found["map"]["additionalProperties"]


def test_keywords_that_definitions_may_not_have_are_dropped():
    """Patch strategies, unions, kinds and enumerations disappear."""
    definition = {
        "type": "object",
        "x-kubernetes-group-version-kind": [{"kind": "A"}],
        "x-kubernetes-unions": [{}],
        "properties": {
            "a": {
                "type": "array",
                "items": {"type": "string", "enum": ["x"]},
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            }
        },
    }

    assert structural("A", {"A": definition}) == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}}},
    }


def test_properties_may_be_called_like_keywords():
    """A field named "enum" or "default" is a field."""
    definition = {
        "type": "object",
        "properties": {
            name: {"type": "string"} for name in ("enum", "default", "description", "properties")
        },
    }
    trimmed = trim([("A", document(A=definition))])

    assert {"A": definition} == trimmed
    assert definition == structural("A", trimmed)


def test_an_unknown_keyword_is_an_error():
    """A keyword of a later Kubernetes version has to be looked at first."""
    with pytest.raises(ValueError, match="x-kubernetes-new"):
        structural("A", {"A": {"type": "object", "x-kubernetes-new": 1}})


def test_a_missing_definition_is_an_error():
    """A dangling reference is not an empty schema."""
    with pytest.raises(KeyError, match="Gone"):
        structural("A", {"A": {"type": "object", "properties": {"a": ref("Gone")}}})


def test_trim_keeps_what_is_reachable():
    """Only definitions that a root needs are kept, without descriptions, sorted."""
    first = document(
        B={"type": "object", "description": "x", "properties": {"c": ref("C")}},
        C={"type": "object"},
        Unused={"type": "object"},
    )
    second = document(A={"type": "object"})

    found = trim([("B", first), ("A", second)])

    assert list(found) == ["A", "B", "C"]
    assert {"type": "object", "properties": {"c": ref("C")}} == found["B"]


def test_trim_leaves_out_what_is_replaced_anyway():
    """Types with a schema of their own, such as quantities, are not kept."""
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    found = trim(
        [
            (
                "A",
                document(
                    A={"type": "object", "properties": {"q": ref(quantity)}}, **{quantity: {}}
                ),
            )
        ]
    )

    assert {"A"} == set(found)
    assert structural("A", found)["properties"]["q"]["x-kubernetes-int-or-string"] is True


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("1", True),
        ("1.5", True),
        (".5", True),
        ("5.", True),
        ("-1", True),
        ("100m", True),
        ("1Gi", True),
        ("1e3", True),
        ("1E", True),
        ("2E-3", True),
        ("", False),
        ("1 Gi", False),
        ("1gi", False),
        ("1KiB", False),
        ("lots", False),
        (".", False),
        ("1e", False),
    ],
)
def test_the_quantity_pattern(text, good):
    """The pattern takes what the API's quantities may be."""
    import re

    name = "io.k8s.apimachinery.pkg.api.resource.Quantity"

    assert good == bool(re.search(structural(name, {})["pattern"], text))


def test_the_snapshot_has_both_roots():
    """The packaged snapshot is complete for what JobSet embeds."""
    definitions = snapshot()

    job = structural("io.k8s.api.batch.v1.JobTemplateSpec", definitions)
    claim = structural("io.k8s.api.core.v1.PersistentVolumeClaim", definitions)
    assert {"metadata", "spec"} == set(job["properties"])
    assert {"apiVersion", "kind", "metadata", "spec", "status"} == set(claim["properties"])
