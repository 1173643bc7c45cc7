"""Bodies of writes: their JSON and their content types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

JSON: Final = "application/json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Server-side apply. JSON is valid YAML, and every server release accepts it under this type."""
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


def _plain(value: Any) -> Any:
    """Convert values that msgspec cannot encode: mappings other than dict (read-only views)."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a request body cannot hold {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(body: Any) -> bytes:
    """Encode JSON data as bytes.

    Raises:
        TypeError: the body contains a value that is not JSON data.
    """
    try:
        return _encoder.encode(body)
    except NotImplementedError as problem:
        raise TypeError(str(problem)) from None


def delete_options(
    propagation: str, uid: str, resource_version: str, grace_period_seconds: int | None = None
) -> dict[str, Any]:
    """Return a metav1.DeleteOptions without the empty arguments."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    preconditions = {}
    if uid:
        preconditions["uid"] = uid
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    if preconditions:
        options["preconditions"] = preconditions
    return options
