"""Series and labels of a PromQL expression; promtool checks the rest of the grammar."""

from __future__ import annotations

import re

import attrs

_TOKEN = re.compile(
    r"""(?P<string>"[^"]*"|'[^']*')
      | (?P<variable>\$\w+|\$\{\w+\})
      | (?P<number>[0-9][0-9.]*(?:e[0-9]+)?(?:ms|[smhdwy])?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^(){}\[\],=<>])
      | (?P<space>\s+)""",
    re.VERBOSE,
)
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset"}


@attrs.frozen
class Asked:
    """A series name, and the labels of its selectors."""

    series: str
    labels: frozenset[str]


@attrs.frozen
class Query:
    """Series of an expression; ``grouped`` are the labels of ``by`` and similar words."""

    asked: tuple[Asked, ...]
    grouped: frozenset[str]


def read(expression: str) -> Query:
    """Parse an expression.

    Raises:
        ValueError: it has an unknown element.
    """
    tokens = _tokens(expression)
    asked: list[Asked] = []
    grouped: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name" or text in _WORDS:
            continue
        if text in _LISTS:
            end = tokens.index(("operator", ")"), at)
            grouped |= {word for what, word in tokens[at:end] if what == "name"}
            at = end + 1
        elif following == "{":
            end = tokens.index(("operator", "}"), at)
            labels = {word for what, word in tokens[at:end] if what == "name"}
            asked.append(Asked(text, frozenset(labels)))
            at = end + 1
        elif following not in ("(", *_LISTS):
            asked.append(Asked(text, frozenset()))
    return Query(tuple(asked), frozenset(grouped))


def _tokens(expression: str) -> list[tuple[str, str]]:
    out, at = [], 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            raise ValueError(f"cannot read {expression[at : at + 20]!r} of {expression!r}")
        if found.lastgroup != "space":
            out.append((str(found.lastgroup), found[0]))
        at = found.end()
    return out
