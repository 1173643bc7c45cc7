"""Structural schemas of custom resources: pruning, defaulting and validation.

Source: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions". Not
evaluated: CEL rules (``x-kubernetes-validations``), ``format``, and ``anyOf``, ``oneOf``, ``allOf``
and ``not``.
"""

from __future__ import annotations

import copy
import json
import re
import types
from collections.abc import Iterator, Mapping
from operator import gt, lt
from typing import Any, Final

Cause = dict[str, Any]
Node = Mapping[str, Any]

_META: Final = frozenset({"apiVersion", "kind", "metadata"})


def cause(reason: str, message: str, field: str) -> Cause:
    """Return a cause of a refusal: one entry of a Status' ``details.causes``."""
    return {"reason": reason, "message": message, "field": field}


def required(field: str, why: str = "") -> Cause:
    """Return a cause: the field has no value."""
    return cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def bad_value(field: str, value: Any, why: str) -> Cause:
    """Return a cause: the field cannot have that value."""
    return cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}", field)


def forbidden(field: str, why: str) -> Cause:
    """Return a cause: the field must not be set, or not be changed in this way."""
    return cause("FieldValueForbidden", f"Forbidden: {why}", field)


def unsupported(field: str, value: Any, supported: str) -> Cause:
    """Return a cause: the field's value is not one of the supported ones."""
    text = f"Unsupported value: {json.dumps(value)}: supported values: {supported}"
    return cause("FieldValueNotSupported", text, field)


def duplicate(field: str, value: Any) -> Cause:
    """Return a cause: the value is a duplicate."""
    shown = json.dumps(value, separators=(",", ":"))
    return cause("FieldValueDuplicate", f"Duplicate value: {shown}", field)


def complete(schema: Node, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the fields unknown to its schema, and with the defaults."""
    kept = {name: value for name, value in obj.items() if name not in _META}
    made: dict[str, Any] = _completed(schema, kept)
    return {name: obj[name] for name in obj if name in _META} | made


def _completed(node: Node, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _completed_mapping(node, value)
    if isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
        return [_completed(items, item) for item in value]
    return copy.deepcopy(value)


def _completed_mapping(node: Node, value: Mapping[str, Any]) -> dict[str, Any]:
    known: Node = node.get("properties", {})
    others = node.get("additionalProperties")
    made: dict[str, Any] = {}
    for name, below in value.items():
        child = known.get(name)
        if child is not None:
            if below is not None or child.get("nullable"):
                made[name] = _completed(child, below)
        elif isinstance(others, Mapping):
            made[name] = _completed(others, below)
        elif _keeps_unknown(node):
            made[name] = copy.deepcopy(below)
    for name, child in known.items():
        if name not in made and "default" in child:
            made[name] = _completed(child, copy.deepcopy(child["default"]))
    return made


def problems(schema: Node, obj: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the causes for which the API server would refuse an object after ``complete``."""
    yield from _problems(schema, {n: v for n, v in obj.items() if n not in _META}, "", root=True)


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "null": types.NoneType,
    "boolean": bool,  # before integers, which truth values are in Python
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": Mapping,
}


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _problems(node: Node, value: Any, path: str, *, root: bool = False) -> Iterator[Cause]:
    if value is None and node.get("nullable"):
        return
    if node.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _of_type(path, "integer,string", value)
        elif isinstance(value, str):
            yield from _text_problems(node, value, path)
        return
    kind = node.get("type")
    if kind and not _fits(kind, value):
        yield _of_type(path, kind, value)
        return
    allowed = node.get("enum")
    if allowed and value not in allowed:
        shown = ", ".join(json.dumps(each) for each in allowed)
        yield unsupported(path, value, shown)
    if isinstance(value, str):
        yield from _text_problems(node, value, path)
    elif isinstance(value, list):
        yield from _list_problems(node, value, path)
    elif isinstance(value, Mapping):
        yield from _mapping_problems(node, value, path, root=root)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(node, value, path)


