"""Discovery documents of the server: groups, resources, version."""

from __future__ import annotations

from typing import Any

from jobsetpy.testing.apiserver._storage import Storage

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-fake", "platform": "linux/amd64"}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def discover(storage: Storage, path: str) -> dict[str, Any] | None:
    """Return the document at a discovery path; ``None`` for other paths."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(storage, name) for name in _groups(storage)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources(storage, "", "v1")
        case ["apis", group] if group in _groups(storage):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(storage, group)}
        case ["apis", group, version] if version in _groups(storage).get(group, ()):
            return _resources(storage, group, version)
        case _:
            return None


def knows_group(storage: Storage, group: str, version: str) -> bool:
    """Return whether the group and version have a resource."""
    return any((one.kind.info.group, one.kind.info.version) == (group, version) for one in storage)


def _groups(storage: Storage) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for collection in storage:
        info = collection.kind.info
        if info.group and info.version not in groups.setdefault(info.group, []):
            groups[info.group].append(info.version)
    return groups


def _group(storage: Storage, name: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _groups(storage)[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


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
