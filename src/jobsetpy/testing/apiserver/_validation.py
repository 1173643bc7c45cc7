"""Validation of an object's content, as far as controllers encounter it.

Labels and annotations of every kind, and custom resources by the schema of their CRD. Pods, Jobs
and other built-in kinds are stored with any content. Objects created by a test through
``World.create`` are not validated, so that they need only the fields relevant to the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from jobsetpy.api import structural_schema
from jobsetpy.api.structural_schema import Cause, bad_value
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._kinds import Json, Kind

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY: Final = re.compile(f"(?P<prefix>{_SUBDOMAIN}/)?(?P<name>{_NAME})")
_LABEL_VALUE: Final = re.compile(f"({_NAME})?")
_LABEL_LENGTH: Final = 63
_PREFIX_LENGTH: Final = 253


def check_types(kind: Kind, obj: Json, *, patch: bool = False) -> None:
    """Reject values of labels, annotations and a ConfigMap's data that are no strings.

    Args:
        kind: the kind.
        obj: the object as received, or as patched.
        patch: the object is the result of a patch.

    Raises:
        StatusError: 400; 422 for a patch.
    """
    meta = obj.get("metadata") or {}
    maps = {f"metadata.{name}": meta.get(name) for name in ("labels", "annotations")}
    if kind.info.kind == "ConfigMap":
        maps["data"] = obj.get("data")
    for path, value in maps.items():
        is_text = isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values())
        if value is None or is_text:
            continue
        why = f"json: cannot unmarshal into Go struct field {path} of type map[string]string"
        if patch:
            raise answers.invalid(kind.info, meta.get("name", ""), [bad_value("patch", path, why)])
        version = kind.info.version
        what = f'{kind.info.kind} in version "{version}" cannot be handled as a {kind.info.kind}'
        raise answers.bad_request(f"{what}: {why}")


def check(kind: Kind, new: Json) -> None:
    """Validate the result of a write, with defaults.

    Raises:
        StatusError: 422 with every cause.
    """
    causes = [*_metadata(new["metadata"])]
    if kind.schema is not None:
        causes += structural_schema.problems(kind.schema, new)
    if causes:
        name = new["metadata"].get("name", "")
        raise answers.invalid(kind.info, name, causes)


def _metadata(meta: Json) -> Iterator[Cause]:
    for key, value in (meta.get("labels") or {}).items():
        yield from _key("metadata.labels", key)
        if len(value) > _LABEL_LENGTH or not _LABEL_VALUE.fullmatch(value):
            yield bad_value("metadata.labels", value, "a valid label must be at most 63 characters")
    for key in meta.get("annotations") or {}:
        yield from _key("metadata.annotations", key.lower())


def _key(field: str, key: str) -> Iterator[Cause]:
    found = _KEY.fullmatch(key)
    if (
        found is None
        or len(found["name"]) > _LABEL_LENGTH
        or len(found["prefix"] or "") > _PREFIX_LENGTH + 1
    ):
        yield bad_value(field, key, "name part must consist of alphanumeric characters, '-', '_'")
