"""CustomResourceDefinitions: creating one registers its kind, as on a real server.

Objects are pruned, defaulted and validated by the schema of the served version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing.apiserver._kinds import Json, Kind


def _established(obj: Json) -> None:
    spec = obj.get("spec") or {}
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
    ]
    versions = [version["name"] for version in spec.get("versions") or ()]
    obj["status"] = {
        "conditions": conditions,
        "acceptedNames": spec.get("names") or {},
        "storedVersions": versions[:1],
    }


DEFINITIONS = Kind(
    ResourceInfo(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    ),
    status=True,
    generation=True,
    unconditional_update=False,
    defaults=_established,
)


def kind_of(definition: Mapping[str, Any]) -> Kind | None:
    """Return the kind that a CRD defines, in its stored version; ``None`` if it serves none."""
    spec = definition["spec"]
    served = [version for version in spec["versions"] if version.get("served", True)]
    version = next((one for one in served if one.get("storage")), next(iter(served), None))
    if version is None:
        return None
    names = spec["names"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    lists: dict[str, tuple[str, ...]] = {}
    atomic = set()
    for path, node in _nodes(schema, ""):
        match node.get("x-kubernetes-list-type"), node.get("x-kubernetes-map-type"):
            case "map", _:
                lists[path] = tuple(node.get("x-kubernetes-list-map-keys") or ())
            case "set", _:
                lists[path] = ()
            case _, "atomic":
                atomic.add(path)
            case _:
                pass
    return Kind(
        ResourceInfo(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec.get("scope", "Namespaced") == "Namespaced",
        ),
        status="status" in (version.get("subresources") or {}),
        builtin=False,
        unconditional_update=False,
        list_keys=lists,
        atomic_maps=frozenset(atomic),
        schema=schema or None,
    )


def _nodes(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every typed node below a schema by dotted path; list items have their list's path."""
    yield path, schema
    items = schema.get("items")
    if isinstance(items, Mapping):
        for below, node in _nodes(items, path):
            if below != path:
                yield below, node
    for name, node in (schema.get("properties") or {}).items():
        yield from _nodes(node, f"{path}.{name}" if path else name)
