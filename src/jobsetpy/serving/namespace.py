"""Where a server's Secrets and Services are."""

from __future__ import annotations

from pathlib import Path

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "jobset-system"


def own_namespace(file: Path = _NAMESPACE_FILE) -> str:
    """The namespace of the pod this runs in; ``jobset-system`` outside a cluster."""
    try:
        return file.read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
