"""Parts of JobSets for tests of the CRD."""

from __future__ import annotations

from typing import Any

TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}


def job(name: str = "w", **fields: Any) -> dict[str, Any]:
    """A ReplicatedJob with the smallest valid template."""
    return {"name": name, "template": TEMPLATE, **fields}


def jobs(*items: dict[str, Any]) -> dict[str, Any]:
    """The part of a spec with these ReplicatedJobs."""
    return {"replicatedJobs": list(items)}


def claim(**metadata: Any) -> dict[str, Any]:
    """A volume claim template."""
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"]}}


def depends(*names: str) -> list[dict[str, str]]:
    """Dependencies on ReplicatedJobs that have to be ready."""
    return [{"name": name, "status": "Ready"} for name in names]
