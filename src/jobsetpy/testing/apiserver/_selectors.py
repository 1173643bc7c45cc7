"""Label and field selectors: parsed once, then applied to many objects.

Grammar of label selectors: Kubernetes API concepts, "Labels and selectors": equality
(``a=b``, ``a==b``, ``a!=b``), sets (``a in (x,y)``, ``a notin (x)``) and existence (``a``, ``!a``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jobsetpy.testing.apiserver._answers import bad_request

Match = Callable[[Mapping[str, Any]], bool]
FieldReader = Callable[[Mapping[str, Any]], str]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),]|[^\s=!(),]+)")


def everything(_: Mapping[str, Any]) -> bool:
    """Select everything, as the empty selector does."""
    return True


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            break
        found.append(token.group(1))
        at = token.end()
    return found


class _LabelParser:
    """Recursive-descent parser of one selector."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ""]
        self._at = 0

    def parse(self) -> list[Match]:
        requirements = [self._requirement()]
        while self._peek() == ",":
            self._at += 1
            requirements.append(self._requirement())
        if self._peek():
            raise self._error(f"found '{self._peek()}', expected: ',' or 'end of string'")
        return requirements

    def _peek(self) -> str:
        return self._tokens[self._at]

    @staticmethod
    def _error(message: str) -> Exception:
        return bad_request(f"unable to parse requirement: {message}")

    def _word(self) -> str:
        token = self._peek()
        if not token or token in {"=", "==", "!=", "!", "(", ")", ","}:
            raise self._error(f"found '{token}', expected: identifier")
        self._at += 1
        return token

    def _requirement(self) -> Match:
        if self._peek() == "!":
            self._at += 1
            absent = self._word()
            return lambda obj: absent not in _labels(obj)
        key = self._word()
        operator = self._peek()
        if operator in {"", ","}:
            return lambda obj: key in _labels(obj)
        self._at += 1
        if operator in {"=", "==", "!="}:
            value = self._value()
            if operator == "!=":
                return lambda obj: _labels(obj).get(key) != value
            return lambda obj: _labels(obj).get(key) == value
        if operator in {"in", "notin"}:
            values = self._values()
            if operator == "in":
                return lambda obj: _labels(obj).get(key) in values
            return lambda obj: key not in _labels(obj) or _labels(obj)[key] not in values
        raise self._error(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _value(self) -> str:
        return "" if self._peek() in {"", ","} else self._word()

    def _values(self) -> frozenset[str]:
        if self._peek() != "(":
            raise self._error(f"found '{self._peek()}' expected: '('")
        self._at += 1
        values = []
        while True:
            values.append("" if self._peek() in {",", ")"} else self._word())
            found = self._peek()
            self._at += 1
            if found == ")":
                return frozenset(values)
            if found != ",":
                raise self._error(f"found '{found}', expected: ',', or ')'")


def label_selector(text: str) -> Match:
    """Parse a label selector.

    Raises:
        StatusError: 400, with the API server's message.
    """
    if not text.strip():
        return everything
    requirements = _LabelParser(text).parse()
    return lambda obj: all(requirement(obj) for requirement in requirements)


def field_selector(
    text: str, fields: Mapping[str, FieldReader], unsupported: Callable[[str], str]
) -> Match:
    """Parse a field selector (``a=b,c!=d``).

    Args:
        text: the selector.
        fields: reader of each supported field.
        unsupported: returns the message for an unsupported field.

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
            raise bad_request(unsupported(name))
        requirements.append(_field_requirement(reader, value, equal=operator != "!="))
    return lambda obj: all(requirement(obj) for requirement in requirements)


def _field_requirement(reader: FieldReader, value: str, *, equal: bool) -> Match:
    return lambda obj: (reader(obj) == value) is equal
