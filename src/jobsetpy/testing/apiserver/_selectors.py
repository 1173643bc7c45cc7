"""Label and field selectors: parsed once, then applied to many objects.

Grammar of label selectors: Kubernetes API concepts, "Labels and selectors": equality
(``a=b``, ``a==b``, ``a!=b``), sets (``a in (x,y)``, ``a notin (x)``) and existence (``a``, ``!a``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jobsetpy.api.label_selectors import LabelRequirement, LabelSelector
from jobsetpy.testing.apiserver._answers import bad_request

Match = Callable[[Mapping[str, Any]], bool]
FieldReader = Callable[[Mapping[str, Any]], str]

_WORD = r"[^\s=!(),]+"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_WORD})"
    rf"|(?P<key>{_WORD})"
    rf"(?:\s*(?P<sign>==|!=|=)\s*(?P<value>(?:{_WORD})?)"
    rf"|\s+(?P<set>in|notin)\s*\((?P<values>(?:\s*(?:{_WORD})?\s*,)*\s*(?:{_WORD})?\s*)\))?"
    r")\s*(?P<end>,|$)"
)


def everything(_: Mapping[str, Any]) -> bool:
    """Select everything, as the empty selector does."""
    return True


def label_selector(text: str) -> Match:
    """Parse a label selector.

    Raises:
        StatusError: 400.
    """
    if not text.strip():
        return everything
    requirements, at, end = [], 0, ","
    while end:
        found = _REQUIREMENT.match(text, at)
        if found is None:
            raise bad_request(f"unable to parse requirement: found '{text[at:].strip()}'")
        requirements.append(_requirement(found))
        at, end = found.end(), found["end"]
    selector = LabelSelector(match_expressions=tuple(requirements))
    return lambda obj: selector.matches(obj["metadata"].get("labels") or {})


def _requirement(found: re.Match[str]) -> LabelRequirement:
    if found["absent"]:
        return LabelRequirement(key=found["absent"], operator="DoesNotExist")
    sign, values = found["sign"] or found["set"], found["value"] or found["values"] or ""
    if sign is None:
        return LabelRequirement(key=found["key"])
    return LabelRequirement(
        key=found["key"],
        operator="NotIn" if sign in {"!=", "notin"} else "In",
        values=tuple(value.strip() for value in values.split(",")),
    )


def field_selector(text: str, fields: Mapping[str, FieldReader]) -> Match:
    """Parse a field selector (``a=b,c!=d``), given the reader of each supported field.

    Raises:
        StatusError: 400, with the API server's message.
    """
    if not text.strip():
        return everything
    requirements: list[Match] = []
    for part in text.split(","):
        found = re.fullmatch(r"([^=!]*)(==|!=|=)(.*)", part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = found.groups()
        reader = fields.get(name)
        if reader is None:
            raise bad_request(f"field label not supported: {name}")
        requirements.append(_field_requirement(reader, value, equal=operator != "!="))
    return lambda obj: all(requirement(obj) for requirement in requirements)


def _field_requirement(reader: FieldReader, value: str, *, equal: bool) -> Match:
    return lambda obj: (reader(obj) == value) is equal
