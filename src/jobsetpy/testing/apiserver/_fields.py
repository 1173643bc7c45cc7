"""Server-side apply: what each manager applied last, and the merge of its next configuration.

Rules: Kubernetes documentation, "Server-Side Apply". Simplified: only appliers own fields, and a
field as long as it has the value that they applied; creates, PUTs and patches own none. Types come
from ``Kind.keys_at`` alone.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from jobsetpy.api.structural_schema import cause
from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._kinds import Json, Kind

Path = tuple[str, ...]

# Set by the server, or part of the object's identity: never owned.
_UNOWNED_META = frozenset(
    (
        *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"),
    )
)


@attrs.frozen
class Applier:
    """Owner of fields: a manager at the main resource or at a subresource."""

    manager: str
    subresource: str


Claims = Mapping[Applier, Json]
"""The owned fields of each applier's latest configuration."""


def owned(applied: Json) -> Json:
    """Return the fields of a configuration that its applier owns."""
    meta = {k: v for k, v in applied["metadata"].items() if k not in _UNOWNED_META}
    rest = {k: v for k, v in applied.items() if k not in {"apiVersion", "kind", "metadata"}}
    return {**rest, "metadata": meta}


def apply(
    kind: Kind, live: Json | None, claims: Claims, applier: Applier, wanted: Json, *, force: bool
) -> Json:
    """Return the object after a configuration was applied.

    Fields that the applier applied before and omits now are removed unless they have another owner.

    Args:
        kind: the kind.
        live: the current object; ``None`` if it is to be created.
        claims: the earlier configurations of all appliers.
        applier: the applier of this one.
        wanted: its owned fields.
        force: take over conflicting fields instead of failing.

    Raises:
        StatusError: 409 with one cause per field that another applier owns with another value.
    """
    base: Json = live if live is not None else {"metadata": {}}
    others = [config for one, config in claims.items() if one != applier]
    conflicts: list[Path] = []
    merged: Json = _merged(kind, (), base, claims.get(applier), wanted, others, conflicts)
    if conflicts and not force:
        raise _conflict(conflicts)
    meta = merged["metadata"] = dict(merged.get("metadata") or {})
    entries = {(e["manager"], e["subresource"]): e for e in meta.get("managedFields") or ()}
    entries[applier.manager, applier.subresource] = {
        "manager": applier.manager,
        "operation": "Apply",
        "subresource": applier.subresource,
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(kind, (), wanted),
    }
    meta["managedFields"] = [entries[actor] for actor in sorted(entries)]
    return merged


def _merged(
    kind: Kind,
    at: Path,
    live: Any,
    old: Any,
    new: Any,
    others: Sequence[Any],
    conflicts: list[Path],
) -> Any:
    """Return the value at a path: ``new`` over ``live``; ``None`` if nothing remains of it."""
    sample = new if new is not None else old
    if _members(kind, at, sample) is None:
        shared = live is not None and live in others
        if new is None:
            return live if shared or live != old else None
        if shared and new != live:
            conflicts.append(at)
        return copy.deepcopy(new)
    in_list = isinstance(sample, list)
    result, before, after = (dict(_members(kind, at, one) or {}) for one in (live, old, new))
    claimed = [_members(kind, at, one) or {} for one in others]
    for name in before | after:
        theirs = [one[name] for one in claimed if name in one]
        if in_list and name not in after and not theirs:
            # Without its key field, what other writers added to an item could not be found.
            result.pop(name, None)
            continue
        below = at if in_list else (*at, name)
        found = result.get(name), before.get(name), after.get(name)
        value = _merged(kind, below, *found, theirs, conflicts)
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    if not result and new is None:
        return None
    return list(result.values()) if in_list else result


def _members(kind: Kind, at: Path, value: Any) -> Mapping[str, Any] | None:
    """Return the separately owned members of a map or list; ``None`` if it has one owner."""
    if isinstance(value, Mapping):
        return None if ".".join(at) in kind.atomic_maps else value
    keys = kind.keys_at(at) if isinstance(value, list) else None
    return None if keys is None else {_item(keys, item): item for item in value}


def _item(keys: tuple[str, ...], item: Any) -> str:
    """Return the element of one list item in ``FieldsV1``."""
    if not keys or not isinstance(item, Mapping):
        return "v:" + json.dumps(item, separators=(",", ":"))
    found = {key: item[key] for key in sorted(keys) if key in item}
    return "k:" + json.dumps(found, separators=(",", ":"))


def _tree(kind: Kind, at: Path, value: Any) -> Json:
    """Return the names of owned fields as ``FieldsV1``."""
    members = _members(kind, at, value) or {}
    if isinstance(value, list):
        return {name: _tree(kind, at, below) for name, below in members.items()}
    return {f"f:{name}": _tree(kind, (*at, name), below) for name, below in members.items()}


def _conflict(conflicts: list[Path]) -> StatusError:
    why = "conflict with another manager"
    causes = [cause("FieldManagerConflict", why, f".{'.'.join(path)}") for path in conflicts]
    message = f"Apply failed with conflicts: {', '.join(one['field'] for one in causes)}"
    return StatusError(409, "Conflict", message, {"causes": causes})
