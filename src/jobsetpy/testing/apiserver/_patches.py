"""JSON merge patch, JSON patch and strategic merge patch on plain JSON.

Sources: RFC 7386 (merge patch), RFC 6902 (JSON patch) and Kubernetes' "Update API Objects in Place
Using kubectl patch" (strategic merge patch). No function here changes its arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from jobsetpy.testing.apiserver._answers import bad_request, patch_refused
from jobsetpy.testing.apiserver._kinds import BUILTIN_LIST_KEYS, Json

# Lists of a strategic merge patch that are merged item by item although they contain no maps.
_PRIMITIVE_LISTS = frozenset({"finalizers"})
_MERGE_KEYS = {name: keys[0] for name, keys in BUILTIN_LIST_KEYS.items()} | {
    "ownerReferences": "uid",
    "ports": "containerPort",
    "taints": "key",
}


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386): maps are merged, ``null`` deletes, all else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


# --------------------------------------------------------------------------------------------------
# RFC 6902, with the leniency of the library that the API server uses: ``replace`` of a missing map
# member adds it, and ``test`` of a missing one equals a test against null.


def json_patch(target: Json, operations: Any) -> Json:
    """Apply the operations in order.

    Raises:
        StatusError: 400 if the patch is not a list of operations, 422 if one of them fails.
    """
    if not isinstance(operations, Sequence) or isinstance(operations, str):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type"
            " []handlers.jsonPatchOp"
        )
    document: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            raise patch_refused() from None
    if not isinstance(document, dict):
        raise patch_refused()
    return document


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if _lookup(document, path, lenient=True) != operation.get("value"):
                raise ValueError
        case "add":
            return _add(document, path, operation["value"])
        case "replace":
            return _add(document, path, operation["value"], replace=True)
        case "remove":
            _remove(document, path)
        case "move":
            source = _pointer(operation["from"])
            value = _lookup(document, source)
            _remove(document, source)
            return _add(document, path, value)
        case "copy":
            value = copy.deepcopy(_lookup(document, _pointer(operation["from"])))
            return _add(document, path, value)
        case _:
            raise ValueError
    return document


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _lookup(document: Any, path: list[str], *, lenient: bool = False) -> Any:
    for depth, part in enumerate(path):
        if isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        elif lenient and depth == len(path) - 1:
            document = document.get(part)
        else:
            document = document[part]
    return document


def _index(part: str, last: int) -> int:
    index = int(part)
    if not 0 <= index <= last:
        raise IndexError
    return index


def _add(document: Any, path: list[str], value: Any, *, replace: bool = False) -> Any:
    if not path:
        return copy.deepcopy(value)
    parent = _lookup(document, path[:-1])
    if isinstance(parent, list) and replace:
        parent[_index(path[-1], len(parent) - 1)] = copy.deepcopy(value)
    elif isinstance(parent, list):
        at = len(parent) if path[-1] == "-" else _index(path[-1], len(parent))
        parent.insert(at, copy.deepcopy(value))
    elif isinstance(parent, dict):
        parent[path[-1]] = copy.deepcopy(value)
    else:
        raise TypeError
    return document


def _remove(document: Any, path: list[str]) -> None:
    parent = _lookup(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(path[-1], len(parent) - 1)]
    else:
        del parent[path[-1]]


# --------------------------------------------------------------------------------------------------
# Strategic merge patch.


def strategic_merge_patch(target: Any, patch: Any, *, field: str = "") -> Any:
    """Merge by the lists' merge keys; an item with ``$patch: delete`` is removed.

    Args:
        target: the current value.
        patch: the change.
        field: name of the field of both; it determines the merge key of a list.
    """
    if isinstance(patch, Mapping):
        return _strategic_map(target, patch)
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    return copy.deepcopy(patch)


def _strategic_map(target: Any, patch: Mapping[str, Any]) -> Any:
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = strategic_merge_patch(result.get(name), value, field=name)
    return result


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if field in _PRIMITIVE_LISTS:
        return [*target, *(copy.deepcopy(item) for item in patch if item not in target)]
    key = _MERGE_KEYS.get(field)
    if key is None or not all(isinstance(item, Mapping) for item in patch):
        return copy.deepcopy(patch)
    result, added = list(target), []
    for item in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            added.append(strategic_merge_patch({}, item))
        else:
            result[at] = strategic_merge_patch(result[at], item)
    return [*added, *result]
