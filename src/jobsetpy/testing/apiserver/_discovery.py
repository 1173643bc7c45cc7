"""Discovery documents of the server: resources, version."""

from __future__ import annotations

from typing import Any

from jobsetpy.testing.apiserver._storage import Storage

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-fake", "platform": "linux/amd64"}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def discover(storage: Storage, path: str) -> dict[str, Any] | None:
    """Return the document at a discovery path; ``None`` for other paths."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return VERSION
        case ["api", "v1"]:
            return _resources(storage, "", "v1")
        case ["apis", group, version] if _knows_group(storage, group, version):
            return _resources(storage, group, version)
        case _:
            return None


def _knows_group(storage: Storage, group: str, version: str) -> bool:
    """Return whether the group and version have a resource."""
    return any((one.kind.info.group, one.kind.info.version) == (group, version) for one in storage)


def _resources(storage: Storage, group: str, version: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for collection in storage:
        kind = collection.kind
        info = kind.info
        if (info.group, info.version) != (group, version):
            continue
        entry = {
            "name": info.plural,
            "singularName": info.kind.lower(),
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": _VERBS,
        }
        found.append(entry)
        if kind.status:
            name = f"{info.plural}/status"
            verbs = ["get", "patch", "update"]
            found.append({**entry, "name": name, "singularName": "", "verbs": verbs})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": found,
    }
