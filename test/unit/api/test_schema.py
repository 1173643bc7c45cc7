"""api/schema*.py: the CRD that is generated from the API classes."""

import json
import re

import pytest

from jobsetpy.api import schema, schema_embedded
from jobsetpy.api._wire import field, wire
from jobsetpy.api.jobset import JobSet

CRD = schema.jobset_crd()
VERSION = CRD["spec"]["versions"][0]
ROOT = VERSION["schema"]["openAPIV3Schema"]


def at(path, root=ROOT):
    """Schema at a path such as ``spec.replicatedJobs[].name``."""
    for part in path.split("."):
        name = part.removesuffix("[]")
        root = root["properties"][name]
        if part.endswith("[]"):
            root = root["items"]
    return root


def walk(node, path=""):
    """All schemas of a tree with their paths."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], f"{path}[]")


def rules(path):
    return [rule["rule"] for rule in at(path).get("x-kubernetes-validations", ())]


INT32 = {"type": "integer", "format": "int32"}


POD = "spec.replicatedJobs[].template.spec.template.spec"


EMBEDDED = re.compile(r"scheduling\..*\b(\w+Policy|\w+Constraints|\w+Mode|resourceClaims\[]|job)\.")
"""Paths of fields within those of a PodGroup."""


def test_own_fields_are_described():
    """Every field outside of embedded types has a description."""
    bare = [
        path
        for path, node in walk(ROOT)
        if "[]" not in path[-2:] and ".template" not in path and path not in {"", ".metadata"}
        if "description" not in node and not EMBEDDED.search(path)
    ]

    assert bare == []


def test_defaults_that_other_crds_do_not_have_are_dropped():
    """Two fields of an Azure disk have a default in the snapshot, but not in other CRDs."""
    fields = at(f"{POD}.volumes[].azureDisk")["properties"]
    assert "default" not in fields["kind"]
    assert "default" not in fields["cachingMode"]


def test_required_fields_have_no_default():
    """A field is required or has a default, not both."""
    both = [
        f"{path}.{name}"
        for path, node in walk(ROOT)
        for name in node.get("required", ())
        if "default" in node["properties"][name]
    ]

    assert both == []


def test_defaults_are_scalars():
    """No default creates an absent object or list."""
    assert [path for path, node in walk(ROOT) if isinstance(node.get("default"), dict | list)] == []


def test_map_keys_are_required_or_have_a_default():
    """The API server demands this of the keys of a list map."""
    bad = [
        (path, key)
        for path, node in walk(ROOT)
        for key in node.get("x-kubernetes-list-map-keys", ())
        if key not in node["items"].get("required", ())
        and "default" not in node["items"]["properties"][key]
    ]

    assert bad == []


def test_quantities_and_ports_take_numbers_and_texts():
    """Quantities and target ports are integers or texts; quantities have a pattern."""
    limits = at(f"{POD}.containers[].resources.limits")["additionalProperties"]
    port = at(f"{POD}.containers[].livenessProbe.httpGet.port")

    assert limits["x-kubernetes-int-or-string"] is True is port["x-kubernetes-int-or-string"]
    assert "pattern" in limits
    assert "pattern" not in port


def test_embedded_values_are_not_enumerated():
    """A value of a newer Job API is not refused."""
    assert "enum" not in at(f"{POD}.restartPolicy")
    assert (
        "enum"
        in schema_embedded.snapshot()["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"]
    )


FORBIDDEN = {"$ref", "allOf", "oneOf", "nullable", "title", "x-kubernetes-patch-strategy"}


def test_keywords_that_crds_forbid_are_removed():
    """The schema has no keyword that structural schemas forbid, and a type everywhere."""
    assert [path for path, node in walk(ROOT) if FORBIDDEN & node.keys()] == []
    assert [
        path
        for path, node in walk(ROOT)
        if "type" not in node and "x-kubernetes-int-or-string" not in node
    ] == []


def test_the_crd_is_small_enough_to_apply():
    """Client-side apply stores a copy in an annotation, which may have 256 KiB."""
    assert len(json.dumps(CRD)) < 200_000


def test_each_call_returns_a_new_object():
    """A caller may change the result."""
    schema.jobset_crd()["spec"]["names"]["kind"] = "Changed"

    assert schema.jobset_crd() == CRD


# --- the builder on small classes --------------------------------------------------------------


@wire
class Leaf:
    size: int = field(default=0, required=True, description="Size.")


@wire
class Tree:
    RULES = (("self.leaf.size > 0", "too small"),)
    leaf: Leaf | None = field(default=None, immutable=True)
    leaves: tuple[Leaf, ...] = field(default=(), map_keys=("size",), max_items=3)
    when_done: str = field(default="now", defaulted=True)
    free: bytes = field(default=0.0)


def test_object_schema_refuses_unknown_types():
    """A field of a type without a schema is an error at generation, not a gap in the result."""
    with pytest.raises(TypeError, match="bytes"):
        schema.object_schema(Tree, {})


def test_object_schema_of_nested_classes():
    """Nested classes, rules, keys and defaults become one schema."""

    @wire
    class Small:
        RULES = Tree.RULES
        leaf: Leaf | None = field(default=None, immutable=True)
        leaves: tuple[Leaf, ...] = field(default=(), map_keys=("size",), max_items=3)
        when_done: str = field(default="now", defaulted=True)

    leaf = {
        "type": "object",
        "properties": {"size": {**INT32, "description": "Size."}},
        "required": ["size"],
    }

    assert {
        "type": "object",
        "properties": {
            "leaf": {**leaf, "x-kubernetes-validations": [schema.IMMUTABLE]},
            "leaves": {
                "type": "array",
                "items": leaf,
                "maxItems": 3,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["size"],
            },
            "whenDone": {"type": "string", "default": "now"},
        },
        "x-kubernetes-validations": [{"rule": "self.leaf.size > 0", "message": "too small"}],
    } == schema.object_schema(Small, {})


def test_properties_have_the_wire_names_of_the_class():
    """The properties of the spec are the fields that the class decodes."""
    assert set(at("spec")["properties"]) >= {"replicatedJobs", "ttlSecondsAfterFinished"}
    assert JobSet.RESOURCE.plural in CRD["metadata"]["name"]
