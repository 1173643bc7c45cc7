"""Validation of an object's content, as far as controllers encounter it.

Labels and annotations of every kind, and custom resources by the schema of their CRD. Pods, Jobs
and other built-in kinds are stored with any content. Objects created by a test through
``World.create`` are not validated, so that they need only the fields relevant to the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        fits = isinstance(value, str) and len(value) <= _LABEL_LENGTH
        if not fits or not _LABEL_VALUE.fullmatch(value):
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
