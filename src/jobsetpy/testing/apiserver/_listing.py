"""LIST: pages of a consistent snapshot, and the meaning of a resourceVersion.

Rules: Kubernetes API concepts, "Resource versions" and "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs

from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._selectors import Match
from jobsetpy.testing.apiserver._storage import Collection, Storage, Version


@attrs.frozen(kw_only=True)
class ListOptions:
    """Query parameters of LIST and WATCH; ``version`` is 0 when absent."""

    matches: Match
    limit: int = 0
    continue_token: str = ""
    version: int = 0
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_s: float | None = None


def list_page(
    storage: Storage, collection: Collection, namespace: str, options: ListOptions
) -> bytes:
    """Return the body of a LIST response.

    Raises:
        StatusError: 410 for a token that is too old, 504 for a version from the future.
    """
    version, after = _start(storage, collection, options)
    objects = collection.objects
    if version != storage.version:
        objects = collection.snapshot(version)
    items = [
        (f"{key.namespace}/{key.name}", found)
        for key, found in objects.items()
        if (not namespace or key.namespace == namespace) and options.matches(found.obj)
    ]
    items.sort(key=lambda item: item[0])
    if after:
        items = [item for item in items if item[0] > after]
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if 0 < options.limit < len(items):
        items = items[: options.limit]
        meta["continue"] = _token(version, items[-1][0])
    return _encode(collection, meta, [found for _, found in items])


def _start(storage: Storage, collection: Collection, options: ListOptions) -> tuple[int, str]:
    """Return the version to list at, and the object after which to continue."""
    if options.continue_token:
        version, after = _read_token(options.continue_token)
        if version < collection.floor:
            raise answers.expired("the continue parameter is too old: start over without it")
        return version, after
    if options.version > storage.version:
        raise answers.too_large_version(options.version, storage.version)
    return storage.version, ""


def _token(version: int, last: str) -> str:
    data = {"v": "meta.k8s.io/v1", "rv": version, "start": last}
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode()


def _read_token(token: str) -> tuple[int, str]:
    data = json.loads(base64.urlsafe_b64decode(token + "=="))  # the padding may be missing
    return data["rv"], data["start"]


def _encode(collection: Collection, meta: dict[str, Any], items: list[Version]) -> bytes:
    info = collection.kind.info
    head = {"kind": f"{info.kind}List", "apiVersion": info.api_version, "metadata": meta}
    text = json.dumps(head, separators=(",", ":")).encode()
    return text[:-1] + b',"items":[' + b",".join(item.bare for item in items) + b"]}"
