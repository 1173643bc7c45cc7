"""Field ownership: ``metadata.managedFields`` as sets of paths, and server-side apply on them.

A path is a tuple in the notation of ``FieldsV1``: ``f:name`` for a member, ``k:{...}`` for an item
of an associative list, ``v:...`` for an item of a set, and a final ``.`` for such an item itself.
Rules: Kubernetes documentation, "Server-Side Apply". Simplified: only leaves are owned (a real
server's updates also own the maps around them), and types come from ``Kind.keys_at`` alone.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
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
_COMPACT = (",", ":")


@attrs.frozen
class Owner:
    """One entry of managedFields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: frozenset[Path] = frozenset()

    def same_actor(self, other: Owner) -> bool:
        """Return whether both entries have the same manager, operation and subresource."""
        mine = (self.manager, self.operation, self.subresource)
        return mine == (other.manager, other.operation, other.subresource)

    def to_json(self) -> Json:
        """Return the entry for ``metadata.managedFields``."""
        tree: Json = {}
        for path in sorted(self.paths):
            node = tree
            for part in path:
                node = node.setdefault(part, {})
        entry: Json = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def owners_of(obj: Mapping[str, Any]) -> list[Owner]:
    """Parse ``metadata.managedFields``."""
    return [
        Owner(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            frozenset(_paths(entry.get("fieldsV1") or {}, ())),
        )
        for entry in obj["metadata"].get("managedFields") or []
    ]


def _paths(tree: Mapping[str, Any], at: Path) -> Iterable[Path]:
    for part, below in tree.items():
        if below:
            yield from _paths(below, (*at, part))
        else:
            yield (*at, part)


def _store(obj: Json, owners: Iterable[Owner]) -> None:
    kept = [owner for owner in owners if owner.paths]
    kept.sort(key=lambda owner: (owner.operation != "Apply", owner.time, owner.manager))
    if kept:
        obj["metadata"]["managedFields"] = [owner.to_json() for owner in kept]
    else:
        obj["metadata"].pop("managedFields", None)


# --------------------------------------------------------------------------------------------------
# Leaves.


def leaves(kind: Kind, obj: Mapping[str, Any]) -> dict[Path, Any]:
    """Return every owned path of an object with its value."""
    out: dict[Path, Any] = {}
    for name, value in obj.items():
        if name in {"apiVersion", "kind"}:
            continue
        if name == "metadata":
            value = {k: v for k, v in value.items() if k not in _UNOWNED_META}
            if not value:
                continue
        _walk(kind, value, (name,), (f"f:{name}",), out)
    return out


def _walk(kind: Kind, value: Any, names: Path, at: Path, out: dict[Path, Any]) -> None:
    if isinstance(value, Mapping) and value and ".".join(names) not in kind.atomic_maps:
        for name, item in value.items():
            _walk(kind, item, (*names, name), (*at, f"f:{name}"), out)
        return
    if isinstance(value, list) and value:
        keys = kind.keys_at(names)
        if keys is not None:
            for item in value:
                part = _item(keys, item)
                if keys and isinstance(item, Mapping):
                    out[(*at, part, ".")] = True
                    _walk(kind, item, names, (*at, part), out)
                else:
                    out[(*at, part)] = item
            return
    if value is not None:
        out[at] = value


def _item(keys: tuple[str, ...], item: Any) -> str:
    """Return the path element of one list item."""
    if not keys or not isinstance(item, Mapping):
        return "v:" + json.dumps(item, separators=_COMPACT)
    found = {key: item[key] for key in sorted(keys) if key in item}
    return "k:" + json.dumps(found, separators=_COMPACT)


def show(path: Path) -> str:
    """Return a path in the format of conflict messages."""
    out = []
    for part in path:
        if part.startswith("f:"):
            out.append("." + part[2:])
        elif part.startswith("k:"):
            keys = json.loads(part[2:])
            out.append("[" + ",".join(f"{k}={json.dumps(v)}" for k, v in keys.items()) + "]")
        elif part.startswith("v:"):
            out.append(f"[={part[2:]}]")
    return "".join(out)


# --------------------------------------------------------------------------------------------------
# Plain writes.


