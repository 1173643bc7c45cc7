"""Schemas of built-in types, converted so that they can be embedded in a CRD.

A JobSet contains whole Job templates and volume claims. Their schemas come from an API server's
``/openapi/v3``, so that no field is written by hand. Published schemas contain keywords that a CRD
may not ("structural schemas" in the Kubernetes documentation of custom resources); they are
converted here. The published definitions are in ``schema_snapshot.json`` next to this file, without
descriptions; ``hack/generate/update_crds.py`` updates it.

Three decisions:

* Values of enumerations are not restricted. A CRD outlives the cluster version it was generated
  from, and must not refuse a value of a newer Job API. The Job API checks them anyway.
* Only the defaults of optional scalar fields are kept. Published schemas also have the zero value
  of each required field, which would defeat "required", and an empty object for each nested type,
  which would add absent fields. An empty string is a real default in names of references and in
  gRPC service names; elsewhere it is such a zero value.
* Metadata keeps the fields that a template may set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any, Final

from jobsetpy.api.quantities import PATTERN

Schema = dict[str, Any]

ROOTS: Final[Mapping[str, str]] = {
    "/openapi/v3/apis/batch/v1": "io.k8s.api.batch.v1.JobTemplateSpec",
    "/openapi/v3/api/v1": "io.k8s.api.core.v1.PersistentVolumeClaim",
}
"""Documents to fetch from an API server, and the root definition of each."""

_INT_OR_STRING: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_STRINGS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}

_REPLACED: Final[Mapping[str, Schema]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**_INT_OR_STRING, "pattern": PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": _STRINGS,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": _STRINGS,
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    },
}
_ATOMIC: Final = frozenset(
    {"io.k8s.api.core.v1.ConfigMapEnvSource", "io.k8s.api.core.v1.SecretEnvSource"}
)
"""References by name, which published schemas do not mark as such."""
_WITHOUT_DEFAULTS: Final[Mapping[str, frozenset[str]]] = {
    "io.k8s.api.core.v1.AzureDiskVolumeSource": frozenset({"cachingMode", "kind"}),
}
"""Fields whose defaults are references to constants, which other generators leave out."""
_EMPTY_BY_DEFAULT: Final = frozenset({"name", "service"})
_KEPT: Final = frozenset({"type", "format", "required"}) | {
    f"x-kubernetes-{each}" for each in ("list-type", "list-map-keys", "map-type")
}
_DROPPED: Final = frozenset({"description", "enum"}) | {
    f"x-kubernetes-{each}"
    for each in ("group-version-kind", "patch-merge-key", "patch-strategy", "unions")
}


def snapshot() -> dict[str, Schema]:
    """Return the packaged definitions, by OpenAPI name."""
    text = resources.files("jobsetpy.api").joinpath("schema_snapshot.json").read_text("utf-8")
    definitions: dict[str, Schema] = json.loads(text)
    return definitions


def trim(documents: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Schema]:
    """Return the content of a snapshot of an API server's OpenAPI documents.

    Args:
        documents: pairs of a root definition's name and the document that contains it.

    Returns:
        The root definitions and all that they refer to, without descriptions.

    Raises:
        KeyError: a definition is missing from a document.
    """
    out: dict[str, Schema] = {}
    for root, document in documents:
        definitions = document["components"]["schemas"]
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name in out or name in _REPLACED:
                continue
            out[name] = _without_descriptions(definitions[name])
            waiting += _references(out[name])
    return dict(sorted(out.items()))


def structural(name: str, definitions: Mapping[str, Schema]) -> Schema:
    """Return the structural schema of a published definition, with all references resolved.

    Args:
        name: OpenAPI name of the definition.
        definitions: the definition itself and those that it refers to.

    Raises:
        KeyError: a definition is missing.
        ValueError: a definition uses a keyword without a conversion rule.
    """
    replaced = _REPLACED.get(name)
    if replaced is not None:
        return replaced
    schema = definitions[name]
    bare = _WITHOUT_DEFAULTS.get(name)
    if bare is not None:
        fields = {
            key: _without(each, "default") if key in bare else each
            for key, each in schema["properties"].items()
        }
        schema = {**schema, "properties": fields}
    out = _structural(schema, definitions)
    return {**out, "x-kubernetes-map-type": "atomic"} if name in _ATOMIC else out


def _structural(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    out: Schema = {}
    for key, value in schema.items():
        match key:
            case "$ref":
                out.update(structural(_target(value), definitions))
            case "allOf":
                for part in value:
                    out.update(_structural(part, definitions))
            case "properties":
                required = schema.get("required", ())
                out[key] = {
                    name: _property(name, item, definitions, required=name in required)
                    for name, item in value.items()
                }
            case "items" | "additionalProperties":
                out[key] = _structural(value, definitions)
            case "default":
                pass  # handled by _property
            case _ if key in _KEPT:
                out[key] = value
            case _ if key not in _DROPPED:
                raise ValueError(f"no rule for the OpenAPI keyword {key!r}")
    return out


def _property(
    name: str, schema: Schema, definitions: Mapping[str, Schema], *, required: bool
) -> Schema:
    out = _structural(schema, definitions)
    default = schema.get("default")
    if required or default is None or isinstance(default, dict | list):
        return out
    if default != "" or name in _EMPTY_BY_DEFAULT:
        out["default"] = default
    return out


def _without(schema: Schema, keyword: str) -> Schema:
    return {key: value for key, value in schema.items() if key != keyword}


def _target(reference: str) -> str:
    return reference.rpartition("/")[2]


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield _target(value)
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _without_descriptions(schema: Any, *, names: bool = False) -> Any:
    """Remove descriptions; ``names``: the keys are property names, not keywords."""
    if isinstance(schema, dict):
        return {
            key: _without_descriptions(value, names=key == "properties" and not names)
            for key, value in sorted(schema.items())
            if names or key != "description"
        }
    if isinstance(schema, list):
        return [_without_descriptions(value) for value in schema]
    return schema
