"""LIST: pages of a consistent snapshot, and the meaning of a resourceVersion.

Rules: Kubernetes API concepts, "Resource versions" and "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import attrs

from jobsetpy.api.structural_schema import forbidden, unsupported
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._selectors import Match
from jobsetpy.testing.apiserver._storage import Collection, Storage, Version

_TOKEN_FORMAT = "meta.k8s.io/v1"  # noqa: S105 - the name of a token's format
_EXPIRED = (
    "the continue parameter is too old for a consistent list: start over without it, or go on with"
    " the token in this answer, which mixes objects from before and after"
)


@attrs.frozen(kw_only=True)
class ListOptions:
    """Query parameters of LIST and WATCH, after syntactic validation."""

    matches: Match
    filtered: bool = False
    limit: int = 0
    continue_token: str = ""
    version: str = ""
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_s: float | None = None


def parse_version(text: str) -> int:
    """Parse a resourceVersion as a number; "" counts as 0.

    Raises:
        ValueError: it is not a number.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"resourceVersion: Invalid value: {json.dumps(text)}: strconv.ParseUint: parsing"
            f" {json.dumps(text)}: invalid syntax"
        )
    return int(text)


def list_version(text: str) -> int:
    """Parse like ``parse_version``; the failure is the 400 of a list."""
    try:
        return parse_version(text)
    except ValueError as error:
        raise answers.bad_request(f"invalid resource version: {error}") from None


def check_options(options: ListOptions) -> None:
    """Reject ``sendInitialEvents`` without its match, and for lists; unknown and vain matches.

    Raises:
        StatusError: 422.
    """
    match, field, causes = options.match, "resourceVersionMatch", []
    if options.watch:
        wanted = "" if options.initial_events is None else "NotOlderThan"
        if match != wanted:
            causes = [forbidden(field, f"it has to be {wanted!r} here")]
    elif options.initial_events is not None:
        causes = [forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    elif match not in {"", "NotOlderThan"}:
        causes = [unsupported(field, match, '"NotOlderThan", ""')]
    elif match and not options.version:
        causes = [forbidden(field, "it needs a resourceVersion")]
    if causes:
        raise answers.invalid_options("ListOptions", causes)


def list_page(
    storage: Storage, collection: Collection, namespace: str, options: ListOptions
) -> bytes:
    """Return the body of a LIST response.

    Raises:
        StatusError: 400 for a bad token or version, 410 for one that is too old, 504 for one from
            the future, 422 for a combination that is not allowed.
    """
    check_options(options)
    version, after = _start(storage, collection, namespace, options)
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
    limit = 0 if options.version == "0" else options.limit
    if 0 < limit < len(items):
        meta["continue"] = _token(version, items[limit - 1][0], namespace)
        if not options.filtered:
            meta["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return _encode(collection, meta, [found for _, found in items])


def _start(
    storage: Storage, collection: Collection, namespace: str, options: ListOptions
) -> tuple[int, str]:
    """Return the version to list at, and the object after which to continue."""
    if options.continue_token:
        version, after = _read_token(options.continue_token)
        if namespace:
            after = f"{namespace}/{after}"
        if version < 0:
            return storage.version, after
        if version < collection.floor:
            fresh = _token(-1, after, namespace)
            raise answers.expired(_EXPIRED, continue_token=fresh)
        return version, after
    asked = list_version(options.version)
    if asked > storage.version:
        raise answers.too_large_version(asked, storage.version)
    return storage.version, ""


def _token(version: int, last: str, namespace: str) -> str:
    start = last.removeprefix(f"{namespace}/") if namespace else last
    data = {"v": _TOKEN_FORMAT, "rv": version, "start": f"{start}\0"}
    text = json.dumps(data, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        data = json.loads(text)
        return int(data["rv"]), str(data["start"]).lstrip("/").removesuffix("\0")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        message = f"invalid continue token: continue key is not valid: {error}"
        raise answers.bad_request(message) from None


def _encode(collection: Collection, meta: dict[str, Any], items: list[Version]) -> bytes:
    info = collection.kind.info
    head = {"kind": f"{info.kind}List", "apiVersion": info.api_version, "metadata": meta}
    text = json.dumps(head, separators=(",", ":")).encode()
    return text[:-1] + b',"items":[' + b",".join(item.bare for item in items) + b"]}"
