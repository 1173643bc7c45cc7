"""The CRD of JobSet, generated from the attrs classes in ``api.jobset``.

The classes are the only definition of the API; the properties of a field are in its annotation and
in its metadata (listed in ``api.jobset``). ``hack/generate/update_crds.py`` writes the result to
``config/crd``.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from jobsetpy.api._wire import to_json, wire_name
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import Condition, ObjectMeta
from jobsetpy.api.quantities import PATTERN
from jobsetpy.api.schema_embedded import INT_OR_STRING, Schema, snapshot, structural

IMMUTABLE: Final = {"rule": "self == oldSelf", "message": "Value is immutable"}

_NAME: Final = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_LABEL: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"


def _text(description: str, **limits: Any) -> Schema:
    return {"type": "string", **limits, "description": description}


def _column(name: str, kind: str, path: str, description: str = "", **more: Any) -> Schema:
    out = {"name": name, "type": kind, **more, "jsonPath": path}
    return {**out, "description": description} if description else out


# metav1.Condition. ``api.meta.Condition`` also models conditions of other kinds, so the limits
# are defined here.
_CONDITION: Final[Schema] = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": _text("Time of the last change of the status.", format="date-time"),
        "message": _text("Details for users; may be empty.", maxLength=32768),
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "metadata.generation that the condition was derived from.",
        },
        "reason": _text(
            "Details for programs, one word in CamelCase.",
            minLength=1,
            maxLength=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
        "status": _text("Status of the condition.", enum=["True", "False", "Unknown"]),
        "type": _text(
            "Type of the condition.",
            maxLength=316,
            pattern=f"^({_LABEL}([.]{_LABEL})*/)?{_NAME}$",
        ),
    },
}
_OWN: Final[Mapping[type, Schema]] = {
    Condition: _CONDITION,
    ObjectMeta: {"type": "object"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
}
_COLUMNS: Final = (
    _column(
        "TerminalState",
        "string",
        ".status.terminalState",
        "Completed or Failed, once the JobSet has finished.",
    ),
    _column(
        "Restarts", "string", ".status.restarts", "Number of times that all Jobs were recreated."
    ),
    _column("StartTime", "date", ".status.startTime", "Start of the current run."),
    _column("Completed", "string", '.status.conditions[?(@.type=="Completed")].status', priority=0),
    _column("Suspended", "string", ".spec.suspend", "True if the JobSet is suspended."),
    _column("Age", "date", ".metadata.creationTimestamp", "Time since the creation of the JobSet."),
    _column(
        "InPlace",
        "integer",
        ".status.inPlaceRestart.restarts",
        "Number of restarts in place that counted towards maxRestarts.",
    ),
    _column("State", "string", ".status.state", "Summary of the status in one word."),
    _column(
        "Ready",
        "string",
        ".status.readyPods",
        "Ready and wanted pods at the latest write of the counters.",
    ),
    _column(
        "Epoch",
        "integer",
        ".status.syncedEpoch",
        "Latest epoch that all pods reached, with the strategy InPlaceRestart.",
        priority=1,
    ),
)
_KEYWORDS: Final = {
    "description": "description",
    "schema_default": "default",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "min_items": "minItems",
    "max_items": "maxItems",
    "enum": "enum",
    "map_keys": "x-kubernetes-list-map-keys",
}
"""Keywords of a field's schema, by the name in its metadata."""


def object_schema(cls: type, definitions: Mapping[str, Schema]) -> Schema:
    """Return the structural schema of a wire class.

    Args:
        cls: a wire class whose fields are scalars, tuples, other wire classes or embedded types.
        definitions: schemas of embedded types, as returned by ``schema_embedded.snapshot``.

    Raises:
        TypeError: a field's annotation has no schema.
        KeyError: ``embed`` names an unknown definition.
    """
    hints = typing.get_type_hints(cls)
    properties: Schema = {}
    required = []
    for attribute in attrs.fields(cls):
        name = wire_name(attribute)
        properties[name] = _field_schema(attribute, hints[attribute.name], definitions)
        if attribute.metadata.get("required"):
            required.append(name)
    out: Schema = {"type": "object", "properties": properties}
    if required:
        out["required"] = sorted(required)
    if rules := getattr(cls, "RULES", ()):
        out["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in rules
        ]
    return out


def resource_schema(cls: type[Any], definitions: Mapping[str, Schema]) -> Schema:
    """Return the schema of a kind: the fields of its class, and those of every object."""
    out = object_schema(cls, definitions)
    out["description"] = (cls.__doc__ or "").strip()
    out["properties"] = {
        "apiVersion": {"type": "string", "description": "Group and version of the API."},
        "kind": {"type": "string", "description": "Name of the type."},
        **out["properties"],
    }
    return out


def jobset_crd() -> dict[str, Any]:
    """Return the CRD as a JSON object, ready to be applied; no two parts are the same object."""
    return crd_of(JobSet, _COLUMNS)


