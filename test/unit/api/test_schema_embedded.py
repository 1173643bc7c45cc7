"""api/schema_embedded.py: conversion of published OpenAPI to structural schemas."""

import re

import pytest

from jobsetpy.api.schema_embedded import snapshot, structural


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


def test_references_are_resolved():
    """A reference, alone or in allOf, is replaced by its schema, including atomic marks."""
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
def test_defaults_of_optional_scalars_are_kept(name, schema, required, kept):
    """Zero values of other fields are dropped."""
    definition = {"type": "object", "properties": {name: schema}}
    if required:
        definition["required"] = [name]

    found = structural("A", {"A": definition})

    assert ("default" in found["properties"][name]) == kept
    assert found.get("required") == definition.get("required")


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

    assert found["list"]["items"] == found["map"]["additionalProperties"] == {"type": "string"}


def test_keywords_that_crds_forbid_are_dropped():
    """Patch strategies, unions, kinds and enumerations are removed."""
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


def test_an_unknown_keyword_is_an_error():
    """A keyword of a later Kubernetes version has to be checked first."""
    with pytest.raises(ValueError, match="x-kubernetes-new"):
        structural("A", {"A": {"type": "object", "x-kubernetes-new": 1}})


def test_a_missing_definition_is_an_error():
    """A reference without a target does not become an empty schema."""
    with pytest.raises(KeyError, match="Gone"):
        structural("A", {"A": {"type": "object", "properties": {"a": ref("Gone")}}})


@pytest.mark.parametrize(
    ("text", "valid"),
    [(text, True) for text in ["1", "1.5", ".5", "5.", "-1", "100m", "1Gi", "1e3", "1E", "2E-3"]]
    + [(text, False) for text in ("", "1 Gi", "1gi", "1KiB", "lots", ".", "1e")],
)
def test_the_quantity_pattern(text, valid):
    """The pattern accepts exactly the API's quantities."""
    name = "io.k8s.apimachinery.pkg.api.resource.Quantity"

    assert bool(re.search(structural(name, {})["pattern"], text)) == valid


def test_the_snapshot_has_both_roots():
    """The packaged snapshot is complete for the types that JobSet embeds."""
    definitions = snapshot()

    job = structural("io.k8s.api.batch.v1.JobTemplateSpec", definitions)
    claim = structural("io.k8s.api.core.v1.PersistentVolumeClaim", definitions)
    assert set(job["properties"]) == {"metadata", "spec"}
    assert set(claim["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