def record_update(kind: Kind, old: Json | None, new: Json, writer: Owner) -> None:
    """Assign the fields changed by a create, PUT or PATCH to its writer in ``managedFields``."""
    before = leaves(kind, old) if old is not None else {}
    after = leaves(kind, new)
    changed = frozenset(path for path, value in after.items() if before.get(path) != value)
    touched = changed | (before.keys() - after.keys())
    owners = owners_of(old) if old is not None else []
    if not touched:
        _store(new, owners)
        return
    mine = attrs.evolve(writer, paths=changed)
    kept = []
    for owner in owners:
        if owner.same_actor(mine):
            mine = attrs.evolve(mine, paths=(owner.paths - touched) | changed)
        else:
            kept.append(attrs.evolve(owner, paths=owner.paths - touched))
    _store(new, [*kept, mine])


# --------------------------------------------------------------------------------------------------
# Server-side apply.


def apply(kind: Kind, live: Json | None, applied: Json, writer: Owner, *, force: bool) -> Json:
    """Return the object after a configuration was applied.

    Fields that the writer applied before and omits now are removed unless they have another owner.

    Args:
        kind: the kind.
        live: the current object; ``None`` if it is to be created.
        applied: the configuration.
        writer: the new owner, without paths.
        force: take over conflicting fields instead of failing.

    Raises:
        StatusError: 409 with one cause per field that another manager owns with another value.
    """
    base: Json = live if live is not None else {"metadata": {}}
    present = leaves(kind, base)
    wanted = leaves(kind, applied)
    mine = attrs.evolve(writer, paths=frozenset(wanted))
    owners = owners_of(base)
    previous = next((owner for owner in owners if owner.same_actor(mine)), None)
    others = [owner for owner in owners if owner is not previous]
    differing = {path for path, value in wanted.items() if present.get(path) != value}
    conflicts = [(owner, path) for owner in others for path in sorted(owner.paths & differing)]
    if conflicts and not force:
        raise _conflict(conflicts)
    others = [attrs.evolve(owner, paths=owner.paths - differing) for owner in others]

    merged: Json = _merge(kind, base, applied, ())
    if previous is not None:
        gone = previous.paths.difference(wanted, *(owner.paths for owner in others))
        _remove_all(merged, gone, wanted)
        if previous.paths == mine.paths and not differing:
            mine = previous
    _store(merged, [*others, mine])
    return merged


def _remove_all(merged: Json, gone: frozenset[Path], wanted: Iterable[Path]) -> None:
    """Remove fields that are no longer wanted."""
    # Whole items first: without its key field, an item can no longer be found.
    for path in sorted(gone, key=lambda path: (path[-1] != ".", -len(path), path)):
        if not any(other[: len(path)] == path for other in wanted):
            _remove(merged, path)


def _conflict(conflicts: list[tuple[Owner, Path]]) -> StatusError:
    causes = [
        cause("FieldManagerConflict", f'conflict with "{owner.manager}"', show(path))
        for owner, path in conflicts
    ]
    found = ", ".join(f"{one['message']}: {one['field']}" for one in causes)
    plural = "" if len(conflicts) == 1 else "s"
    message = f"Apply failed with {len(conflicts)} conflict{plural}: {found}"
    return StatusError(409, "Conflict", message, {"causes": causes})


def _merge(kind: Kind, live: Any, applied: Any, names: Path) -> Any:
    if isinstance(applied, Mapping) and ".".join(names) not in kind.atomic_maps:
        result = dict(live) if isinstance(live, Mapping) else {}
        for name, value in applied.items():
            if names == ("metadata",) and name in _UNOWNED_META and live:
                continue
            if value is not None:
                result[name] = _merge(kind, result.get(name), value, (*names, name))
        return result
    keys = kind.keys_at(names) if isinstance(applied, list) else None
    if keys is None or not isinstance(live, list):
        return copy.deepcopy(applied)
    items = {_item(keys, item): item for item in live}
    for item in applied:
        part = _item(keys, item)
        items[part] = _merge(kind, items.get(part), item, names) if keys else item
    return list(items.values())


def _remove(node: Any, path: Path) -> None:
    """Delete the field at ``path``; maps and lists that become empty are deleted with it."""
    part, rest = path[0], path[1:]
    if part.startswith("f:"):
        name = part[2:]
        if not isinstance(node, dict) or name not in node:
            return
        if rest:
            node[name] = copy.copy(node[name])
            _remove(node[name], rest)
            if node[name] in ({}, []):
                del node[name]
        else:
            del node[name]
    elif isinstance(node, list):
        for at, item in enumerate(node):
            if part.startswith("v:"):
                if item == json.loads(part[2:]):
                    del node[at]
                    return
            elif isinstance(item, dict) and _item(tuple(json.loads(part[2:])), item) == part:
                if rest in {(".",), ()}:
                    del node[at]
                else:
                    node[at] = dict(item)
                    _remove(node[at], rest)
                return
