"""Namespace of a server's Secrets and Services."""

from __future__ import annotations

from pathlib import Path

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace(file: Path = NAMESPACE_FILE, *, outside: str = "default") -> str:
    """Return the namespace of the pod this runs in; ``outside`` if it does not run in a cluster."""
    try:
        return file.read_text().strip() or outside
    except OSError:
        return outside
