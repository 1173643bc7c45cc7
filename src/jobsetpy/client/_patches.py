"""Bodies of writes: their JSON and their content types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

JSON: Final = "application/json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Server-side apply. JSON is YAML, and every server release takes it under this name."""
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


def _plain(value: Any) -> Any:
    """What msgspec cannot encode by itself: mappings that are no dict (read-only views)."""
    if isinstance(value, Mapping):
        return dict(value)
    msg = f"a request body cannot hold {type(value).__name__}"
    raise NotImplementedError(msg)


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(body: Any) -> bytes:
    """JSON data as bytes.

    Raises:
        TypeError: the body holds something that is no JSON data.
    """
    try:
        return _encoder.encode(body)
    except NotImplementedError as problem:
        raise TypeError(str(problem)) from None


def metadata_patch(
    *,
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    resource_version: str = "",
) -> dict[str, Any]:
    """A merge patch that sets labels and annotations and leaves all others alone.

    A value of ``None`` removes the key. With ``resource_version`` the server refuses the patch
    (409) when the object has changed since.
    """
    metadata: dict[str, Any] = {}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {"metadata": metadata}


def pointer(*segments: str | int) -> str:
    """A JSON pointer (RFC 6901) to a place given by keys and indexes.

    ``pointer("metadata", "annotations", "a/b")`` is ``/metadata/annotations/a~1b``.
    """
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)


def operation(op: str, path: Iterable[str | int], value: Any = msgspec.UNSET) -> dict[str, Any]:
    """One operation of a JSON patch (RFC 6902): ``add``, ``remove``, ``replace`` or ``test``."""
    made: dict[str, Any] = {"op": op, "path": pointer(*path)}
    if value is not msgspec.UNSET:
        made["value"] = value
    return made


def delete_options(propagation: str, uid: str, resource_version: str) -> dict[str, Any]:
    """metav1.DeleteOptions; empty arguments are left out."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation:
        options["propagationPolicy"] = propagation
    preconditions = {}
    if uid:
        preconditions["uid"] = uid
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    if preconditions:
        options["preconditions"] = preconditions
    return options
