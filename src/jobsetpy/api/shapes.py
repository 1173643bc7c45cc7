"""Shapes of a JobSet's JSON values, for comparisons by meaning.

Typed clients read an object, change a field and write all of it back as their types encode it. A
field that such a type holds by value cannot be absent: a client that decodes ``readOnly: false``
writes nothing, and one that decodes nothing writes ``divisor: "0"``. For fields held by pointer,
absence and zero differ. Published schemas do not distinguish the two kinds, so
``schema_values.json`` lists, by type, the fields that the Go types of the Kubernetes API hold by
value; for the JobSet's own types, annotations do so (``int`` against ``int | None``).
"""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import attrs

from jobsetpy.api._wire import wire_name
from jobsetpy.api.jobset import JobSetSpec
from jobsetpy.api.schema_embedded import Schema, snapshot

_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"


@attrs.frozen
class Shape:
    """Shape of one value.

    Attributes:
        fields: shapes of an object's fields, by JSON name, and true for fields held by value.
        item: shape of a list's items or a map's values.
        is_map: true if keys are data; an empty map or list means the same as an absent one.
        is_quantity: true for values in the notation of ``resource.Quantity``.
    """

    fields: Mapping[str, tuple[Shape, bool]] = attrs.field(factory=dict)
    item: Shape | None = None
    is_map: bool = False
    is_quantity: bool = False


ANY: Final = Shape()
"""Shape of scalars and of unknown values, such as fields of a newer release."""


@functools.cache
def jobset_spec() -> Shape:
    """Return the shape of a JobSet's spec; built once, from 150 kB of packaged schemas."""
    return _Reader().wire_class(JobSetSpec)


@functools.cache
def claim_spec() -> Shape:
    """Return the shape of a PersistentVolumeClaim's spec."""
    return _Reader().definition("io.k8s.api.core.v1.PersistentVolumeClaimSpec")


class _Reader:
    """Builder of shapes, each definition's once."""

    def __init__(self) -> None:
        text = resources.files("jobsetpy.api").joinpath("schema_values.json").read_text("utf-8")
        self._by_value: dict[str, list[str]] = json.loads(text)
        self._definitions = snapshot()
        texts = Shape(item=ANY, is_map=True)
        self._made: dict[str, Shape] = {
            _QUANTITY: Shape(is_quantity=True),
            _METADATA: Shape(
                {
                    **dict.fromkeys(("name", "namespace"), (ANY, True)),
                    **dict.fromkeys(("annotations", "labels"), (texts, False)),
                    **dict.fromkeys(("creationTimestamp", "finalizers"), (ANY, False)),
                }
            ),
        }

    def wire_class(self, cls: type) -> Shape:
        hints = typing.get_type_hints(cls)
        return Shape(
            {
                wire_name(attribute): self._annotated(hints[attribute.name], attribute.metadata)
                for attribute in attrs.fields(cls)
            }
        )

    def _annotated(self, annotation: Any, metadata: Mapping[str, Any]) -> tuple[Shape, bool]:
        arguments = typing.get_args(annotation)
        if typing.get_origin(annotation) in {types.UnionType, typing.Union}:
            (present,) = (each for each in arguments if each is not types.NoneType)
            return self._annotated(present, metadata)[0], False
        if typing.get_origin(annotation) is tuple:
            return Shape(item=self._annotated(arguments[0], metadata)[0]), True
        if "embed" in metadata:
            return self.definition(metadata["embed"]), True
        if isinstance(annotation, type) and attrs.has(annotation):
            return self.wire_class(annotation), True
        return ANY, True

    def definition(self, name: str) -> Shape:
        if name not in self._made:
            if name not in self._definitions:  # timestamps and int-or-string
                return ANY
            self._made[name] = ANY  # no definition used here refers to itself
            self._made[name] = self._schema(self._definitions[name], name.rpartition(".")[2])
        return self._made[name]

    def _schema(self, schema: Schema, type_: str = "") -> Shape:
        reference = schema.get("$ref") or next(
            (part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), None
        )
        if reference is not None:
            return self.definition(reference.rpartition("/")[2])
        if "items" in schema:
            return Shape(item=self._schema(schema["items"]))
        if "additionalProperties" in schema:
            return Shape(item=self._schema(schema["additionalProperties"]), is_map=True)
        by_value = self._by_value.get(type_, ())
        return Shape(
            {
                name: (self._schema(each), name in by_value)
                for name, each in schema.get("properties", {}).items()
            }
        )
