"""Access to unvalidated JSON.

Admission sees objects before, or without, the checks of the CRD; a field
of another type than expected reads as absent here, and the API server's schema reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

OBJECT: Final = (dict, Mapping)
"""Types for ``isinstance``: the same as ``Mapping``, several times faster for decoded JSON."""

Json = Mapping[str, Any]
"""JSON object."""

Patch = list[dict[str, Any]]
"""Operations of RFC 6902."""

EMPTY: Json = {}


def child(parent: Json, *path: str) -> Json:
    """Return the object at ``path``, or an empty one."""
    for name in path:
        value = parent.get(name)
        if not isinstance(value, OBJECT):
            return EMPTY
        parent = value
    return parent


def copied(value: Any) -> Any:
    """Return a deep copy of JSON, faster than ``deepcopy``."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def objects(parent: Json, name: str) -> list[tuple[int, Json]]:
    """Return the entries of a list that are objects, each with its index in the list."""
    return [(at, item) for at, item in enumerate(items(parent, name)) if isinstance(item, OBJECT)]


def items(parent: Json, name: str) -> Sequence[Any]:
    """Return a list, or an empty one."""
    value = parent.get(name)
    return value if isinstance(value, list) else ()


def text(parent: Json, name: str) -> str:
    """Return a string, or ""."""
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def texts(parent: Json, name: str) -> list[str]:
    """Return the strings of a list."""
    return [item for item in items(parent, name) if isinstance(item, str)]


def number(parent: Json, name: str) -> int | None:
    """Return an integer, or ``None``."""
    value = parent.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def job_spec(replicated_job: Json) -> Json:
    """Return the spec of a ReplicatedJob's Jobs."""
    return child(replicated_job, "template", "spec")


def pod_spec(replicated_job: Json) -> Json:
    """Return the spec of a ReplicatedJob's pods."""
    return child(replicated_job, "template", "spec", "template", "spec")


def pod_notes(replicated_job: Json) -> Json:
    """Return the annotations of a ReplicatedJob's pod template."""
    return child(replicated_job, "template", "spec", "template", "metadata", "annotations")


def containers(spec: Json) -> Iterator[Json]:
    """Iterate over init containers and containers of a pod spec."""
    for kind in ("initContainers", "containers"):
        for _, container in objects(spec, kind):
            yield container
