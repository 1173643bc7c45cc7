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
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from jobsetpy.api.quantities import PATTERN

Schema = dict[str, Any]

INT_OR_STRING: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_STRINGS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}

REPLACED: Final[Mapping[str, Schema]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**INT_OR_STRING, "pattern": PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INT_OR_STRING,
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


def structural(name: str, definitions: Mapping[str, Schema]) -> Schema:
    """Return the structural schema of a published definition, with all references resolved.

    Args:
        name: OpenAPI name of the definition.
        definitions: the definition itself and those that it refers to.

    Raises:
        KeyError: a definition is missing.
        ValueError: a definition uses a keyword without a conversion rule.
    """
    replaced = REPLACED.get(name)
    if replaced is not None:
        return replaced
    schema = definitions[name]
    bare = _WITHOUT_DEFAULTS.get(name)
    if bare is not None:
        fields = {
            key: {n: v for n, v in each.items() if n != "default"} if key in bare else each
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
                out.update(structural(value.rpartition("/")[2], definitions))
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