def crd_of(cls: type[Any], columns: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the CRD of a class that represents a kind (``runtime.resource``), as a JSON object.

    Args:
        cls: a wire class; a field ``status`` makes ``/status`` a subresource.
        columns: ``additionalPrinterColumns``; the class's ``COLUMNS`` when empty.

    Raises:
        TypeError: the class represents no kind, or a field's annotation has no schema.
    """
    info = getattr(cls, "RESOURCE", None)
    if info is None or not attrs.has(cls):
        msg = f"{cls!r} stands for no kind: decorate it with runtime.resource and runtime.model"
        raise TypeError(msg)
    out = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{info.group}"},
        "spec": {
            "group": info.group,
            "names": {
                "kind": info.kind,
                "listKind": f"{info.kind}List",
                "plural": info.plural,
                "singular": info.kind.lower(),
            },
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [_version_of(cls, columns)],
        },
    }
    unshared: dict[str, Any] = json.loads(json.dumps(out))
    return unshared


def _version_of(cls: type[Any], columns: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"name": cls.RESOURCE.version, "served": True, "storage": True}
    if shown := [dict(column) for column in columns or getattr(cls, "COLUMNS", ())]:
        out["additionalPrinterColumns"] = shown
    out["schema"] = {"openAPIV3Schema": resource_schema(cls, snapshot())}
    if any(attribute.name == "status" for attribute in attrs.fields(cls)):
        out["subresources"] = {"status": {}}
    return out


def crd_of_versions(classes: Sequence[type[Any]]) -> dict[str, Any]:
    """Return the CRD of a kind with several versions, each a class; the last one is stored.

    Raises:
        TypeError: a class represents no kind.
        ValueError: the classes represent several kinds, or two the same version.
    """
    made = [crd_of(cls) for cls in classes]
    out = made[-1]
    versions = [crd["spec"]["versions"][0] for crd in made]
    names = [version["name"] for version in versions]
    if any(crd["metadata"] != out["metadata"] for crd in made) or len({*names}) < len(names):
        kinds = ", ".join(f"{cls.RESOURCE.api_version} {cls.RESOURCE.kind}" for cls in classes)
        raise ValueError(f"these are not the versions of one kind: {kinds}")
    for version in versions[:-1]:
        version["storage"] = False
    out["spec"]["versions"] = versions
    return out


def crds_of(classes: Iterable[type[Any]]) -> list[dict[str, Any]]:
    """Return the CRDs of the kinds of these classes, each made by :func:`crd_of_versions`.

    Raises:
        TypeError: a class represents no kind.
        ValueError: two classes represent the same version.
    """
    kinds: dict[tuple[str, str], list[type[Any]]] = {}
    for cls in classes:
        info = getattr(cls, "RESOURCE", None)
        at = ("", repr(cls)) if info is None else (info.group, info.plural)
        kinds.setdefault(at, []).append(cls)
    return [crd_of_versions(versions) for versions in kinds.values()]


def _field_schema(
    attribute: attrs.Attribute[Any], annotation: Any, definitions: Mapping[str, Schema]
) -> Schema:
    meta = attribute.metadata
    out = dict(_type_schema(annotation, meta, definitions))
    if meta.get("quantity"):
        if out != INT_OR_STRING:
            msg = f"field {attribute.name}: a quantity is declared as int | str, not {annotation}"
            raise TypeError(msg)
        out["pattern"] = PATTERN
    if meta.get("defaulted"):
        out["default"] = to_json(attribute.default)
    for key, word in _KEYWORDS.items():
        if key in meta:
            many = isinstance(meta[key], tuple | set | frozenset)
            out[word] = list(meta[key]) if many else meta[key]
    if "map_keys" in meta:
        out["x-kubernetes-list-type"] = "map"
    if meta.get("atomic"):
        out["x-kubernetes-list-type"] = "atomic"
    if meta.get("immutable"):
        out["x-kubernetes-validations"] = [
            *out.get("x-kubernetes-validations", ()),
            dict(IMMUTABLE),
        ]
    return out


def _type_schema(
    annotation: Any, meta: Mapping[str, Any], definitions: Mapping[str, Schema]
) -> Schema:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {types.UnionType, typing.Union}:
        present = [argument for argument in arguments if argument is not types.NoneType]
        if set(present) == {int, str}:
            return INT_OR_STRING
        if len(present) != 1:
            raise TypeError(f"no schema for {annotation}: one type and None, or int | str")
        return _type_schema(present[0], meta, definitions)
    if origin in {tuple, list}:
        return {"type": "array", "items": _type_schema(arguments[0], meta, definitions)}
    if origin is typing.Literal:
        return {"type": "string", "enum": list(arguments)}
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"type": "string", "enum": [each.value for each in annotation]}
    if "embed" in meta:
        return structural(meta["embed"], definitions)
    if origin in {dict, Mapping}:
        return {
            "type": "object",
            "additionalProperties": _type_schema(arguments[1], {}, definitions),
        }
    if annotation is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    own = _OWN.get(annotation)
    if own is not None:
        if "format" in meta:
            own = {key: value for key, value in own.items() if key != "format"}
            return own if meta["format"] is None else {**own, "format": meta["format"]}
        return own
    if isinstance(annotation, type) and attrs.has(annotation):
        return object_schema(annotation, definitions)
    raise TypeError(f"no schema for {annotation!r}")