def _of_type(path: str, kind: str, value: Any) -> Cause:
    sort = next((name for name, kind in _TYPES.items() if isinstance(value, kind)), "object")
    text = f"Invalid value: {json.dumps(sort)}: {path} in body must be of type {kind}: "
    return cause("FieldValueTypeInvalid", text + json.dumps(sort), path)


def _invalid(path: str, value: Any, why: str) -> Cause:
    return bad_value(path, value, f"{path} in body {why}")


def _number_problems(node: Node, value: float, path: str) -> Iterator[Cause]:
    for word, how, wrong in (("Minimum", "greater", lt), ("Maximum", "less", gt)):
        bound, exclusive = node.get(word.lower()), node.get(f"exclusive{word}")
        if bound is not None and (wrong(value, bound) or (exclusive and value == bound)):
            more = f"{how} than" if exclusive else f"{how} than or equal to"
            yield _invalid(path, value, f"should be {more} {bound}")
    of = node.get("multipleOf")
    if of and value % of:
        yield _invalid(path, value, f"should be a multiple of {of}")


def _text_problems(node: Node, value: str, path: str) -> Iterator[Cause]:
    low, high = node.get("minLength"), node.get("maxLength")
    if low is not None and len(value) < low:
        yield _invalid(path, value, f"should be at least {low} chars long")
    if high is not None and len(value) > high:
        text = f"Too long: may not be more than {high} bytes"
        yield cause("FieldValueTooLong", text, path)
    pattern = node.get("pattern")
    if pattern and not re.search(pattern, value):
        yield _invalid(path, value, f"should match '{pattern}'")


def _list_problems(node: Node, value: list[Any], path: str) -> Iterator[Cause]:
    yield from _number_of(path, len(value), node.get("minItems"), node.get("maxItems"), "items")
    items = node.get("items")
    if isinstance(items, Mapping):
        for number, item in enumerate(value):
            yield from _problems(items, item, f"{path}[{number}]")
    yield from _duplicates(node, value, path)


def _number_of(
    path: str, count: int, least: int | None, most: int | None, what: str
) -> Iterator[Cause]:
    if least is not None and count < least:
        yield _invalid(path, count, f"should have at least {least} {what}")
    if most is not None and count > most:
        text = f"Too many: {count}: must have at most {most} items"
        yield cause("FieldValueTooMany", text, path)


def _duplicates(node: Node, value: list[Any], path: str) -> Iterator[Cause]:
    """Yield a cause for each duplicate item of a set or map list."""
    kind = node.get("x-kubernetes-list-type")
    if kind not in {"map", "set"}:
        return
    keys = node.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    for number, item in enumerate(value):
        if kind == "map":
            item = {name: item.get(name) for name in keys} if isinstance(item, Mapping) else item
        if item in seen:
            yield duplicate(f"{path}[{number}]", item)
        seen.append(item)


def _mapping_problems(
    node: Node, value: Mapping[str, Any], path: str, *, root: bool
) -> Iterator[Cause]:
    for name in node.get("required") or ():
        if name not in value and not (root and name in _META):
            yield required(_below(path, name))
    least, most = node.get("minProperties"), node.get("maxProperties")
    yield from _number_of(path, len(value), least, most, "properties")
    known: Node = node.get("properties", {})
    others = node.get("additionalProperties")
    for name, below in value.items():
        child = known.get(name, others)
        if isinstance(child, Mapping):
            yield from _problems(child, below, _below(path, name))


def unknown_fields(node: Node, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that ``complete`` drops; metadata is not checked."""
    if isinstance(value, Mapping):
        known: Node = node.get("properties", {})
        others = node.get("additionalProperties")
        for name, below in value.items():
            at = _below(path, str(name))
            child = known.get(name, others)
            if not path and name in _META:
                continue
            if isinstance(child, Mapping):
                yield from unknown_fields(child, below, at)
            elif not _keeps_unknown(node):
                yield at
    elif isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
        for number, item in enumerate(value):
            yield from unknown_fields(items, item, f"{path}[{number}]")


def _keeps_unknown(node: Node) -> bool:
    others = node.get("additionalProperties")
    typed = "properties" in node or others is not None or node.get("type") == "object"
    return bool(node.get("x-kubernetes-preserve-unknown-fields")) or others is True or not typed


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
