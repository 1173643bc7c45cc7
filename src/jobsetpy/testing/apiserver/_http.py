"""Mapping between HTTP requests and verbs on resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.structural_schema import unsupported
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver import _selectors
from jobsetpy.testing.apiserver._kinds import Json, Kind
from jobsetpy.testing.apiserver._listing import ListOptions
from jobsetpy.testing.apiserver._registry import DeleteOptions

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

Query = Mapping[str, str]


@attrs.frozen
class Route:
    """Components of a resource path; ``name`` and ``subresource`` are "" when absent."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return ObjectKey(self.namespace, self.name)

    @property
    def resource(self) -> str:
        """Plural, with the subresource if there is one."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def parse_path(path: str) -> Route | None:
    """Parse ``/api/v1/...`` or ``/apis/group/version/...``; return ``None`` for other paths."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    # /namespaces/x and /namespaces/x/status are the Namespace itself.
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return Route(group, version, namespace, plural, name, subresource)


def verb_of(method: str, route: Route, query: Query, content_type: str) -> str:
    """Return the verb in the terms of authorization rules (server-side apply is ``apply``).

    Raises:
        StatusError: 405.
    """
    match method, bool(route.name):
        case (("GET" | "HEAD"), True):
            return "get"
        case (("GET" | "HEAD"), False):
            return "watch" if truth(query, "watch") else "list"
        case "POST", named if not named or route.subresource:
            return "create"
        case "PUT", True:
            return "update"
        case "PATCH", True:
            return "apply" if media_type(content_type) == APPLY_PATCH else "patch"
        case "DELETE", True:
            return "delete"
        case _:
            raise answers.method_not_allowed()


def truth(query: Query, name: str) -> bool | None:
    """Return a boolean parameter; ``None`` when absent."""
    if name not in query:
        return None
    return query[name] in {"1", "true", "True", "TRUE", "t", ""}


def list_options(kind: Kind, query: Query, *, watch: bool) -> ListOptions:
    """Parse the parameters of LIST and WATCH.

    Raises:
        StatusError: 400.
    """
    by_label = _selectors.label_selector(query.get("labelSelector", ""))
    by_field = _selectors.field_selector(query.get("fieldSelector", ""), kind.selectable)
    bookmarks = bool(truth(query, "allowWatchBookmarks"))
    version = int(query.get("resourceVersion") or 0)
    initial = truth(query, "sendInitialEvents")
    if watch and bookmarks and initial is None and not version:
        initial = True  # since 1.34 the server treats such a watch as a streaming list
    return ListOptions(
        matches=lambda obj: by_label(obj) and by_field(obj),
        limit=int(query.get("limit") or 0),
        continue_token=query.get("continue", ""),
        version=version,
        bookmarks=bookmarks,
        initial_events=initial,
        timeout_s=int(query.get("timeoutSeconds") or 0) or None,
    )


def delete_options(query: Query, body: bytes) -> DeleteOptions:
    """Parse DeleteOptions from the body; query parameters take precedence.

    Raises:
        StatusError: 400 or 422.
    """
    data = _object(body) if body.strip() else {}
    policy = query.get("propagationPolicy") or data.get("propagationPolicy")
    if policy not in {None, "Foreground", "Background", "Orphan"}:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        causes = [unsupported("propagationPolicy", policy, supported)]
        raise answers.invalid_options("DeleteOptions", causes)
    preconditions = data.get("preconditions") or {}
    grace = query.get("gracePeriodSeconds", data.get("gracePeriodSeconds"))
    dry_run = query.get("dryRun") == "All" or "All" in (data.get("dryRun") or ())
    return DeleteOptions(
        policy,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        None if grace is None else int(grace),
        dry_run,
    )


def media_type(content_type: str) -> str:
    """Return the media type without parameters."""
    return content_type.split(";", maxsplit=1)[0].strip().lower()


def read_object(body: bytes, content_type: str, kind: Kind) -> Json:
    """Parse the object of a create or PUT.

    Raises:
        StatusError: 400 or 415.
    """
    if media_type(content_type) not in {"", "application/json"}:
        raise answers.unsupported_media_type()
    return _object(body, kind.info.kind)


def read_patch(body: bytes, content_type: str, kind: Kind) -> tuple[str, Any]:
    """Return the patch's media type and its content.

    Raises:
        StatusError: 400 or 415.
    """
    media = media_type(content_type)
    if media not in _PATCH_TYPES:
        raise answers.unsupported_media_type()
    if media == STRATEGIC_PATCH and not kind.builtin:
        raise answers.unsupported_media_type()
    if media == APPLY_PATCH:
        return media, _object(body, kind.info.kind)
    try:
        patch = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise answers.bad_request(f"error decoding patch: {error}") from None
    if media != JSON_PATCH and not isinstance(patch, dict):
        raise answers.bad_request("error decoding patch: json: cannot unmarshal into a map")
    return media, patch


def _object(body: bytes, kind: str = "DeleteOptions") -> Json:
    try:
        return msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        message = f"the object provided is unrecognized (must be of type {kind}): {error}"
        raise answers.bad_request(message) from None
