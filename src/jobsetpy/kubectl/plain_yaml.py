"""The YAML that kubectl and its kin write into kubeconfigs, read without a YAML library.

Importing one takes longer than anything else until the plugin's first request. What is not as plain
(quotes, comments, flow style, anything that is no text for sure) is left to the library.
"""

from __future__ import annotations

import re
from typing import Any, Final

_LINE: Final = re.compile(r"( *)((?:- )?)([A-Za-z][\w.-]*):(?: (\S+))?|( *)- (\S+)", re.ASCII)
_TEXT: Final = re.compile(r"[A-Za-z/][\w./:+=@-]*(?<!:)", re.ASCII)
_NO_TEXT: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_VALUES: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class _NotPlainError(Exception):
    pass


def read(text: str) -> dict[str, Any] | None:
    """A document as the library would read it, or ``None`` for that to be done."""
    try:
        lines = [_split(line) for line in text.split("\n") if line]
        found, end = _mapping(lines, 0, 0)
    except (_NotPlainError, RecursionError):
        return None
    return found if found and end == len(lines) else None


class _Line:
    """``key: value``, or an item of a list.

    Args:
        indent: of the key, or of an item that is a text.
        dash: of the item that begins with it; -1 if none does.
        key: "" of an item that is a text.
        value: ``None`` if it is what follows.
    """

    __slots__ = ("dash", "indent", "key", "value")

    def __init__(self, dash: int, indent: int, key: str, value: str | None) -> None:
        self.dash, self.indent, self.key, self.value = dash, indent, key, value


def _split(line: str) -> _Line:
    found = _LINE.fullmatch(line)
    if found is None:
        raise _NotPlainError
    before, dash, key, value, item_before, item = found.groups()
    if item is not None:
        return _Line(len(item_before), len(item_before), "", item)
    if dash:
        return _Line(len(before), len(before) + 2, key, value)
    return _Line(-1, len(before), key, value)


def _mapping(lines: list[_Line], at: int, indent: int) -> tuple[dict[str, Any], int]:
    """The keys at an indentation; the first of them may stand behind a dash."""
    out: dict[str, Any] = {}
    first = at
    while at < len(lines):
        line = lines[at]
        if line.indent != indent or not line.key or (line.dash >= 0 and at != first):
            break
        if line.key in out or line.key.lower() in _NO_TEXT:
            raise _NotPlainError
        at += 1
        if line.value is not None:
            out[line.key] = _scalar(line.value)
        elif at == len(lines) or _start(lines[at]) < indent + (lines[at].dash < 0):
            raise _NotPlainError  # nothing, or something else's next line
        elif lines[at].dash >= 0:
            out[line.key], at = _list(lines, at, lines[at].dash)
        else:
            out[line.key], at = _mapping(lines, at, lines[at].indent)
    return out, at


def _list(lines: list[_Line], at: int, dash: int) -> tuple[list[Any], int]:
    out: list[Any] = []
    while at < len(lines) and lines[at].dash == dash:
        line = lines[at]
        if line.key:
            item, at = _mapping(lines, at, line.indent)
            out.append(item)
        else:
            out.append(_scalar(line.value or ""))
            at += 1
    return out, at


def _start(line: _Line) -> int:
    return line.indent if line.dash < 0 else line.dash


def _scalar(text: str) -> Any:
    if text in _VALUES:
        return _VALUES[text]
    if text == "{}":
        return {}
    if text == "[]":
        return []
    if text.lower() in _NO_TEXT or _TEXT.fullmatch(text) is None:
        raise _NotPlainError
    return text
